#!/usr/bin/env python3
"""The delta table of a change: our own networks measured now, against the figures that a git revision accepted.

    python scripts/delta.py                     against tests/baseline.json of HEAD~1 (the environment's AOT_BASE, if set)
    python scripts/delta.py --base main         of another revision; `.` is the file on disk
    python scripts/delta.py --models 'tests/models/net_k*.tflite' -j 1

Made of what `aot report` is made of. Prints Markdown; exit code 1 when a model is not exact or cannot be reported, 4 when a
figure is worse than tests/baseline.json on disk accepts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "tests/baseline.json"
TOTALS = {
    "instructions": "instructions",
    "code_bytes": "code",
    "constant_bytes": "constants",
    "workspace_bytes": "workspace",
    "stack_bytes": "stack",
}
"""Figure of the baseline -> total of a report."""

Figures = Mapping[str, Mapping[str, int]]
"""By NAME@BOARD."""


def accepted(revision: str) -> Figures | None:
    """tests/baseline.json of a revision, `.` for the one on disk; None where there is none."""
    if revision == ".":
        text = (ROOT / BASELINE).read_text(encoding="utf-8")
    else:
        done = subprocess.run(["git", "show", f"{revision}:{BASELINE}"], cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return None
        text = done.stdout
    rows: Figures = json.loads(text)
    return rows


def measure(models: Sequence[Path], board: str, processes: int) -> tuple[list[Any], list[Any]]:
    """Reports and failures, with the golden sets beside the models."""
    from aot.cli.options import CompileOptions
    from aot.cli.report import work
    from aot.report.report_matrix import Job, run_jobs

    how = {"compile": CompileOptions(), "random": None, "timeout": None}
    jobs = [Job(m, board, how | {"inputs": m.with_name(f"{m.stem}.golden.npz")}) for m in models]
    return run_jobs(work, jobs, processes=processes, done=lambda job, good: print(f"{job.model.stem}", file=sys.stderr))


def figures_of(reports: Sequence[Mapping[str, Any]]) -> Figures:
    from aot.report.report import key_of

    return {key_of(r): {name: r["totals"][total] for name, total in TOTALS.items()} for r in reports}


def delta_table(before: Figures, now: Figures) -> list[str]:
    """A row for each model: what it needs now, and how that moved; `new` for what the revision did not have."""
    from aot.report.diff import change_text, moved
    from aot.report.markdown import cell, table

    rows = []
    for key, figures in sorted(now.items()):
        old = before.get(key)
        cells = []
        for name, value in figures.items():
            change = "new" if old is None else change_text(moved(old.get(name), value))
            cells.append(cell(value) if change == "=" else f"{cell(value)} {change}")
        rows.append((key, *cells))
    return table(("model", *(name.removesuffix("_bytes") for name in TOTALS)), rows)


def worse(limits: Figures, now: Figures) -> list[str]:
    """Figures above what the file on disk accepts."""
    return [
        f"{key}: {name} {value:,} is more than the accepted {limits[key][name]:,}"
        for key, figures in sorted(now.items())
        for name, value in figures.items()
        if key in limits and value > limits[key].get(name, value)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=os.environ.get("AOT_BASE") or "HEAD~1", help="git revision to compare with")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--models", default="tests/models/net_*.tflite", help="pattern, from the root of the checkout")
    parser.add_argument("-j", "--processes", type=int, default=2)
    wanted = parser.parse_args(arguments)
    before = accepted(wanted.base)
    if before is None:
        print(f"no {BASELINE} in {wanted.base}: compared with the one on disk", file=sys.stderr)
        before = accepted(".")
    assert before is not None
    reports, failures = measure(sorted(ROOT.glob(wanted.models)), wanted.board, wanted.processes)
    now = figures_of(reports)
    print("\n".join(delta_table(before, now)))
    bad = [r["name"] for r in reports if not r["verdict"]["exact"]] + [f["model"] for f in failures]
    if bad or not reports:
        print(f"not exact or not reported: {', '.join(bad) or 'no model'}", file=sys.stderr)
        return 1
    limits = accepted(".")
    over = worse(limits or {}, now)
    print("\n".join(over), file=sys.stderr, end="\n" if over else "")
    return 4 if over else 0


if __name__ == "__main__":
    sys.exit(main())
