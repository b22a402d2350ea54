"""The examples of docs/python.md run as they are written."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from aot.target import target

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(target, "_KINDS", dict(target._KINDS))  # the page registers one
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8").replace("```python\n", "").replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, "docs/python.md", "docs/python.md", 0)
    lines: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    result = runner.run(test, out=lines.append)
    assert result.failed == 0, "".join(lines)
    assert result.attempted > 40
