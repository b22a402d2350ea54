"""int16 layers with a bias of int32: LiteRT goes by the option, TFLM by the type or by neither; noise is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from aot.errors import UnsupportedError
from aot.frontend.tflite import from_tflite
from aot.report.measure.reference import litert
from aot.testing import Quant
from tests.op._differential import check, check_tflm
from tests.op._layer_models import INT16_BIAS32, LayerModel
from tests.op._one_op import Spec, const, one_op

LAYERS = ("CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV")


@dataclass(frozen=True, slots=True)
class WithoutOption(LayerModel):
    """As `LayerModel`, but nothing says which type the bias has."""

    def options(self) -> dict[str, Any]:
        options = super(WithoutOption, self).options()
        del options["quantized_bias_type"]
        return options


def layer(op: str, *, said: bool = False) -> bytes:
    if op == "TRANSPOSE_CONV":
        rng, option = np.random.default_rng(1), {"quantized_bias_type": "INT32"} if said else {}
        w = Spec((1, 2, 2, 3), "int8", Quant(0.02, 0), rng.integers(-127, 128, (1, 2, 2, 3), np.int8))
        b = Spec((1,), "int32", Quant(0.0004, 0), np.array([1200], np.int32))
        x, y = Spec((1, 3, 3, 3), "int16", Quant(0.02, 0)), Spec((1, 6, 6, 1), "int16", Quant(0.05, 0))
        steps: dict[str, Any] = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
        return one_op(op, [const((1, 6, 6, 1)), w, x, b], [y], version=5, **steps, **option)
    kind = LayerModel if said else WithoutOption
    shape, channels = ((2, 16), 4) if op == "FULLY_CONNECTED" else ((1, 4, 4, 3), 1 if op == "DEPTHWISE_CONV_2D" else 4)
    return kind(op, INT16_BIAS32, shape, channels, (2, 2)).build()


@pytest.mark.parametrize("op", LAYERS)
def test_litert_goes_by_the_option(op: str) -> None:
    check(layer(op, said=True))
    with pytest.raises(UnsupportedError, match=r"E1228.*LiteRT reads the int32 bias as int64"):
        from_tflite(layer(op), oracle="litert")


@pytest.mark.parametrize("op", ["CONV_2D", "FULLY_CONNECTED"])
def test_tflm_goes_by_the_type(op: str) -> None:
    model = layer(op)
    shape = (2, 16) if op == "FULLY_CONNECTED" else (1, 4, 4, 3)
    check_tflm(model, [np.random.default_rng(2).integers(-32768, 32768, shape).astype(np.int16)])


@pytest.mark.parametrize("op", ["DEPTHWISE_CONV_2D", "TRANSPOSE_CONV"])
def test_tflm_reads_64_bits(op: str) -> None:
    with pytest.raises(UnsupportedError, match=r"E1228.*TFLM reads"):
        from_tflite(layer(op), oracle="tflm")


def test_what_litert_reads() -> None:
    """The premise: each two values of int32 are one of int64."""
    bias = np.array([100, 0, 300, 0], np.int32)
    w = Spec((4, 1, 1, 1), "int8", None, np.zeros((4, 1, 1, 1), np.int8), (1.0,) * 4)
    b = Spec((4,), "int32", None, bias, (1.0,) * 4)
    x, y = Spec((1, 1, 1, 1), "int16", Quant(1.0, 0)), Spec((1, 1, 1, 4), "int16", Quant(1.0, 0))
    steps: dict[str, Any] = {"padding": "VALID", "stride_h": 1, "stride_w": 1}
    engine = litert(one_op("CONV_2D", [x, w, b], [y], version=8, **steps))
    if engine is None:
        pytest.skip("ai-edge-litert is not installed")
    ((found,),) = engine.outputs([[np.zeros((1, 1, 1, 1), np.int16)]])
    assert found.reshape(-1)[:2].tolist() == [100, 300]
