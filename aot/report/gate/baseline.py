"""What `aot report --accept` keeps of reports: everything that the gate and a comparison read, one line for each layer and
symbol.

Short on purpose, because it is committed: the memory plan, the groups of the flash and what describes a layer are left out, and
a change of one layer is a change of one line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from aot.report.figures.report import Report

BASELINE_SCHEMA = "aot-baseline/1"
LAYER = ("index", "op", "name", "kernel", "instructions", "code", "weights", "tables", "scratch")
SYMBOL = ("name", "file", "bytes")


def keep(report: Report) -> dict[str, Any]:
    """The part of a report, or of a baseline's entry, that a baseline holds."""
    flash = report["flash"]
    return {
        "name": report["name"],
        "board": report["board"],
        "verdict": {"exact": report["verdict"]["exact"]},
        "fingerprint": report["fingerprint"],
        "totals": report["totals"],
        "layers": [{k: layer[k] for k in LAYER} for layer in report["layers"]],
        "flash": None if flash is None else {"symbols": [{k: symbol[k] for k in SYMBOL} for symbol in flash["symbols"]]},
    }


def baseline(reports: Iterable[Report]) -> dict[str, Any]:
    """The content of a baseline, in the order of names and boards."""
    return {"schema": BASELINE_SCHEMA, "reports": sorted(map(keep, reports), key=lambda r: (r["name"], r["board"]))}


def baseline_text(reports: Iterable[Report]) -> str:
    """`baseline` as the text of a file."""
    return _text(baseline(reports), "") + "\n"


def _text(value: Any, indent: str) -> str:
    """JSON in which a list or object of plain values stands on one line."""
    if not _deep(value):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    inner = indent + " "
    if isinstance(value, Mapping):
        parts = [f"{json.dumps(k, ensure_ascii=False)}: {_text(v, inner)}" for k, v in value.items()]
        begin, end = "{}"
    else:
        parts = [_text(v, inner) for v in value]
        begin, end = "[]"
    return f"{begin}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{end}"


def _deep(value: Any) -> bool:
    """Whether a list or an object holds such."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return any(isinstance(v, Mapping | list) for v in parts)
