#!/usr/bin/env python3
"""Run the notebook of docs/ with Jupyter (extra `docs`), and keep its outputs; scripts/site_pages.py makes a page of it.

python scripts/notebook.py             run all cells, write the outputs into the file
python scripts/notebook.py --check     change nothing; exit code 1 and the difference if an output changed
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
_KEPT = ("text/html", "text/plain")
"""The formats of a result that are kept."""


def executed(text: str) -> str:
    """The notebook with the outputs of a run in a fresh kernel, in its folder; a cell that raises is an error."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.reads(text, as_version=4)
    os.environ["PYTHONPATH"] = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    resources = {"metadata": {"path": str(NOTEBOOK.parent)}}
    NotebookClient(book, timeout=300, kernel_name="python3", record_timing=False, resources=resources).execute()
    return tidy(json.loads(nbformat.writes(book)))


def tidy(book: dict[str, Any]) -> str:
    """The file's text without machine-dependent parts."""
    book["metadata"] = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for cell in book["cells"]:
        cell["metadata"] = {}
        for output in cell.get("outputs", ()):
            if "data" in output:
                output["data"] = {form: output["data"][form] for form in _KEPT if form in output["data"]}
    return json.dumps(book, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only tell whether the outputs are those of today")
    arguments = parser.parse_args()
    before = NOTEBOOK.read_text(encoding="utf-8")
    after = executed(before)
    if not arguments.check:
        NOTEBOOK.write_text(after, encoding="utf-8")
    elif after != before:
        sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "kept", "now"))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
