"""Comparisons of codes; those of plain numbers are drawn in test_elementwise.py."""

from __future__ import annotations

import numpy as np
import pytest

from aot.testing import Quant
from tests.op._differential import check
from tests.op._one_op import Spec, one_op

EQUALITY = ["EQUAL", "NOT_EQUAL"]
COMPARISONS = [*EQUALITY, "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"]


def version(opcode: str, dtype: str) -> int:
    """Of the operator, as converters write it."""
    return 3 if dtype == "int16" and opcode in EQUALITY else 2


@pytest.mark.parametrize("opcode", COMPARISONS)
def test_compared_codes(opcode: str) -> None:
    """Codes of two quantisations, among them equal ones."""
    for a, b in ((Quant(0.05, -3), Quant(0.031, 17)), (Quant(0.05, 4), Quant(0.05, 4))):
        model = one_op(opcode, [Spec((1, 64), "int8", a), Spec((64, 1), "int8", b)], [Spec((64, 64), "bool")], version=2)
        check(model, [np.arange(-32, 32, dtype=np.int8).reshape(1, 64), np.arange(-40, 24, dtype=np.int8).reshape(64, 1)])


@pytest.mark.parametrize("opcode", COMPARISONS)
def test_codes_of_16_bits(opcode: str) -> None:
    """Of two scales: all but EQUAL and NOT_EQUAL compare the codes as they are, as the reference does."""
    specs = [Spec((1, 64), "int16", Quant(0.05, 0)), Spec((64, 1), "int16", Quant(0.01, 0))]
    model = one_op(opcode, specs, [Spec((64, 64), "bool")], version=version(opcode, "int16"))
    x, y = np.arange(-32, 32, dtype=np.int16).reshape(1, 64), np.arange(-40, 24, dtype=np.int16).reshape(64, 1)
    (found,) = check(model, [x, y])
    assert (getattr(np, opcode.lower())(x, y) == found[0]).all() == (opcode not in EQUALITY)


@pytest.mark.parametrize("opcode", ["LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_constant_of_scale_0(opcode: str, side: int) -> None:
    """Codes of 16 bits against zeros whose scale is 0."""
    x, zeros = Spec((2, 4), "int16", Quant(0.05, 0)), Spec((2, 4), "int16", Quant(0.0, 0), np.zeros((2, 4), np.int16))
    model = one_op(opcode, [zeros, x] if side == 0 else [x, zeros], [Spec((2, 4), "bool")], version=2)
    check(model, [np.arange(-4, 4, dtype=np.int16).reshape(2, 4)])
