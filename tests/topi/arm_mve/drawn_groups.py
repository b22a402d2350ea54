"""Drawn groups of one operator for the kernels of vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from aot.relay.expr import Expr, Function, Var
from aot.relay.interpreter import evaluate
from tests.topi.drawn import Case
from tests.topi.groups import data_of, lowered
from tests.topi.runs import FULL

Draw = Callable[[str, np.random.Generator], tuple[tuple[Var, ...], Expr]]
"""Variables and body of a group of one operator."""
DRAWN = 2000 if FULL else 30


def cases(draw: Draw, kernel: str, kind: str, *, seed: int) -> Iterator[Case]:
    """Endless groups of one operator that the kernel takes."""
    rng = np.random.default_rng(seed)
    for n in range(1 << 30):
        params, body = draw(kind, rng)
        low = lowered(kernel, params, body, cpu="cortex-m55")
        if low is None:
            continue
        inputs = [data_of(v, seed + n + i) for i, v in enumerate(params)]
        yield Case(f"{kernel} {kind} {seed} {n}", low, inputs, evaluate(Function(params, body), inputs))
