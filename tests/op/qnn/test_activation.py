"""Functions of one tensor: every 8-bit code, many 16-bit codes, floats."""

from __future__ import annotations

import ctypes
import ctypes.util
import platform
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.ir.op import Array
from aot.numerics.elementary import IN_FLOAT32
from aot.relay.interpreter import evaluate
from aot.testing import Quant
from tests.op._differential import EVERY_CODE, FAST, SLOW, check, check_lowering, check_tflm, main_of, scales
from tests.op._one_op import Spec, one_op

TABLES: list[tuple[str, dict[str, Any]]] = [
    ("GELU", {"approximate": True}),
    ("GELU", {"approximate": False}),
    ("EXP", {}),
    ("LOG", {}),
    ("HARD_SWISH", {}),
    ("ABS", {}),
    ("RELU_0_TO_1", {}),
    ("RELU6", {}),
    ("LEAKY_RELU", {"alpha": 0.3}),
    ("LEAKY_RELU", {"alpha": 1.7}),
    ("RSQRT", {}),
    ("SQRT", {}),
]
VERSION = {"SQRT": 1, "HARD_SWISH": 1, "RELU_0_TO_1": 1}
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
LEGACY = ["LOGISTIC", "TANH", "RELU", "RELU6", "HARD_SWISH", "LEAKY_RELU"]
FLOATS = ["ABS", "NEG", "SQUARE", "FLOOR", "SQRT", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU"]
ELEMENTARY = ["EXP", "LOG", "SIN", "COS", "TANH", "LOGISTIC", "RSQRT", "GELU", "HARD_SWISH", "LOG_SOFTMAX", "SOFTMAX"]
ELEMENTARY += ["L2_NORMALIZATION"]


def bytes_case(opcode: str, x: Quant, y: Quant, **options: Any) -> None:
    """All codes of int8; RSQRT and SQRT take none below their zero points."""
    x = Quant(x.scale, -128) if opcode in ("RSQRT", "SQRT") else x
    if opcode == "EXP":  # beyond int32 the reference's conversion to an integer is undefined
        x = Quant(float(np.float32(min(x.scale, 0.05))), x.zero_point)
    scale = max(y.scale, x.scale / 100) if opcode == "HARD_SWISH" else y.scale
    out = Spec((1, 256), "int8", Quant(float(np.float32(scale)), y.zero_point))
    check(one_op(opcode, [Spec((1, 256), "int8", x)], [out], version=VERSION.get(opcode, 2), **options), [EVERY_CODE])


@pytest.mark.parametrize(("x", "y"), [(0.001, 1.0), (1e-7, 1e-9), (1e-7, 0.001), (2.0**-9, 1.0), (2.0**-8, 1.0), (1e-9, 1.0)])
def test_hard_swish_of_tiny_steps(x: float, y: float) -> None:
    """Shifts of 16 bits and more, and the largest below."""
    bytes_case("HARD_SWISH", Quant(float(np.float32(x)), 3), Quant(float(np.float32(y)), -2))


QUANTS = st.builds(Quant, scales(), st.one_of(st.sampled_from([-128, 127, 0]), st.integers(-128, 127)))


def run_bytes(opcode: str, options: dict[str, Any], examples: Any) -> None:
    @given(QUANTS, QUANTS)
    @examples
    def test(x: Quant, y: Quant) -> None:
        bytes_case(opcode, x, y, **options)

    test()


@pytest.mark.parametrize(("opcode", "options"), TABLES)
def test_bytes(opcode: str, options: dict[str, Any]) -> None:
    run_bytes(opcode, options, FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("opcode", "options"), TABLES)
def test_bytes_often(opcode: str, options: dict[str, Any]) -> None:
    run_bytes(opcode, options, SLOW)


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
def test_sixteen_bits(opcode: str, options: dict[str, Any]) -> None:
    run_sixteen(opcode, options, FAST)


@pytest.mark.usefixtures("_libm_of_this_machine")
def test_a_table_by_tanh() -> None:
    data = np.arange(-32768, 32768, 11, dtype=np.int16).reshape(1, -1)
    sixteen_case("GELU", 3 / 256, 3 / 256, data, approximate=True)


@pytest.mark.slow
@pytest.mark.usefixtures("_libm_of_this_machine")
@pytest.mark.parametrize(("opcode", "options"), [*SIXTEEN, ("GELU", {"approximate": False})])
def test_sixteen_bits_often(opcode: str, options: dict[str, Any]) -> None:
    run_sixteen(opcode, options, SLOW)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", ["LOGISTIC", "TANH"])
@pytest.mark.parametrize("scale", [2.0**-4, 2.0**-3, 0.05, 0.4])
def test_every_code_of_sixteen_bits(opcode: str, scale: float) -> None:
    sixteen_case(opcode, scale, 1.0, np.arange(-32768, 32768, dtype=np.int16).reshape(1, -1))


@pytest.mark.parametrize("opcode", LEGACY)
def test_legacy_codes(opcode: str) -> None:
    data = np.arange(256, dtype=np.uint8).reshape(1, 256)
    y = {"LOGISTIC": Quant(1 / 256, 0), "TANH": Quant(1 / 128, 128)}.get(opcode, Quant(0.05, 20))
    options = {"alpha": 0.2} if opcode == "LEAKY_RELU" else {}
    model = one_op(opcode, [Spec((1, 256), "uint8", Quant(0.04, 100))], [Spec((1, 256), "uint8", y)], **options)
    check(model, [data], host=True)


@pytest.mark.parametrize("dtype", ["int8", "int16"])
def test_negative_of_codes(dtype: str) -> None:
    """The reference negates the codes, whatever they mean, and the lowest stays as it is."""
    data = np.array([[np.iinfo(dtype).min, np.iinfo(dtype).max, 0, 5, -3]], dtype)
    model = one_op("NEG", [Spec((1, 5), dtype, Quant(0.5, 0))], [Spec((1, 5), dtype, Quant(0.25, 0))])
    check(model, [data], host=dtype == "int16")


@pytest.mark.parametrize("opcode", FLOATS)
def test_floats(opcode: str) -> None:
    data = np.linspace(-9, 9, 73, dtype=np.float32).reshape(1, 73)
    data = np.abs(data) if opcode == "SQRT" else data
    options = {"alpha": 0.3} if opcode == "LEAKY_RELU" else {}
    check(one_op(opcode, [Spec((1, 73), "float32")], [Spec((1, 73), "float32")], **options), [data], host=True)


@pytest.mark.parametrize(
    ("opcode", "meaning"),
    [("CEIL", np.ceil), ("ROUND", np.rint), ("ELU", lambda x: np.where(x < 0, np.expm1(x), x))],
)
def test_floats_without_reference(opcode: str, meaning: Any) -> None:
    """Operators that the reference resolver lacks."""
    data = np.linspace(-4, 4, 65, dtype=np.float32).reshape(1, 65)
    func = main_of(one_op(opcode, [Spec((1, 65), "float32")], [Spec((1, 65), "float32")]))
    found = evaluate(func, [data])
    np.testing.assert_allclose(found[0], meaning(data.astype(np.float64)), rtol=1e-6)
    check_lowering(func, [[data]], [found], host=False)


REFERENCE_LIBM = platform.libc_ver()[0] == "glibc" and (2, 28) <= tuple(map(int, platform.libc_ver()[1].split("."))) < (2, 41)
"""Whether the reference runs with the C library whose bits we give."""


def within_an_ulp(found: Sequence[Array], wanted: Sequence[Array], message: str) -> None:
    """With another C library the reference itself differs in the last bit."""
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-6, err_msg=message)


