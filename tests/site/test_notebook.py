"""The notebook: run again by Jupyter it shows what it shows, and its page has all of that."""

from __future__ import annotations

import json

import pytest

from tests.scripts import script
from tests.site.pages import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def test_every_cell_was_run_and_the_page_has_what_it_showed() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    page = script("site_pages").notebook_page(text)
    code = [cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all("".join(cell["source"]) in page for cell in code)
    shown = [output for cell in code for output in cell["outputs"]]
    assert len(shown) > 5
    tables = ["".join(o["data"]["text/html"]) for o in shown if "text/html" in o.get("data", {})]
    assert tables
    assert all(html in page for html in tables)
    assert "DEPTHWISE_CONV_2D" in tables[0]
    assert "layers 0 to 2" in tables[0], "the plan is drawn over time"
    assert "src=" not in page


def test_a_cell_that_is_not_as_it_was_is_found() -> None:
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    kept = script("notebook").tidy(book)
    assert kept == NOTEBOOK.read_text(encoding="utf-8")
    book["cells"][1]["execution_count"] = 7
    assert script("notebook").tidy(book) != kept


@pytest.mark.slow
def test_the_notebook_run_again_shows_the_same() -> None:
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package, reason=f"{package} is not installed (extra docs)")
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert script("notebook").executed(text) == text, "python scripts/notebook.py"
