"""Drawn chains of small int8 models: windows by their own hops, whole inputs, state of their own."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.frontend.chain import Chain, Stage
from aot.testing.text_model import text_model

Array = np.ndarray[Any, Any]
QUANT = "scale=0.05 zero_point=3"


def _numbers(rng: np.random.Generator, low: int, high: int, size: int) -> str:
    return ",".join(map(str, rng.integers(low, high, size).tolist()))


def window_model(rng: np.random.Generator, rows: int, channels: int, *, hop: int) -> tuple[bytes, int]:
    """Convolutions over [1, rows, 1, channels], perhaps a mean over time; the model and the elements of its result."""
    text, x, now, depth = [f"in x int8[1,{rows},1,{channels}] {QUANT}"], "x", rows, channels
    for layer in range(int(rng.integers(1, 3))):
        kernel, out = int(rng.integers(1, min(4, now) + 1)), int(rng.integers(2, 6))
        same = bool(rng.integers(2))
        padding = "SAME" if same else "VALID"
        stride = 2 if layer == 0 and hop % 2 == 0 and now % 2 == 0 and rng.integers(2) else 1
        now = -(-now // stride) if same else (now - kernel) // stride + 1
        w, b = _numbers(rng, -90, 91, out * kernel * depth), _numbers(rng, -200, 200, out)
        text += [
            f"const w{layer} int8[{out},{kernel},1,{depth}] data={w} scale=0.01",
            f"const b{layer} int32[{out}] data={b} scale=0.0005",
            f"tensor c{layer} int8[1,{now},1,{out}] {QUANT}",
            f"CONV_2D {x} w{layer} b{layer} -> c{layer} version=3 stride_w=1 stride_h={stride} padding={padding}",
        ]
        x, depth = f"c{layer}", out
    if rng.integers(2):
        text += [
            "const over int32[2] data=1,2",
            f"tensor m int8[1,{depth}] {QUANT}",
            f"MEAN {x} over -> m version=2 keep_dims=0",
        ]
        x, now = "m", 1
    return text_model("\n".join([*text, f"out {x}"])), now * depth


def whole_model(rng: np.random.Generator, size: int) -> tuple[bytes, int]:
    """A fully connected layer, perhaps with the largest of now and the run before."""
    out = int(rng.integers(2, 6))
    w = _numbers(rng, -90, 91, out * size)
    text = [
        f"in x int8[1,{size}] {QUANT}",
        f"const w int8[{out},{size}] data={w} scale=0.01",
        f"tensor y int8[1,{out}] {QUANT}",
        "FULLY_CONNECTED x w - -> y version=4",
    ]
    graphs: list[str] = []
    if rng.integers(2):
        text += [
            "tensor v resource[]",
            "CALL_ONCE -> init_subgraph_index=1",
            "VAR_HANDLE -> v shared_name=past",
            f"tensor old int8[1,{out}] {QUANT}",
            "READ_VARIABLE v -> old",
            "ASSIGN_VARIABLE v y ->",
            f"out z int8[1,{out}] {QUANT}",
            "MAXIMUM y old -> z version=2",
        ]
        graphs = [
            "graph initialize",
            "tensor v resource[]",
            f"const first int8[1,{out}] data={_numbers(rng, -128, 128, out)} {QUANT}",
            "VAR_HANDLE -> v shared_name=past",
            "ASSIGN_VARIABLE v first ->",
        ]
    else:
        text.append("out y")
    return text_model("\n".join([*text, *graphs])), out


def chain_net(seed: int) -> Chain:
    """Two to four stages; the same one for the same seed."""
    rng = np.random.default_rng(seed)
    stages: list[Stage] = []
    size = int(rng.integers(1, 7))
    for number in range(int(rng.integers(2, 5))):
        slide = None
        if rng.integers(3):
            rows = size if number and rng.integers(2) else 1  # of a result, each one element; or the result is one row
            slide = max(1, rows * int(rng.integers(1, 4)) if number else int(rng.integers(1, 5)))
            window = slide + int(rng.integers(0, 12))
            model, size = window_model(rng, window, size // rows, hop=slide)
        else:
            model, size = whole_model(rng, size)
        stages.append(Stage(f"s{number}", model, slide))
    return Chain(tuple(stages), rate=1000.0)
