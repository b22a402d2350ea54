#!/usr/bin/env python3
"""How the cost of a compilation grows with the network: CPU seconds and memory over operators, channels and pixels.

    python scripts/scaling.py                              chains and DenseNet-like graphs of 10 to 300 operators
    python scripts/scaling.py --sizes 10,5000 --kinds chain
    python scripts/scaling.py --kinds chain --sizes 20 --widths 4,32,256 --sides 4,32    1 K to 100 M multiply-accumulates
    python scripts/scaling.py --svg docs/scaling.svg       draw what was measured

A chain alternates 1x1 and depthwise 3x3 convolutions, with an occasional residual addition; a dense graph concatenates the
last results before every convolution.  All weights differ.  Each compilation runs in its own process, without the cache; a
line is a JSON object, with the plan's size over its lower bound (1: optimal).  The plot shows the first width and side.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
SIZES = (10, 30, 100, 300)
KINDS = ("chain", "dense")
WIDTH, SIDE, BACK = 4, 4, 4
"""Channels, pixels per side, and the number of results that a dense graph's convolutions read."""


def network(kind: str, size: int, *, width: int = WIDTH, side: int = SIDE) -> bytes:
    """A model of `size` operators on `width` channels of `side` by `side` pixels."""
    from aot.testing.builder import ModelBuilder

    rng = np.random.default_rng(size)
    builder = ModelBuilder("scaling")
    image, scale = (1, side, side, width), 0.1
    results = [builder.tensor("input", image, "int8", scale=scale)]
    first, count = results[0], 0
    windows = {"padding": "SAME", "stride_w": 1, "stride_h": 1, "dilation_w_factor": 1, "dilation_h_factor": 1}
    while count < size:
        x, channels = results[-1], width
        if kind == "chain" and count % 5 == 4:
            y = builder.tensor(f"add{count}", image, "int8", scale=scale)
            builder.op("ADD", [results[-1], results[-3]], [y])
        else:
            if kind == "dense" and len(results) > 1 and count < size - 1:
                channels = width * min(BACK, len(results))
                x = builder.tensor(f"concat{count}", (*image[:3], channels), "int8", scale=scale)
                builder.op("CONCATENATION", results[-BACK:], [x], axis=3)
                count += 1
            y = builder.tensor(f"y{count}", image, "int8", scale=scale)
            _layer(
                builder, rng, x, y, depthwise=kind == "chain" and count % 2 == 1, channels=channels, width=width, windows=windows
            )
        results.append(y)
        count += 1
    return builder.build([first], [results[-1]])


def _layer(
    builder: Any, rng: Any, x: int, y: int, *, depthwise: bool, channels: int, width: int, windows: dict[str, object]
) -> None:  # fmt: skip
    shape, axis = ((1, 3, 3, channels), 3) if depthwise else ((width, 1, 1, channels), 0)
    w = builder.tensor(f"w{y}", shape, scale=[0.05] * width, axis=axis, data=rng.integers(-127, 128, shape, np.int8))
    b = builder.tensor(f"b{y}", (width,), "int32", scale=[0.005] * width, data=rng.integers(-99, 99, width, np.int32))
    extra = {"depth_multiplier": 1} if depthwise else {}
    builder.op("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", [x, w, b], [y], **windows, **extra)


def measure(kind: str, size: int, width: int, side: int) -> dict[str, Any]:
    """One compilation in this process: `seconds` of CPU after imports, `mebibytes` at the peak."""
    from aot.driver.build import build
    from aot.driver.plugins import load_installed

    data = network(kind, size, width=width, side=side)
    load_installed()
    start = time.process_time()
    metadata = build(data).metadata
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    workspace = metadata["workspace"]
    plan = workspace["size"] / max(1, workspace["plan_lower_bound"])
    network_of = {"kind": kind, "operators": size, "width": width, "side": side, "macs": metadata["macs"]}
    return {**network_of, "seconds": round(seconds, 2), "mebibytes": round(peak), "plan": round(plan, 3)}


def plot(rows: Sequence[dict[str, Any]]) -> str:
    """Seconds over operators, both logarithmic, with a line of slope one for comparison."""
    x = _scale([row["operators"] for row in rows], 60, 620)
    y = _scale([max(row["seconds"], 0.01) for row in rows], 330, 20)
    parts = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 660 370" font-family="sans-serif" font-size="12">']
    for value in sorted({row["operators"] for row in rows}):
        parts.append(f'<text x="{x(value):.0f}" y="350" text-anchor="middle">{value:,}</text>')
    for kind, colour in zip(KINDS, ("#0969da", "#bf5700"), strict=True):
        points_of_kind = sorted((r for r in rows if r["kind"] == kind), key=lambda r: r["operators"])
        points = [(x(r["operators"]), y(max(r["seconds"], 0.01)), r["seconds"]) for r in points_of_kind]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="4" fill="{colour}"/>' for a, b, _ in points]
        parts += [f'<text x="{a - 6:.1f}" y="{b - 8:.1f}" text-anchor="end" fill="{colour}">{s:g} s</text>' for a, b, s in points]
        parts += [f'<text x="{a + 8:.1f}" y="{b + 4:.1f}" fill="{colour}">{kind}</text>' for a, b, _ in points[-1:]]
    return "\n".join([*parts, '<text x="340" y="367" text-anchor="middle">operators</text>', "</svg>", ""])


def _scale(values: Sequence[float], low: float, high: float) -> Any:
    least, most = math.log(min(values)), math.log(max(values))
    return lambda v: low + (math.log(v) - least) / ((most - least) or 1) * (high - low)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="numbers of operators")
    parser.add_argument("--kinds", default=",".join(KINDS), help="chain, dense")
    parser.add_argument("--widths", default=str(WIDTH), help="channels")
    parser.add_argument("--sides", default=str(SIDE), help="pixels along each side of an image")
    parser.add_argument("--svg", type=Path, help="file to draw to")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.one:
        kind, size, width, side = [*chosen.one.split(":"), str(WIDTH), str(SIDE)][:4]
        print(json.dumps(measure(kind, int(size), int(width), int(side))))
        return 0
    rows = []
    axes = (chosen.widths, chosen.sides, chosen.kinds, chosen.sizes)
    for width, side, kind, size in product(*(a.split(",") for a in axes)):
        one = ":".join((kind, size, width, side))
        done = subprocess.run([sys.executable, __file__, "--one", one], capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        print(done.stdout.strip(), flush=True)
    if chosen.svg:
        first = (rows[0]["width"], rows[0]["side"])
        chosen.svg.write_text(plot([r for r in rows if (r["width"], r["side"]) == first]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
