"""Functions of the C library for float32 operators: their C text and their meaning. Integer models never use them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aot.ir.op import Array
from aot.op._fdlibm import expm1f, tanhf
from aot.op._fdlibm_erf import erfcf
from aot.tir.intrin import Intrin

Float = Callable[[float], float]


def _float32(func: Float) -> Callable[[float], float]:
    def meaning(x: float) -> float:
        return float(np.float32(_guarded(func, x)))

    return meaning


def _guarded(func: Float, x: float) -> float:
    """C's answers where Python raises."""
    try:
        return func(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return -math.inf if x == 0 else math.nan


def round_half_even(x: float) -> float:
    """The nearest whole number, halves to the even one; a zero has the sign of x."""
    return math.copysign(round(x), x) if math.isfinite(x) else x


def _finite(func: Callable[[float], int]) -> Float:
    """A zero has the sign of x, as in C."""
    return lambda x: math.copysign(func(x), x) if math.isfinite(x) else x


MEANING: dict[str, Float] = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    "expm1": math.expm1,
    "log": math.log,
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erfc": math.erfc,
    "floor": _finite(math.floor),
    "ceil": _finite(math.ceil),
    "rint": round_half_even,
}
"""Name in C (without the f of the float32 version) -> the function, in double precision."""

IN_FLOAT32: dict[str, Callable[[Array], Array]] = {"erfc": erfcf, "expm1": expm1f, "tanh": tanhf}
"""Those whose float32 versions round in the middle: what they give in C libraries."""


def _one(func: Callable[[Array], Array]) -> Float:
    return lambda x: float(func(np.array([x], np.float32))[0])


MATH: dict[str, Intrin] = {
    name: Intrin(
        f"{name}f",
        ("float32",),
        "float32",
        f"{name}f({{0}})",
        _one(IN_FLOAT32[name]) if name in IN_FLOAT32 else _float32(func),
        header="math.h",
    )
    for name, func in MEANING.items()
}


def apply(name: str, x: Array) -> Array:
    """One of these functions on an array, as float32: computed in double and rounded once, but for those `IN_FLOAT32`."""
    if name in IN_FLOAT32:
        return IN_FLOAT32[name](x)
    func = MEANING[name]
    wide = x.astype(np.float64)
    found = np.array([_guarded(func, float(v)) for v in wide.ravel()], np.float64)
    with np.errstate(over="ignore"):
        result: Array = found.astype(np.float32).reshape(x.shape)
    return result


FMOD = Intrin(
    "fmodf",
    ("float32", "float32"),
    "float32",
    "fmodf({0}, {1})",
    lambda a, b: float(np.fmod(np.float32(a), np.float32(b))),
    header="math.h",
)
POW = Intrin(
    "powf",
    ("float32", "float32"),
    "float32",
    "powf({0}, {1})",
    lambda a, b: float(np.power(np.float64(a), np.float64(b)).astype(np.float32)),
    header="math.h",
)
ATAN2 = Intrin(
    "atan2f",
    ("float32", "float32"),
    "float32",
    "atan2f({0}, {1})",
    lambda a, b: float(np.float32(math.atan2(a, b))),
    header="math.h",
)
