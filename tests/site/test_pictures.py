"""The pictures of docs/ show the program as it is."""

from __future__ import annotations

import re

import pytest

from tests.scripts import script
from tests.site.pages import ROOT, pages

_MADE_BY = {"docs/report.png": "scripts/screenshot.py", "docs/scaling.svg": "scripts/scaling.py"}


def test_every_picture_is_made_by_a_script() -> None:
    """tests/test_scaling.py holds the drawing to its figures."""
    here = {p.relative_to(ROOT).as_posix() for end in ("png", "svg", "jpg", "gif") for p in (ROOT / "docs").rglob(f"*.{end}")}
    assert here == set(_MADE_BY)
    shown = {
        (page.parent / name).resolve().relative_to(ROOT).as_posix()
        for page in pages()
        for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
    }
    assert here <= shown, "a picture that no page shows"
    assert all((ROOT / made).is_file() for made in _MADE_BY.values())


def test_the_hash_is_of_what_is_seen() -> None:
    digest = script("screenshot").digest
    page = '<style>a</style><p>5,304 B</p><tr class="detail" id="x" hidden><td><div class="in2">C</div></td></tr>'
    assert digest(page) == digest(page.replace(">C<", ">D<"))
    assert digest(page) != digest(page.replace("5,304", "5,305"))
    assert digest(page) != digest(page.replace("<style>a", "<style>b"))


@pytest.mark.slow
@pytest.mark.qemu
def test_the_picture_of_the_report_is_current() -> None:
    pytest.importorskip("PIL", reason="pillow is not installed")
    page, tools = script("screenshot").shown()
    kept = script("screenshot").recorded()
    if kept["tools"] != tools:
        pytest.skip(f"the figures on it were made with {kept['tools']}, not {tools}")
    assert kept["page"] == script("screenshot").digest(page), "python scripts/screenshot.py"
