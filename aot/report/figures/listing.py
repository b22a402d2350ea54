"""What a layer runs, for readers: the C of its functions, their instructions with counts, its operators in the file.

These texts are for the page only; report.json and baselines leave them out (aot.report.figures.report.bundle).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from aot.frontend.problems import Problems
from aot.frontend.view import parse
from aot.micro.build.project import Project
from aot.report.figures.cycles import Profile

MAX_LINES = 400
"""Of C, and of instructions, that are shown of one function."""

_FUNCTION = re.compile(r"^[A-Za-z_][^;{}()\n]*?\b(\w+)\([^;{}]*\)\s*\{$", re.MULTILINE)


def c_functions(text: str) -> dict[str, str]:
    """The functions of a generated C file by name, each with the comment before it."""
    found = {}
    for match in _FUNCTION.finditer(text):
        end = text.find("\n}\n", match.end())
        start = match.start()
        before = text.rfind("\n\n", 0, start) + 2
        if text.startswith("/*", before) and text[before:start].rstrip().endswith("*/"):
            start = before
        found[match[1]] = _cut(text[start : end + 2].splitlines(), "lines")
    return found


def _cut(lines: Sequence[str], what: str) -> str:
    more = len(lines) - MAX_LINES
    return "\n".join([*lines[:MAX_LINES]] + ([f"… {more:,} more {what}"] if more > 0 else []))


def blocks(lines: Sequence[tuple[int, str, int]]) -> list[dict[str, Any]]:
    """The instructions (address, text, executions a run) as runs of equal count, those that execute most instructions first."""
    found: list[dict[str, Any]] = []
    for address, text, count in lines:
        if not found or found[-1]["count"] != count:
            found.append({"count": count, "lines": []})
        found[-1]["lines"].append(f"{address:x}  {text}")
    total = sum(b["count"] * len(b["lines"]) for b in found)
    for b in found:
        b["share"] = b["count"] * len(b["lines"]) / total if total else 0.0
    hot = sorted((b for b in found if b["count"]), key=lambda b: -b["share"])
    kept, room = [], MAX_LINES
    for b in hot:
        if room > 0:
            kept.append({**b, "lines": b["lines"][:room]})
            room -= len(b["lines"])
    return kept


def operators_of(model: bytes) -> list[str]:
    """`CONV_2D "block1/conv"` of each operator of the first graph."""
    view = parse(model, Problems())
    return [] if view is None or not view.subgraphs else [op.where for op in view.subgraphs[0].operators]


def listings(model: bytes, project: Project, profile: Profile | None) -> dict[str, Any]:
    """`functions`: name -> its C and its blocks of instructions; `operators`: the file's; `candidates` of each layer."""
    name = project.artifact.name
    source = project.artifact.files.get(f"{name}_kernels.c", "")
    functions: dict[str, dict[str, Any]] = {key: {"c": text, "blocks": []} for key, text in c_functions(source).items()}
    for key, lines in ({} if profile is None else profile.lines).items():
        functions.setdefault(key, {"c": "", "blocks": []})["blocks"] = blocks(lines)
    return {"functions": functions, "operators": operators_of(model), "candidates": _candidates(project.artifact.metadata)}


def _candidates(metadata: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """Of each layer the kernels that were possible, by estimated instructions; at most eight."""
    rows = []
    for layer in metadata["layers"]:
        sorted_ = sorted(layer.get("candidates", ()), key=lambda c: (c["instructions"], c["kernel"]))
        kept = [c for i, c in enumerate(sorted_) if i < 8 or c["kernel"] == layer["kernel"]]
        rows.append([{**c, "chosen": c["kernel"] == layer["kernel"]} for c in kept])
    return rows
