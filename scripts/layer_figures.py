"""Single layers for scripts/doc_figures.py: the cost of the kernels of two families, many in one image (aot/tune/measure.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

BATCH = 8
"""Layers per image."""


@dataclass(frozen=True, slots=True)
class Shape:
    """An int8 layer with SAME padding, a bias and RELU; `kind` is a method of aot.testing.net.Net; weights have a normal
    distribution, each channel its own scale.
    """

    kind: str
    data: tuple[int, ...]
    weight: tuple[int, ...]
    stride: int = 1

    @property
    def text(self) -> str:
        if self.kind == "dense":
            return f"fully connected, {self.weight[1]} to {self.weight[0]}"
        side = f"{self.data[0]}x{self.data[1]}"
        window = f"{self.weight[1]}x{self.weight[2]}"
        if self.kind == "depthwise":
            return f"depthwise {window}, {side}x{self.data[2]}"
        return f"{window}, {self.data[2]} to {self.weight[0]}, {side} pixels" + f", stride {self.stride}" * (self.stride > 1)

    @property
    def macs(self) -> int:
        """MACs, including those of padding."""
        if self.kind == "dense":
            return prod(self.weight)
        return prod(-(-n // self.stride) for n in self.data[:2]) * prod(self.weight)

    def model(self) -> bytes:
        from aot.testing.net import Net

        net = Net(np.random.default_rng(1).standard_normal((2, *self.data)), seed=1)
        window: dict[str, Any] = {} if self.kind == "dense" else {"strides": (self.stride, self.stride)}
        net.random(self.kind, net.input, self.weight, activation="RELU", **window)
        return net.build()


def conv(side: tuple[int, int], depth: int, channels: int, window: tuple[int, int] = (1, 1), stride: int = 1) -> Shape:
    return Shape("conv2d", (*side, depth), (channels, *window, depth), stride)


def depthwise(side: tuple[int, int], channels: int, window: tuple[int, int] = (3, 3)) -> Shape:
    return Shape("depthwise", (*side, channels), (1, *window, channels))


def dense(depth: int, channels: int) -> Shape:
    return Shape("dense", (depth,), (channels, depth))


def per_mac(shapes: Sequence[Shape], board_name: str, families: Sequence[str]) -> list[tuple[str, ...]]:
    """Rows of a table: a layer, and for each family the fewest instructions per multiply-accumulate, with the kernel's name.

    Exits with an error if a kernel's output differs from its meaning.
    """
    from aot.micro.board import load_board
    from aot.target.target import find_target
    from aot.tune.measure import measure

    board = load_board(board_name)
    target = find_target(board.cpu)
    inputs = [_input(shape, target, families) for shape in shapes]
    counts: dict[tuple[str, str], int] = {}
    for first in range(0, len(inputs), BATCH):
        for result in measure(inputs[first : first + BATCH], board, target):
            if result.wrong or result.count is None:
                raise SystemExit(f"{result.workload}, {result.kernel}: {result.wrong or result.problem}")
            counts[result.workload, result.kernel] = result.count
    return [(shape.text, *(_best(counts, shape, family) for family in families)) for shape in shapes]


def _input(shape: Shape, target: Any, families: Sequence[str]) -> Any:
    """All kernels of the families that accept the layer, including those without an estimate."""
    from aot.driver.build import fused_module
    from aot.driver.front import front
    from aot.driver.options import Options
    from aot.driver.plugins import load_installed
    from aot.executor.candidates import LoweringCache, all_candidates
    from aot.relay.expr import Call, Function, post_order
    from aot.tune.measure import MeasureInput

    load_installed()
    options = Options()
    main = fused_module(
        front(shape.model(), target, name="layer", options=options).main, target, name="layer", options=options
    ).main
    (func,) = (e.op for e in post_order(main.body) if isinstance(e, Call) and isinstance(e.op, Function))
    kernels = (c.kernel for c in all_candidates(func, target, "layer", LoweringCache()))
    return MeasureInput(shape.text, func, tuple(k for k in kernels if k.split(".")[0] in families))


def _best(counts: dict[tuple[str, str], int], shape: Shape, family: str) -> str:
    counted = [(n, kernel) for (text, kernel), n in counts.items() if text == shape.text and kernel.split(".")[0] == family]
    if not counted:
        return "–"
    count, kernel = min(counted)
    return f"{count / shape.macs:.2f} (`{kernel.partition('(')[0].partition('.')[2]}`)"


def m55_layers() -> Iterator[Shape]:
    for depth, channels in ((8, 16), (16, 32), (32, 32), (64, 64), (128, 128)):
        yield conv((12, 12), depth, channels)
    yield conv((48, 48), 3, 8, (3, 3), 2)
    yield conv((24, 24), 3, 16, (3, 3))
    for depth, side in ((16, 24), (32, 12), (64, 8)):
        yield conv((side, side), depth, depth, (3, 3))
    for size, channels in (((48, 48), 8), ((24, 24), 32), ((12, 12), 64), ((25, 5), 64)):
        yield depthwise(size, channels)
    yield depthwise((15, 1), 128, (10, 1))
    yield dense(640, 128)
    yield dense(128, 128)


def v6m_layers() -> Iterator[Shape]:
    yield conv((25, 5), 64, 64)
    yield conv((49, 10), 1, 64, (10, 4), 2)
    yield conv((32, 32), 16, 16, (3, 3))
    yield conv((8, 8), 64, 64, (3, 3))
    yield depthwise((25, 5), 64)
    yield dense(640, 128)
    yield dense(128, 128)


def m3_layers() -> Iterator[Shape]:
    yield conv((25, 5), 64, 64)
    yield depthwise((25, 5), 64)
    yield depthwise((32, 10), 32, (1, 5))
    yield depthwise((5, 32), 32, (1, 10))
    yield dense(640, 128)
    yield dense(128, 128)


SETS: dict[str, tuple[str, str, Callable[[], Iterator[Shape]], tuple[str, str]]] = {
    "layers-m55": ("Cortex-M55", "mps3-an547", m55_layers, ("arm_dsp", "arm_mve")),
    "layers-v6m": ("Cortex-M0+", "mps2-an385-v6m", v6m_layers, ("generic", "arm_v6m")),
    "layers-m3": ("Cortex-M3", "mps2-an385", m3_layers, ("generic", "arm_dsp")),
}
"""Of each table the core's name, a board, the layers, and the families of kernels."""


def layer_table(name: str) -> tuple[list[str], list[tuple[str, ...]]]:
    """Head and rows of a table of SETS."""
    core, board, shapes, families = SETS[name]
    return [f"layer on a {core}", *(f"`{f}`" for f in families)], per_mac(list(shapes()), board, families)
