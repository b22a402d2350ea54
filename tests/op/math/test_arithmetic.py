"""Operators of two tensors with broadcasting: codes of 8 and 16 bits, plain numbers, comparisons.

Products of codes: tests/op/qnn/arithmetic/test_multiply.py.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.testing import Quant
from tests.op._differential import EVERY_PAIR, FAST, SLOW, check, check_drawn, main_of, scales
from tests.op._one_op import Spec, draw_array, one_op
from tests.op.math.test_compare import COMPARISONS

SHAPES = st.sampled_from(
    [((2, 3), (2, 3)), ((4, 1, 3), (5, 1)), ((1,), (2, 3, 2, 2)), ((3, 2), ()), ((2, 1, 2), (2, 3, 1)), ((7,), (7,))]
)
ACTIVATIONS = st.sampled_from(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
VERSION = {"ADD": 4, "SUB": 5, "MUL": 5}
CODES = ["ADD", "SUB"]
FLOATS = ["ADD", "SUB", "MUL", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"]
INTEGERS = ["ADD", "SUB", "MUL", "DIV", "FLOOR_DIV", "FLOOR_MOD", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"]


def quant(dtype: str) -> st.SearchStrategy[Quant]:
    """Parameters for codes of a type."""
    if dtype == "int16":
        return st.builds(lambda s: Quant(float(np.float32(s / 256)), 0), scales())
    low, high = (-128, 127) if dtype == "int8" else (0, 255)
    return st.builds(Quant, scales(), st.one_of(st.sampled_from([low, high]), st.integers(low, high)))


@st.composite
def codes(draw: st.DrawFn, opcode: str) -> bytes:
    """ADD, SUB or MUL of codes; the result's scale is never too small."""
    dtype = draw(st.sampled_from(["int8", "int16", "uint8"]))
    a, b, y = draw(quant(dtype)), draw(quant(dtype)), draw(quant(dtype))
    largest = a.scale * b.scale if opcode == "MUL" else max(a.scale, b.scale)
    y = Quant(float(np.float32(max(y.scale, largest / 50))), y.zero_point)
    shapes = draw(SHAPES)
    options: dict[str, Any] = {"fused_activation_function": draw(ACTIVATIONS)}
    if opcode != "MUL":
        options["pot_scale_int16"] = False
    out = Spec(tuple(np.broadcast_shapes(*shapes)), dtype, y)
    return one_op(opcode, [Spec(shapes[0], dtype, a), Spec(shapes[1], dtype, b)], [out], version=VERSION[opcode], **options)


@pytest.mark.parametrize("opcode", CODES)
def test_codes(opcode: str) -> None:
    check_drawn(codes(opcode), FAST)


@pytest.mark.slow
@pytest.mark.parametrize("opcode", CODES)
def test_codes_often(opcode: str) -> None:
    check_drawn(codes(opcode), SLOW)


def every_pair(opcode: str) -> None:
    """All codes of int8 with all, and as C."""
    shape = EVERY_PAIR[0].shape
    a, b, y = Quant(0.05, -3), Quant(0.031, 17), Quant(0.04, 5)
    model = one_op(opcode, [Spec(shape, "int8", a), Spec(shape, "int8", b)], [Spec(shape, "int8", y)], version=2)
    check(model, EVERY_PAIR, host=True)


@pytest.mark.parametrize("opcode", ["SUB", "SQUARED_DIFFERENCE"])
def test_every_pair(opcode: str) -> None:
    every_pair(opcode)


@pytest.mark.parametrize("opcode", ["ADD", "SUB"])
@pytest.mark.parametrize("shifts", [(0, 3), (2, 0), (0, 0)])
def test_power_of_two_scales(opcode: str, shifts: tuple[int, int]) -> None:
    """int16 operands that are shifted only."""
    a, b = (Quant(2.0 ** (-10 - s), 0) for s in shifts)
    inputs, out = [Spec((2, 40), "int16", a), Spec((2, 40), "int16", b)], Spec((2, 40), "int16", Quant(2.0**-10, 0))
    check(one_op(opcode, inputs, [out], version=2, pot_scale_int16=True))


