"""The golden fixture: what differs and what is missing fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest


def test_golden_compares(golden: Callable[[str, str], None], request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden"):
        golden("fixture.txt", "the text\n")
        pytest.skip("golden files are being written")
    golden("fixture.txt", "the text\n")
    with pytest.raises(AssertionError, match="--update-golden accepts the new text"):
        golden("fixture.txt", "another text\n")
    with pytest.raises(pytest.fail.Exception, match=r"missing\.txt is missing; run with --update-golden"):
        golden("missing.txt", "the text\n")