@pytest.mark.parametrize("opcode", ELEMENTARY)
def test_elementary_functions(opcode: str) -> None:
    """Every bit of the reference's; for numbers from 1e-30 to 1e30, too."""
    small, large = np.linspace(-9, 9, 72, dtype=np.float32), np.geomspace(1e-30, 1e30, 36, dtype=np.float32)
    data = np.concatenate([small, large, -large]).reshape(6, 24)
    data = np.abs(data) + np.float32(1e-30) if opcode in ("LOG", "RSQRT") else data
    data = np.clip(data, -80, 80) if opcode in ("SOFTMAX", "L2_NORMALIZATION") else data
    for options in [{"approximate": True}, {"approximate": False}] if opcode == "GELU" else [{}]:
        options = {"beta": 1.0} if opcode == "SOFTMAX" else options
        model = one_op(opcode, [Spec(data.shape, "float32")], [Spec(data.shape, "float32")], **options)
        check(model, [data], host=opcode == "LOGISTIC", agree=None if REFERENCE_LIBM else within_an_ulp)


SLOPES = st.sampled_from([(1, 1, 6), (4, 1, 6), (6,), (4, 5, 6)])


@given(QUANTS, QUANTS, QUANTS, st.sampled_from(["int8", "int16"]), SLOPES, st.integers(0, 99))
@FAST
def test_prelu(x: Quant, alpha: Quant, y: Quant, dtype: str, shape: tuple[int, ...], seed: int) -> None:
    if dtype == "int16":
        x, y = (Quant(float(np.float32(q.scale / 256)), 0) for q in (x, y))
        alpha = Quant(alpha.scale, 0)
    y = Quant(max(y.scale, x.scale / 64, x.scale * alpha.scale), y.zero_point)
    slopes = np.random.default_rng(seed).integers(-128, 127, shape, np.int8, endpoint=True)
    inputs = [Spec((4, 5, 6), dtype, x), Spec(shape, "int8", alpha, slopes)]
    check(one_op("PRELU", inputs, [Spec((4, 5, 6), dtype, y)]))


@given(scales(), st.integers(1, 3), st.integers(1, 40), st.sampled_from([1.0, 0.7]), st.integers(0, 99))
@FAST
def test_softmax_of_sixteen_bits(scale: float, rows: int, depth: int, beta: float, seed: int) -> None:
    data = np.random.default_rng(seed).integers(-32768, 32767, (rows, depth), np.int16, endpoint=True)
    x, y = Quant(float(np.float32(scale / 512)), 0), Quant(2.0**-15, 0)
    model = one_op("SOFTMAX", [Spec(data.shape, "int16", x)], [Spec(data.shape, "int16", y)], version=3, beta=beta)
    check(model, [data], [np.full_like(data, 5)], host=seed == 0)
    if seed % 4 == 0:
        check_tflm(model, [data])
