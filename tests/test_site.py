"""The site: every page has its place, anchors exist, and it builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from aot.cli.app import VERBS
from tests.scripts import script

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def leaves(entry: Any) -> list[str]:
    """The pages of a part of the navigation."""
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in leaves(part)]


def test_every_page_has_a_place() -> None:
    nav = leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    here = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")}
    assert len(nav) == len(set(nav))
    assert here - set(nav) == set(), "add these to the nav of mkdocs.yml"
    assert {p for p in nav if not p.startswith(("reference/", "explanation/"))} - here == set()


def test_pages_are_made_of_the_program() -> None:
    pages = script("site_pages")
    options = pages.options_page()
    assert all(f"## aot {verb}\n" in options for verb in VERBS)
    assert "`--ram-budget`" in options
    errors = pages.errors_page()
    codes = [p.stem for p in (ROOT / "aot" / "errors" / "codes").glob("E*.md")]
    assert all(f"\n## {code}" in errors for code in codes)


def anchors(page: Path) -> set[str]:
    """The ids of a page's headings, as MkDocs and GitHub make them."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    heads = re.findall(r"^#+ (.*)$", prose, re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", h.lower())).strip("-") for h in heads}


def test_anchors_exist() -> None:
    for page in DOCS.rglob("*.md"):
        for target, anchor in re.findall(r"\]\(([^)#\s:]*)#([^)\s]+)\)", page.read_text(encoding="utf-8")):
            there = page if not target else page.parent / target
            if there.suffix == ".md":
                assert anchor in anchors(there), f"{page.name}: {target}#{anchor}"


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason="mkdocs is not installed (extra docs)")
def test_the_site_builds_without_warnings_and_asks_nobody(tmp_path: Path) -> None:
    program = shutil.which("mkdocs", path=str(Path(sys.executable).parent)) or "mkdocs"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [program, "build", "--strict", "-d", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    names = script("site_pages").api_page()
    assert all(f"::: aot.{name}\n" in names for name in ("api.build", "report.calls.check", "te.schedule.Stage"))
    assert list(script("site_pages").requests(tmp_path / "site")) == []
    assert (tmp_path / "site" / "reference" / "api.html").read_text(encoding="utf-8").count("<h3") > 20
