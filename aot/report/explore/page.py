"""The points of an exploration as one HTML file: a plot whose axes can be chosen, and a table; no network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
"""Forbids the browser every request."""


def page(title: str, rows: Sequence[Mapping[str, Any]], boards: Mapping[str, str | None]) -> str:
    """`rows` as `aot explore --json` has them; `boards`: the command of each board's fastest build."""
    data = json.dumps({"rows": list(rows), "boards": dict(boards)}).replace("<", "\\u003c")
    text = (Path(__file__).parent / "page.html").read_text(encoding="utf-8")
    parts = {"POLICY": _POLICY, "TITLE": escape(title), "DATA": data}
    return re.sub("@(POLICY|TITLE|DATA)@", lambda place: parts[place[1]], text)  # in one go: a value may hold such a word
