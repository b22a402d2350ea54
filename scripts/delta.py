#!/usr/bin/env python3
"""The delta table of a change: our own networks measured now, against the figures that a git revision accepted.

    python scripts/delta.py                     against tests/baseline.json of HEAD~1 (the environment's AOT_BASE, if set)
    python scripts/delta.py --base main         of another revision; `.` is the file on disk
    python scripts/delta.py --models 'tests/models/net_k*.tflite' -j 1

Made of what `aot report --budget tests/budget.toml` is made of, and compared with the same limits: tests/baseline.json on disk.
Prints Markdown. Exit codes of `aot report`: 4 when a figure is worse, 5 when outputs differ, 2 when another compiler or emulator
than the baseline's is installed; 1 when there is no model.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aot.report.figures.matrix import Job
    from aot.report.figures.report import Report

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "tests/baseline.json"
BUDGET = ROOT / "tests" / "budget.toml"
TOTALS = ("instructions", "code", "constants", "workspace", "stack")

Reports = Mapping[str, Mapping[str, Any]]
"""By NAME@BOARD."""


def accepted(revision: str) -> Reports | None:
    """tests/baseline.json of a revision, `.` for the one on disk; None if there is none that can be read."""
    from aot.errors import UsageError
    from aot.report.gate.diff import load_reports, parse_reports

    if revision == ".":
        return load_reports(ROOT / BASELINE)
    done = subprocess.run(["git", "show", f"{revision}:{BASELINE}"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        return None
    try:
        return parse_reports(done.stdout, f"{revision}:{BASELINE}")
    except UsageError:  # written in an older form
        return None


def measure(models: Sequence[Path], board: str, processes: int) -> tuple[list[Any], list[Any]]:
    """Reports and failures, with the inputs that `aot report` uses by itself."""
    from aot.driver.reading import read_named
    from aot.report.figures.matrix import Job, run_jobs
    from aot.system.executors import local

    pool = local(processes)
    jobs = [Job(read_named(m), board, {}) for m in models]
    return run_jobs(work, jobs, pool=lambda _: pool, done=lambda job, good: print(job.model.path.stem, file=sys.stderr))


def work(job: Job) -> Report:
    """One model on one board, compiled as `aot report` does without options."""
    from aot.driver.build import build
    from aot.driver.options import Options
    from aot.memory.pooling import Pooling
    from aot.micro.board import load_board
    from aot.micro.build.project import prepare
    from aot.report import DEFAULT_SETS
    from aot.report.figures.report import make_report
    from aot.report.measure.sets import rule_sets

    board = load_board(job.board)
    artifact = build(job.model, target=board.cpu, options=Options(pooling=Pooling(board.pools)))
    sets = rule_sets(artifact.metadata["inputs"], DEFAULT_SETS)
    return make_report(job.model.data, artifact, prepare(artifact, board), sets)


def delta_table(before: Reports, now: Reports) -> list[str]:
    """A row for each model: what it needs now, and how that moved; `new` for what the revision did not have."""
    from aot.report.gate.diff import change_text, moved
    from aot.report.render.markdown import cell, table

    rows = []
    for key, report in sorted(now.items()):
        cells = []
        for name in TOTALS:
            value = report["totals"][name]
            change = "new" if key not in before else change_text(moved(before[key]["totals"].get(name), value))
            cells.append(cell(value) if change == "=" else f"{cell(value)} {change}")
        rows.append((key, *cells))
    return table(("model", *TOTALS), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    from aot.report.figures.report import bundle, key_of
    from aot.report.gate.judge import complaints, exit_code, judge, open_gate

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=os.environ.get("AOT_BASE") or "HEAD~1", help="git revision to compare with")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--models", default="tests/models/net_*.tflite", help="pattern, from the root of the checkout")
    parser.add_argument("-j", "--processes", type=int, default=2)
    wanted = parser.parse_args(arguments)
    gate = open_gate(BUDGET, None, accept=False, allow=None)
    before = accepted(wanted.base)
    if before is None:
        print(f"no {BASELINE} of this form in {wanted.base}: compared with the one on disk", file=sys.stderr)
        before = accepted(".") or {}
    found = bundle(*measure(sorted(ROOT.glob(wanted.models)), wanted.board, wanted.processes))
    if not found["reports"] and not found["failures"]:
        print(f"no model {wanted.models}", file=sys.stderr)
        return 1
    judged = judge(found["reports"], gate)
    print("\n".join(delta_table(before, {key_of(r): r for r in found["reports"]})))
    for problem in complaints(found, judged):
        print(problem, file=sys.stderr)
    return exit_code(found, judged)


if __name__ == "__main__":
    sys.exit(main())
