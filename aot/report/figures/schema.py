"""The published JSON Schemas of our files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

REPORT = "aot-report-3"


def load_schema(name: str = REPORT) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a kind of file."""
    path = Path(__file__).with_name("schema") / f"{name}.schema.json"
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data
