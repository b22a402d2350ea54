"""Options and fixtures of the whole test suite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[str, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing with them")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """`golden(name, text)` compares text with `golden/name` beside the test file; a missing file fails.

    With --update-golden the file is written instead: look at the difference before committing it.
    """
    folder = Path(request.path).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        if not path.exists():
            pytest.fail(f"the golden file {path.name} is missing; run with --update-golden to accept:\n{text}")
        assert text == path.read_text(encoding="utf-8"), f"{path.name} differs; --update-golden accepts the new text"

    return compare
