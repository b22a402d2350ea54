"""Elementary functions for float32 operators: their C text and their meaning.  Integer models never use them.

Functions that round differently from one C library to the next have their own C (`crt/include/aot/math.h`, `math_float.h`), bit
exact with the library that the reference uses; see docs/adr/0013.  The others are exact in every C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from aot.ir.op import Array
from aot.numerics import eigen
from aot.numerics.fdlibm import atan2f, erfcf, expm1f, tanhf
from aot.numerics.glibc import cosf, expf, logf, powf, sinf
from aot.tir.intrin import Intrin

Float = Callable[[float], float]


def _float32(func: Float) -> Callable[[float], float]:
    def meaning(x: float) -> float:
        return float(np.float32(_guarded(func, x)))

    return meaning


def _guarded(func: Float, x: float) -> float:
    """The result of C where Python raises."""
    try:
        return func(x)
    except OverflowError:
        return math.inf
    except ValueError:
        return -math.inf if x == 0 else math.nan


def round_half_even(x: float) -> float:
    """The nearest whole number, halves to even; a zero has the sign of x."""
    return math.copysign(round(x), x) if math.isfinite(x) else x


def _finite(func: Callable[[float], int]) -> Float:
    """Apply `func`; a zero has the sign of x, as in C."""
    return lambda x: math.copysign(func(x), x) if math.isfinite(x) else x


LIBRARY: dict[str, Float] = {
    "sqrt": math.sqrt,
    "floor": _finite(math.floor),
    "ceil": _finite(math.ceil),
    "rint": round_half_even,
}
"""Functions of the C library that are exact or correctly rounded everywhere: C name without the f -> meaning."""

IN_FLOAT32: dict[str, Callable[[Array], Array]] = {
    "exp": expf,
    "log": logf,
    "sin": sinf,
    "cos": cosf,
    "erfc": erfcf,
    "expm1": expm1f,
    "tanh": tanhf,
    "eigen_erfc": eigen.erfcf,
    "eigen_scalar_erfc": eigen.scalar_erfcf,
    "eigen_tanh": eigen.tanhf,
    "eigen_logistic": eigen.logisticf,
    "eigen_scalar_logistic": eigen.scalar_logisticf,
}
"""Functions with our own bit-exact implementation."""

_HEADERS = {
    "math.h": ("exp", "log", "sin", "cos"),
    "math_float.h": ("expm1", "tanh", "eigen_erfc", "eigen_scalar_erfc", "eigen_tanh", "eigen_logistic", "eigen_scalar_logistic"),
}
"""Header of crt -> the functions that it declares as aot_<name>f; erfc is used for tables only."""


def _one(func: Callable[[Array], Array]) -> Float:
    return lambda x: float(func(np.array([x], np.float32))[0])


def _unary(c: str, meaning: Float, header: str) -> Intrin:
    return Intrin(c, ("float32",), "float32", f"{c}({{0}})", meaning, header=header)


MATH: dict[str, Intrin] = {name: _unary(f"{name}f", _float32(func), "aot/libm.h") for name, func in LIBRARY.items()} | {
    name: _unary(f"aot_{name}f", _one(IN_FLOAT32[name]), f"aot/{header}") for header, names in _HEADERS.items() for name in names
}
"""Intrinsics by name."""


def apply(name: str, x: Array) -> Array:
    """Apply one of these functions to an array, as float32."""
    if name in IN_FLOAT32:
        return IN_FLOAT32[name](x)
    func = LIBRARY[name]
    results = np.array([_guarded(func, float(v)) for v in x.astype(np.float64).ravel()], np.float64)
    return np.asarray(results.astype(np.float32).reshape(x.shape))


FMOD = Intrin(
    "fmodf",
    ("float32", "float32"),
    "float32",
    "fmodf({0}, {1})",
    lambda a, b: float(np.fmod(np.float32(a), np.float32(b))),
    header="aot/libm.h",
)


def _two(name: str, meaning: Callable[[Array, Array], Array], header: str) -> Intrin:
    def py(a: float, b: float) -> float:
        return float(meaning(np.array([a], np.float32), np.array([b], np.float32))[0])

    return Intrin(name, ("float32", "float32"), "float32", f"{name}({{0}}, {{1}})", py, header=header)


SQRT_DOUBLE = Intrin("sqrt", ("float64",), "float64", "sqrt({0})", lambda x: _guarded(math.sqrt, x), header="aot/libm.h")


def pow_double(x: float, y: float) -> float:
    """C's pow."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:  # 0 to a negative power, a negative number to a fractional one
        return math.copysign(math.inf, x) if x == 0 and y % 2 == 1 else math.inf if x == 0 else math.nan


POW_DOUBLE = Intrin("pow", ("float64", "float64"), "float64", "pow({0}, {1})", pow_double, header="aot/libm.h")
EXP_DOUBLE = Intrin("exp", ("float64",), "float64", "exp({0})", lambda x: _guarded(math.exp, x), header="aot/libm.h")
LOG1P_DOUBLE = Intrin("log1p", ("float64",), "float64", "log1p({0})", lambda x: _guarded(math.log1p, x), header="aot/libm.h")
LOG_DOUBLE = Intrin("log", ("float64",), "float64", "log({0})", lambda x: _guarded(math.log, x), header="aot/libm.h")

POW = _two("aot_powf", powf, "aot/math.h")
ATAN2 = _two("aot_atan2f", atan2f, "aot/math_float.h")
