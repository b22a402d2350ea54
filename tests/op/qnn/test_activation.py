"""Functions of one tensor of bytes as tables: every code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from aot.testing import Quant
from tests.op._differential import EVERY_CODE, FAST, SLOW, check
from tests.op._one_op import Spec, one_op
from tests.op.qnn._quants import QUANTS

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
LEGACY = ["LOGISTIC", "TANH", "RELU", "RELU6", "HARD_SWISH", "LEAKY_RELU"]


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


@pytest.mark.parametrize("opcode", LEGACY)
def test_legacy_codes(opcode: str) -> None:
    data = np.arange(256, dtype=np.uint8).reshape(1, 256)
    y = {"LOGISTIC": Quant(1 / 256, 0), "TANH": Quant(1 / 128, 128)}.get(opcode, Quant(0.05, 20))
    options = {"alpha": 0.2} if opcode == "LEAKY_RELU" else {}
    model = one_op(opcode, [Spec((1, 256), "uint8", Quant(0.04, 100))], [Spec((1, 256), "uint8", y)], **options)
    check(model, [data], host=True)
