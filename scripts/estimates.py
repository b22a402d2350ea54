#!/usr/bin/env python3
"""Errors of the kernels' estimates compared with QEMU's counts, over randomly drawn layers.

    python scripts/estimates.py                    300 layers on an emulated Cortex-M4
    python scripts/estimates.py --layers 40 -j 2 --json fits.json

Measures every kernel that accepts a layer and is estimated at no more than three times the best. Prints Markdown: for each
implementation the number of layers, the median and the largest error of its estimates (relative to the counts), the median
of estimate over count, and the layer with the largest error; the last row covers all. The last table is about the kernels
that estimates choose: the error of their own estimates, and their distance from the best.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.tune.drawn_layers import Fit

ROOT = Path(__file__).resolve().parent.parent
BATCH = 6
"""Layers per image."""


def fits(count: int, board_name: str, processes: int, seed: int) -> list[Fit]:
    """Estimate and count of each kernel for each layer."""
    from aot.micro.board import load_board
    from aot.system.executors import local, outcomes
    from aot.target.target import find_target
    from aot.tune.tune import Job, run_job
    from tests.tune.drawn_layers import Fit, drawn_layers, inputs_of

    board = load_board(board_name)
    layers = inputs_of(list(drawn_layers(count, seed=seed)), find_target(board.cpu), seed=seed)
    estimates_by_workload = {given.workload: (estimates, text) for given, estimates, text in layers}
    jobs = [Job(tuple(given for given, _, _ in layers[i : i + BATCH]), board_name) for i in range(0, len(layers), BATCH)]
    results = []
    for number, (_, done) in enumerate(outcomes(run_job, jobs, local(processes)), 1):
        for result in done.checked().results:
            estimates, text = estimates_by_workload[result.workload]
            if result.wrong:
                raise SystemExit(f"{result.kernel} computes wrongly: {result.wrong} ({text})")
            if result.count:
                results.append(Fit(result.kernel, f"{result.workload}: {text}", estimates[result.kernel], result.count))
        print(f"{number} of {len(jobs)} images", file=sys.stderr)
    return sorted(results, key=lambda f: (f.text, f.kernel))


def table(found: Sequence[Fit]) -> str:
    """The distribution of each implementation, the worst first."""
    families: dict[str, list[Fit]] = defaultdict(list)
    for fit in found:
        families[fit.family].append(fit)
    lines = [
        "| implementation | layers | median error | largest | estimate / count | where it is largest |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for name, fits_ in sorted(families.items(), key=lambda p: -max(abs(f.error) for f in p[1])):
        lines.append(_row(name, fits_))
    return "\n".join([*lines, _row("all", found), "", _chosen(found)])


def _row(name: str, found: Sequence[Fit]) -> str:
    worst = max(found, key=lambda f: abs(f.error))
    middle, ratio = median(abs(f.error) for f in found), median(1 + f.error for f in found)
    place = f"{worst.kernel} {worst.text}: {worst.estimate:,} for {worst.count:,}"
    return f"| {name} | {len(found)} | {middle:.1%} | {abs(worst.error):.1%} | {ratio:.3f} | {place} |"


def _chosen(found: Sequence[Fit]) -> str:
    """The cost of the best kernel by estimates compared with the best kernel."""
    layers: dict[str, list[Fit]] = defaultdict(list)
    for fit in found:
        layers[fit.text].append(fit)
    firsts = [min(fits_, key=lambda f: f.estimate) for fits_ in layers.values()]
    losses = [first.count / min(f.count for f in fits_) - 1 for first, fits_ in zip(firsts, layers.values(), strict=True)]
    own = [abs(f.error) for f in firsts]
    right = sum(loss == 0 for loss in losses)
    best = f"it is the best in {right} of {len(losses)}"
    return "\n".join([
        "| of the kernel that estimates choose | median | largest |", "|---|--:|--:|",
        f"| error of its estimate | {median(own):.1%} | {max(own):.1%} |",
        f"| instructions beyond the best ({best}) | {median(losses):.1%} | {max(losses):.1%} |",
    ])  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description="estimates against counts")
    parser.add_argument("--layers", type=int, default=300)
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write estimate and count of each")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    results = fits(arguments.layers, arguments.board, arguments.jobs, arguments.seed)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(f) for f in results], indent=1) + "\n", encoding="utf-8")
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
