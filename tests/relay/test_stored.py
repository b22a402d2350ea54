"""Constants that flash may hold in fewer bytes: the form is exact or there is none, and it survives what moves elements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from aot import relay
from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.ir.type import QuantParams, TensorType
from aot.op.tensor import TransposeAttrs
from aot.relay.expr import Constant, Function, call, const
from aot.relay.stored import Codes, codes_of, encoded, flattened, widen_float16
from aot.relay.transform.cleanup import fold_constant
from aot.testing import ModelBuilder
from tests.op._differential import check

RNG = np.random.default_rng(5)


def held(data: Array, dtype: str, scale: tuple[float, ...] = (), zero: tuple[int, ...] = (), axis: int | None = None) -> Constant:
    """A constant as DEQUANTIZE makes it."""
    stored = TensorType(data.shape, dtype, QuantParams(scale, zero, axis) if scale else None)
    along = [-1 if a == axis else 1 for a in range(data.ndim)]
    value = data.astype(np.float32)
    if scale:
        value = np.float32(scale).reshape(along) * (data.astype(np.int32) - np.int32(zero).reshape(along)).astype(np.float32)
    return replace(const(value), stored=stored)


def value_of(codes: Codes) -> Array:
    found: Array = codes.data.astype(np.float32)
    if codes.scale is not None:
        found = codes.scale * (codes.data.astype(np.int32) - (0 if codes.zero is None else codes.zero)).astype(np.float32)
    return found


def of_each_kind() -> list[Constant]:
    codes = RNG.integers(-128, 127, (4, 6), endpoint=True).astype(np.int8)
    scales = (0.1, 0.25, 0.003, 1.7)
    return [
        held(RNG.normal(size=(4, 6)).astype(np.float16), "float16"),
        held(codes, "int8", (0.03,), (0,)),
        held(codes, "int8", (0.03,), (-90,)),
        held(codes, "int8", scales, (0,) * 4, 0),
        held(codes, "int8", scales, (3, -100, 90, 0), 0),
        held(codes.T.copy(), "int8", scales, (3, -100, 90, 0), 1),
        held((codes.astype(np.int16) + 128).astype(np.uint8), "uint8", (0.03,), (140,)),
        held(codes >> 4, "int4", scales, (0,) * 4, 0),
        held(codes >> 4, "int4", (0.5,), (2,)),
    ]


@pytest.mark.parametrize("constant", of_each_kind(), ids=lambda c: f"{c.stored.dtype}{c.stored.quant or ''}")
def test_form_is_exact(constant: Constant) -> None:
    codes = codes_of(constant)
    assert codes is not None
    assert value_of(codes).tobytes() == constant.data.tobytes()
    assert constant.stored is not None
    assert codes.dtype in (constant.stored.dtype, "int8")


@pytest.mark.parametrize("constant", of_each_kind(), ids=lambda c: f"{c.stored.dtype}{c.stored.quant or ''}")
def test_transposition_keeps_it(constant: Constant) -> None:
    func = Function((), call("transpose", [constant], TransposeAttrs((1, 0))))
    body = fold_constant(IRModule({"main": func}, "model"))["main"].body
    assert isinstance(body, Constant)
    codes = codes_of(body)
    assert codes is not None
    assert value_of(codes).tobytes() == np.ascontiguousarray(constant.data.T).tobytes()


def test_other_values_have_no_form() -> None:
    constant = of_each_kind()[0]
    assert codes_of(replace(constant, data=constant.data * np.float32(1.0001))) is None
    assert codes_of(replace(of_each_kind()[3], data=of_each_kind()[3].data[::-1].copy())) is None
    assert codes_of(replace(constant, stored=None)) is None
    assert encoded(np.float32([1.0, np.inf]), "int8", np.float32([0.5])) is None
    assert encoded(np.float32([-0.0]), "int8", np.float32([0.5])) is None  # an integer has no sign of zero
    assert encoded(np.float32([300.0]), "int8", np.float32([1.0])) is None


def test_flat_form() -> None:
    one, each = of_each_kind()[1], of_each_kind()[3]
    codes = codes_of(flattened(one))
    assert codes is not None
    assert codes.data.shape == (24,)
    assert codes_of(flattened(each)) is None  # a scale a row is none of an element's


def test_float16_is_folded_where_it_is_asked_for() -> None:
    func = Function((), relay.add(of_each_kind()[0], of_each_kind()[1]))
    (func,) = widen_float16(IRModule({"main": func})).functions.values()
    assert isinstance(func, Function)
    body = func.body
    assert [a.stored and a.stored.dtype for a in body.args] == [None, "int8"]


def product(dtype: str, shape: tuple[int, ...]) -> bytes:
    """A network that multiplies its data with weights of `dtype`."""
    b = ModelBuilder()
    x, y, wide = (b.tensor(name, shape, "float32") for name in "xyw")
    if dtype == "float16":
        stored = b.tensor("s", shape, dtype, data=RNG.normal(size=shape).astype(np.float16))
    else:
        data = RNG.integers(*((-8, 8) if dtype == "int4" else (-128, 128)), shape).astype(np.int8)
        stored = b.tensor("s", shape, dtype, data=data, scale=[0.1], zero_point=[0])
    b.op("DEQUANTIZE", [stored], [wide], version=6)
    b.op("MUL", [x, wide], [y])
    return b.build([x], [y])


@pytest.mark.parametrize(("dtype", "size"), [("float16", 2.0), ("int8", 1.0), ("int4", 0.5)])
def test_flash(dtype: str, size: float) -> None:
    """Bytes a weight, and --float16 fold."""
    model = product(dtype, (1, 5, 25))
    assert compile_model(model).artifact.metadata["constants"]["size"] == int(125 * size + 0.5)
    check(model, host=True)
    folded = compile_model(model, options=Options(float16="fold")).artifact.metadata["constants"]["size"]
    assert folded == (500 if dtype == "float16" else int(125 * size + 0.5))
