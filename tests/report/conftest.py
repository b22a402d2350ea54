"""Fixtures of the report tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tests_models() -> Path:
    """The folder of the project's own small models."""
    return Path(__file__).resolve().parent.parent / "models"
