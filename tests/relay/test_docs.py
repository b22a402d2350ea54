"""The examples of docs/relay.md run as they stand."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.slow
def test_relay_page() -> None:
    failed, tried = doctest.testfile(str(DOCS / "relay.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 20
    assert not failed


def test_docstrings() -> None:
    from aot.relay import expr

    failed, tried = doctest.testmod(expr)
    assert tried
    assert not failed