def numbers(opcode: str, dtype: str, shapes: Any, seed: int) -> tuple[bytes, list[Any]]:
    """A model of plain numbers and its operands; no divisor is 0."""
    options = {"fused_activation_function": "RELU6"} if opcode in ("ADD", "SUB", "MUL", "DIV") and seed % 3 == 0 else {}
    a, b = (draw_array(seed + i, s, dtype) for i, s in enumerate(shapes))
    if opcode == "MUL" and dtype != "float32":
        a, b = a // 70000, b // 70000
    if opcode in ("SQUARED_DIFFERENCE", "ADD", "SUB") and dtype != "float32":
        a, b = a // 140000, b // 140000
    if opcode == "POW" and dtype == "float32":
        a = np.abs(a)
    elif opcode == "POW":
        a, b = a % 40 - 20, b % 7
    if opcode == "RIGHT_SHIFT":
        b = np.abs(b) % 40
    if "DIV" in opcode or "MOD" in opcode:
        b = np.where(b == 0, 3, b).astype(b.dtype)
    result = "bool" if opcode in COMPARISONS else dtype
    inputs = [Spec(s, dtype) for s in shapes]
    out = Spec(tuple(np.broadcast_shapes(*shapes)), result)
    model = one_op(opcode, inputs, [out], version=1 if dtype == "bool" or opcode in NEWER else 2, **options)
    return model, [np.asarray(a), np.asarray(b)]


def run_numbers(opcode: str, dtype: str, examples: Any) -> None:
    @given(SHAPES, st.integers(0, 10_000))
    @examples
    def test(shapes: Any, seed: int) -> None:
        model, operands = numbers(opcode, dtype, shapes, seed)
        check(model, operands)

    test()


CASES = [(o, "float32") for o in FLOATS] + [(o, "int32") for o in INTEGERS] + [("MAXIMUM", "int64"), ("FLOOR_MOD", "int64")]
CASES += [(o, d) for o in COMPARISONS for d in ("int32", "float32")] + [("LOGICAL_AND", "bool"), ("LOGICAL_OR", "bool")]
NEWER = ("POW", "BITWISE_XOR", "RIGHT_SHIFT")
CASES += [("POW", "int32"), ("BITWISE_XOR", "int8"), ("RIGHT_SHIFT", "int16")]
BITS = [(o, d) for o in NEWER[1:] for d in ("int8", "uint8", "int16", "int32", "uint32")]


@pytest.mark.parametrize(("opcode", "dtype"), CASES)
def test_numbers(opcode: str, dtype: str) -> None:
    run_numbers(opcode, dtype, FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("opcode", "dtype"), [*CASES, *BITS])
def test_numbers_often(opcode: str, dtype: str) -> None:
    run_numbers(opcode, dtype, SLOW)


@pytest.mark.parametrize("exponent", [3.0, 6.0, -2.0, 1.5])
def test_powers(exponent: float) -> None:
    """The reference takes one whole exponent that is broadcast in products, each rounded."""
    base = np.linspace(0.01, 9, 40, dtype=np.float32).reshape(2, 20)
    for shape in ((), (1, 1), (2, 1)):
        operands = [Spec(base.shape, "float32"), Spec(shape, "float32", None, np.full(shape, exponent, np.float32))]
        check(one_op("POW", operands, [Spec(base.shape, "float32")]), [base], host=exponent == 3 and shape == ())


def test_on_host() -> None:
    for opcode in ("FLOOR_DIV", "FLOOR_MOD", "ADD"):
        for dtype in ("int32", "float32"):
            model, operands = numbers(opcode, dtype, ((2, 3), (2, 3)), 5)
            check(model, operands, host=True)


@pytest.mark.parametrize("name", ["MAXIMUM", "MINIMUM"])
def test_codes_are_compared_whatever_their_scales(name: str) -> None:
    a, b = Spec((3, 3), "int8", Quant(0.5, 3)), Spec((3, 3), "int8", Quant(0.25, 7))
    check(one_op(name, [a, b], [b], version=2))


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(("first", "second"), [((2, 4), (2, 1)), ((1, 4), (2, 4)), ((4,), (2, 4))])
def test_atan2_does_not_broadcast(dtype: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """The reference checks ranks only, and reads as many elements of the second as the first has."""
    with pytest.raises(AotError, match="E1207"):
        main_of(one_op("ATAN2", [Spec(first, dtype), Spec(second, dtype)], [Spec((2, 4), dtype)]))
