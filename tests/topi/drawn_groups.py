"""Drawn groups of one operator, for kernels that take it alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from aot.ir.op import Array
from aot.op.qnn.quantize import QuantizeAttrs
from aot.relay.expr import Call, Expr, Function, Var
from aot.relay.interpreter import evaluate
from tests.topi.drawn import Case
from tests.topi.groups import data_of, lowered

Draw = Callable[[str, np.random.Generator], tuple[tuple[Var, ...], Expr]]
"""Variables and body of a group of one operator."""


FLOATS = np.array([0.0, -0.0, 1.0, -1.5, 3.4028235e38, -3.4028235e38, np.inf, -np.inf], np.float32)
"""Of which sums may be NaN, whose sign differs between cores: such cases are left out."""


def cases(draw: Draw, kernel: str, kind: str, seed: int, *, cpu: str = "cortex-m55") -> Iterator[Case]:
    """Endless groups of one operator that the kernel takes; every fifth one with operands at the ends of their ranges alone."""
    rng = np.random.default_rng(seed)
    for n in range(1 << 30):
        params, body = draw(kind, rng)
        low = lowered(kernel, params, body, cpu=cpu)
        if low is None:
            continue
        inputs = [data_of(v, seed + n + i) for i, v in enumerate(params)]
        if n % 5 == 4 and all(v.type.dtype == "int8" for v in params):
            inputs = [np.where(x < 0, -128, 127).astype(np.int8) for x in inputs]
        if n % 5 < 3 and isinstance(body, Call) and isinstance(body.attrs, QuantizeAttrs) and body.args[0] is params[0]:
            inputs = [_near_codes(inputs[0].shape, body.attrs, np.random.default_rng(seed + n))]
        if n % 5 == 4 and all(v.type.dtype == "float32" for v in params):
            inputs = [rng.choice(FLOATS[: int(rng.choice([6, 8]))], x.shape) for x in inputs]
        with np.errstate(all="ignore"):
            expected = evaluate(Function(params, body), inputs)
        if not any(np.isnan(e.astype(np.float32)).any() for e in expected):
            yield Case(f"{kernel} {kind} {seed} {n}", low, inputs, expected)


def _near_codes(shape: tuple[int, ...], attrs: QuantizeAttrs, rng: np.random.Generator) -> Array:
    """Where codes change, numbers next to those, and what no code is near."""
    codes = rng.integers(attrs.lo - 2, attrs.hi + 3, shape) - attrs.zero_point
    x = ((codes + 0.5) * attrs.scale).astype(np.float32)
    x = np.where(rng.random(shape) < 0.5, np.nextafter(x, rng.choice(np.float32([-np.inf, np.inf]), shape)), x)
    far = rng.choice(np.float32([np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-40, 0.0]), shape)
    return np.where(rng.random(shape) < 0.1, far, x).astype(np.float32)
