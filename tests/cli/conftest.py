"""Fixtures of the command-line tests."""

from __future__ import annotations

import pytest

from tests.cli.helper import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)
