#!/usr/bin/env python3
"""The delta table of a change: networks measured now, compared with the accepted figures of a git revision.

    python scripts/delta.py                     against tests/baseline.json of HEAD~1 (the environment's AOT_BASE, if set)
    python scripts/delta.py --base main         of another revision; `.` is the file on disk
    python scripts/delta.py --models 'tests/models/net_k*.tflite' -j 1
    python scripts/delta.py --accept                    writes tests/baseline_shared.json

It uses the code of `aot report --budget tests/budget.toml`, with the same limits: those of tests/baseline.json on disk for
our own networks, and tests/baseline_shared.json for twelve of the shared corpus, if that is next to the checkout. The second
file has figures only; `aot report --accept` writes the first.
Prints Markdown. Exit codes of `aot report`: 4 if a figure is worse, 5 if outputs differ, 2 if another compiler or emulator
than the baseline's is installed; 1 if there is no model.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aot.report.measure.report import Job, Report

ROOT = Path(__file__).resolve().parent.parent
BASELINE = "tests/baseline.json"
BUDGET = ROOT / "tests" / "budget.toml"
SHARED = ROOT.parent / "shared" / "models"
SHARED_BASELINE = "tests/baseline_shared.json"
SHARED_NETWORKS = {
    "nets/magic_wand_float": "balanced",
    "nets/micro_speech_lstm_int8": "balanced",
    "nets/mlperf_ad01_int8": "balanced",
    "nets/mlperf_ic_resnet_int8": "balanced",
    "nets/mlperf_kws_dscnn_hybrid": "balanced",
    "nets/mlperf_kws_dscnn_int8": "balanced",
    "nets/mlperf_sww_int8": "ram",
    "nets/mlperf_vww_mobilenet_int8": "speed",
    "nets/rnnoise_int8": "balanced",
    "nets/silabs_people_flow_int8": "balanced",
    "nets/tinyengine_vww_int8": "size",
    "derived/mlperf_kws_dscnn_int16x8": "balanced",
}
"""Networks of the shared corpus, with every kind of arithmetic and every --opt; each with its --opt."""
OWN_MODELS = "tests/models/net_*.tflite"
TOTALS = ("instructions", "code", "constants", "workspace", "stack")

Reports = Mapping[str, Mapping[str, Any]]
"""By NAME@BOARD."""


def accepted(revision: str) -> Reports | None:
    """The baselines of a revision, `.` for those on disk; None if its tests/baseline.json is missing or cannot be read."""
    own = _accepted(revision, BASELINE)
    return None if own is None else {**own, **(_accepted(revision, SHARED_BASELINE) or {})}


def _accepted(revision: str, file: str) -> Reports | None:
    from aot.errors import UsageError
    from aot.report.measure.gate import load_reports, parse_reports

    if revision == ".":
        return load_reports(ROOT / file) if (ROOT / file).is_file() else None
    done = subprocess.run(["git", "show", f"{revision}:{file}"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode != 0:
        return None
    try:
        return parse_reports(done.stdout, f"{revision}:{file}")
    except UsageError:  # written in an older form
        return None


def shared_models() -> list[Path]:
    """The shared networks that exist."""
    return [path for name in SHARED_NETWORKS if (path := SHARED / f"{name}.tflite").is_file()]


def measure(models: Sequence[Path], board: str, processes: int) -> tuple[list[Any], list[Any]]:
    """Reports and failures, with the default inputs of `aot report`."""
    from aot.driver.reading import read_named
    from aot.report.measure.report import Job, run_jobs
    from aot.system.executors import local

    pool = local(processes)
    opt = {SHARED / f"{name}.tflite": opt for name, opt in SHARED_NETWORKS.items()}
    jobs = [Job(read_named(m), board, {"opt": opt.get(m, "balanced")}) for m in models]
    return run_jobs(work, jobs, pool=lambda _: pool, done=lambda job, good: print(job.model.path.stem, file=sys.stderr))


def work(job: Job) -> Report:
    """One model on one board, compiled as by `aot report` without options, except for the --opt of a shared network."""
    from aot.driver.build import build
    from aot.driver.options import Options
    from aot.memory.memory_pools import Pooling
    from aot.micro.board import load_board
    from aot.micro.build.project import prepare
    from aot.report.measure import DEFAULT_SETS
    from aot.report.measure.inputs import rule_sets
    from aot.report.measure.report import make_report

    board = load_board(job.board)
    options = Options(opt=job.options["opt"], pooling=Pooling(board.pools))
    artifact = build(job.model, target=board.cpu, options=options)
    sets = rule_sets(artifact.metadata["inputs"], DEFAULT_SETS)
    return make_report(job.model.data, artifact, prepare(artifact, board), sets)


def figures_text(reports: Sequence[Report]) -> str:
    """The baseline of shared networks: their figures and how they were measured, without layers."""
    from aot.report.measure.gate import baseline_text

    return baseline_text([{**report, "layers": [], "flash": None} for report in reports])


def delta_table(before: Reports, now: Reports) -> list[str]:
    """A row for each model: its figures now, and their changes; `new` for figures that the revision did not have."""
    from aot.report.measure.gate import change_text, moved
    from aot.report.render.blocks import cell, markdown_table

    rows = []
    for key, report in sorted(now.items()):
        cells = []
        for name in TOTALS:
            value = report["totals"][name]
            change = "new" if key not in before else change_text(moved(before[key]["totals"].get(name), value))
            cells.append(cell(value) if change == "=" else f"{cell(value)} {change}")
        rows.append((key, *cells))
    return markdown_table(("model", *TOTALS), rows)


def main(arguments: Sequence[str] | None = None) -> int:
    from aot.report.measure.gate import complaints, exit_code, judge, open_gate
    from aot.report.measure.report import bundle, key_of

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=os.environ.get("AOT_BASE") or "HEAD~1", help="git revision to compare with")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--models", default=OWN_MODELS, help="pattern, from the root of the checkout; then no shared ones")
    parser.add_argument("--accept", action="store_true", help=f"write {SHARED_BASELINE}: the figures of the shared networks now")
    parser.add_argument("-j", "--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    shared = shared_models() if options.models == OWN_MODELS else []
    if options.accept:
        return accept(shared, options.board, options.processes)
    gate = open_gate(BUDGET, None, accept=False, allow=None)
    gate = replace(gate, baseline={**(gate.baseline or {}), **(_accepted(".", SHARED_BASELINE) or {})})
    before = accepted(options.base)
    if before is None:
        print(f"no {BASELINE} of this form in {options.base}: compared with the one on disk", file=sys.stderr)
        before = accepted(".") or {}
    measured = bundle(*measure([*sorted(ROOT.glob(options.models)), *shared], options.board, options.processes))
    if not measured["reports"] and not measured["failures"]:
        print(f"no model {options.models}", file=sys.stderr)
        return 1
    judged = judge(measured["reports"], gate)
    print("\n".join(delta_table(before, {key_of(r): r for r in measured["reports"]})))
    for problem in complaints(measured, judged):
        print(problem, file=sys.stderr)
    return exit_code(measured, judged)


def accept(models: Sequence[Path], board: str, processes: int) -> int:
    """Write the baseline of the shared networks; 1, without writing, if one is missing, fails or is not exact."""
    reports, failures = measure(models, board, processes)
    bad = [r["name"] for r in reports if not r["verdict"]["accepted"]] + [f["model"] for f in failures]
    if bad or len(models) < len(SHARED_NETWORKS):
        print(f"not accepted: {', '.join(bad) or f'not all networks are in {SHARED}'}", file=sys.stderr)
        return 1
    (ROOT / SHARED_BASELINE).write_text(figures_text(reports), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
