"""Workloads: equal where kernels take the same instructions, different where they do not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from aot.ir.type import QuantParams, TensorType
from aot.op.nn.conv import Conv2DAttrs
from aot.op.qnn.quantize import ClipAttrs, RequantizeAttrs
from aot.relay.analysis import workload_key, workload_text
from aot.relay.expr import Call, Constant, Function, Op, Var

CONV = Conv2DAttrs((1, 1), (1, 1, 1, 1), input_zp=3)
OUT = RequantizeAttrs((1 << 30,) * 4, (-3,) * 4, -5, -128, 127, "double")


def layer(
    *, seed: int = 0, name: str = "x", width: int = 8, conv: Conv2DAttrs = CONV, out: RequantizeAttrs = OUT, scale: float = 0.5
) -> Function:  # fmt: skip
    """A convolution with its requantisation."""
    x = Var(name, TensorType((1, 8, width, 3), "int8", QuantParams((scale,), (3,))))
    data = np.random.default_rng(seed).integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    acc = Call(
        Op("nn.conv2d"), (x, Constant(data, TensorType((4, 3, 3, 3), "int8"))), conv, TensorType((1, 8, width, 4), "int32")
    )
    result = Call(Op("qnn.requantize"), (acc,), out, TensorType((1, 8, width, 4), "int8"))
    return Function((x,), result, {"Primitive": True, "name": name})


@pytest.mark.parametrize(
    "other",
    [
        layer(seed=1),
        layer(name="y"),
        layer(scale=0.25),
        layer(conv=replace(CONV, input_zp=-7)),
        layer(out=replace(OUT, multiplier=(3, 4, 5, 6), shift=(-1, -2, -9, 0), zero_point=9)),
    ],
)
def test_what_training_decides_does_not_count(other: Function) -> None:
    assert workload_key(other) == workload_key(layer())


@pytest.mark.parametrize(
    "other",
    [
        layer(width=9),
        layer(conv=replace(CONV, strides=(2, 2))),
        layer(conv=replace(CONV, input_zp=0)),
        layer(out=replace(OUT, hi=50)),
        layer(out=replace(OUT, shift=(-1, -2, 3, 0))),
        layer(out=replace(OUT, multiplier=(5,), shift=(-1,))),
        layer(out=replace(OUT, rounding="single")),
    ],
)
def test_what_a_kernel_looks_at_does(other: Function) -> None:
    assert workload_key(other) != workload_key(layer())


def test_the_key_is_the_same_everywhere() -> None:
    """It stands in files: a change of it makes all records useless, so it is made on purpose only."""
    assert workload_key(layer()) == "25363620dc0c32760456cbe8"
    assert workload_text(layer()) == "nn.conv2d+qnn.requantize int8[1, 8, 8, 3] int8[4, 3, 3, 3] -> int8[1, 8, 8, 4]"


@dataclass(frozen=True, slots=True)
class _Odd:
    """Attributes with something that has no text of its own."""

    other: object


def test_a_function_that_has_no_text_has_no_key() -> None:
    x = Var("x", TensorType((1, 8), "int8"))
    inner = Function((x,), Call(Op("clip"), (x,), ClipAttrs(0, 5), x.type))
    assert workload_key(Function((x,), Call(inner, (x,), None, x.type))) is None
    assert workload_key(Function((x,), Call(Op("clip"), (x,), _Odd(object()), x.type))) is None
