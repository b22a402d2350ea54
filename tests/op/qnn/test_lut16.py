"""Functions of one tensor of int16 codes, by tables of 513 entries and by fixed point."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.ir.op import Array
from aot.numerics.elementary import IN_FLOAT32
from aot.testing import Quant
from tests.op._differential import FAST, SLOW, check, scales
from tests.op._one_op import Spec, one_op

SIXTEEN: list[tuple[str, dict[str, Any]]] = [
    ("LOGISTIC", {}),
    ("TANH", {}),
    ("EXP", {}),
    ("LOG", {}),
    ("ABS", {}),
    ("GELU", {"approximate": True}),
    ("RSQRT", {}),
    ("RELU", {}),
    ("RELU6", {}),
    ("LEAKY_RELU", {"alpha": 0.3}),
]
VERSION_16 = {"EXP": 2, "LOG": 2, "GELU": 2, "LEAKY_RELU": 2, "RELU6": 3}


def sixteen_case(opcode: str, x_scale: float, y_scale: float, data: Any, **options: Any) -> None:
    """LOGISTIC and TANH have a fixed result; RSQRT takes positive codes."""
    y_scale = 2.0**-15 if opcode in ("LOGISTIC", "TANH") else float(np.float32(y_scale / 256))
    x_scale = min(x_scale, 0.5) if opcode == "EXP" else x_scale  # e^64 is finite in float32, e^128 is not
    if opcode == "RSQRT":
        data = np.clip(np.abs(data.astype(np.int32)), 1, 32767).astype(np.int16)
    x, y = Quant(float(np.float32(x_scale / 256)), 0), Quant(y_scale, 0)
    model = one_op(
        opcode, [Spec(data.shape, "int16", x)], [Spec(data.shape, "int16", y)], version=VERSION_16.get(opcode, 3), **options
    )
    check(model, [data])


@pytest.fixture
def _libm_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference calls the C library's tanhf and erfcf, which glibc rounds correctly from 2.41 on; ours are those of before.

    With this machine's functions in place of ours the tables are the same to the bit everywhere.
    """
    name = ctypes.util.find_library("m")
    if name is not None:
        library = ctypes.CDLL(name)
        for func in ("expm1", "tanh", "erfc"):
            monkeypatch.setitem(IN_FLOAT32, func, _each(library[f"{func}f"]))


def _each(func: Any) -> Callable[[Array], Array]:
    func.restype, func.argtypes = ctypes.c_float, [ctypes.c_float]
    return lambda x: np.array([func(float(v)) for v in x.ravel()], np.float32).reshape(x.shape)


def run_sixteen(opcode: str, options: dict[str, Any], examples: Any) -> None:
    @given(scales(), scales(), st.integers(0, 1000))
    @examples
    def test(x: float, y: float, seed: int) -> None:
        data = np.random.default_rng(seed).integers(-32768, 32767, (1, 400), np.int16, endpoint=True)
        data[0, :4] = -32768, 32767, 0, -1
        sixteen_case(opcode, x, y, data, **options)

    test()


@pytest.mark.usefixtures("_libm_of_this_machine")
@pytest.mark.parametrize(("opcode", "options"), SIXTEEN)
def test_random(opcode: str, options: dict[str, Any]) -> None:
    run_sixteen(opcode, options, FAST)


@pytest.mark.usefixtures("_libm_of_this_machine")
def test_a_table_by_tanh() -> None:
    data = np.arange(-32768, 32768, 11, dtype=np.int16).reshape(1, -1)
    sixteen_case("GELU", 3 / 256, 3 / 256, data, approximate=True)


@pytest.mark.slow
@pytest.mark.usefixtures("_libm_of_this_machine")
@pytest.mark.parametrize(("opcode", "options"), [*SIXTEEN, ("GELU", {"approximate": False})])
def test_random_often(opcode: str, options: dict[str, Any]) -> None:
    run_sixteen(opcode, options, SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [2.0**-4, 2.0**-3, 0.05, 0.4])
def test_every_code(opcode: str, scale: float) -> None:
    sixteen_case(opcode, scale, 1.0, np.arange(-32768, 32768, dtype=np.int16).reshape(1, -1))
