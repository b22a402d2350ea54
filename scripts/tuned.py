#!/usr/bin/env python3
"""The gain of tuning: instructions of networks with --opt speed, kernels chosen by estimates and by records of aot tune.

    python scripts/tuned.py ../shared/models/nets/*_int8.tflite
    python scripts/tuned.py tests/models/net_*.tflite --records records.jsonl    keep the records and continue from them

Prints Markdown: instructions of a whole run in QEMU, bytes of constants, and the geometric mean; exit code 1 if a network
needs more than before, or its outputs change.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from math import exp, log
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


def figures(model: Path, board_name: str, records: Path | None) -> tuple[int, int, int, int, bool]:
    """Instructions and bytes of constants by estimates, then by records, and whether the outputs are the same."""
    from aot.driver.build import build
    from aot.driver.options import Options
    from aot.micro.board import load_board
    from aot.micro.build.project import prepare
    from aot.micro.run.runner import run
    from aot.report.measure.inputs import rule_sets
    from aot.target.target import find_target
    from aot.tune.record import history_of, load, save
    from aot.tune.task import extract_tasks
    from aot.tune.tune import tune

    board = load_board(board_name)
    counts = load(records) if records is not None and records.exists() else []
    options = Options(opt="speed")
    tasks = extract_tasks(model.read_bytes(), find_target(board.cpu), name="net", options=options)
    tuned = tune(tasks, board, known=counts)
    if tuned.wrong:
        raise SystemExit(f"{model.name}: {[(w.kernel, w.wrong) for w in tuned.wrong]}")
    if records is not None:
        save(records, [*counts, *tuned.records])
    outcomes = []
    for chosen in (options, replace(options, tuning=history_of(tuned.records))):
        artifact = build(model, target=board.cpu, name="net", options=chosen)
        result = run(prepare(artifact, board), rule_sets(artifact.metadata["inputs"], 1).inputs)
        outcomes.append((result.instructions or 0, int(artifact.metadata["constants"]["size"]), result.outputs))
    (before, bytes_before, a), (after, bytes_after, b) = outcomes
    same = all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in zip(a[0], b[0], strict=True))
    return before, after, bytes_before, bytes_after, same


def main() -> int:
    parser = argparse.ArgumentParser(description="what tuning gains")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--records", type=Path, help="records to go on from, which are added to")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from aot.errors import AotError

    print("| network | by estimates | tuned | ratio | constants | tuned |\n|---|--:|--:|--:|--:|--:|")
    ratios, good = [], True
    for model in arguments.models:
        try:
            before, after, flash, tuned, same = figures(model, arguments.board, arguments.records)
        except AotError as error:
            print(f"| {model.stem} | {str(error.problems[0])[:100]} | | | | |", flush=True)
            continue
        ratios.append(after / before)
        good = good and same and after <= before
        print(f"| {model.stem} | {before:,} | {after:,} | {after / before:.4f} | {flash:,} | {tuned:,} |", flush=True)
        if not same:
            print(f"| {model.stem} | the outputs DIFFER | | | | |")
    if ratios:
        print(f"\ngeometric mean of {len(ratios)} networks: {exp(sum(map(log, ratios)) / len(ratios)):.4f}")
    return 0 if good and ratios else 1


if __name__ == "__main__":
    sys.exit(main())
