"""Operators on uint8 and float16, converted as their counterparts on int8 and float32 with conversions before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps

import numpy as np

from aot.frontend.tflite.convert import ConvertContext, Converter, ForwardingContext
from aot.frontend.view import OperatorView
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType
from aot.op.math.cast import BitcastAttrs, CastAttrs
from aot.op.qnn.quantize import Requantize8Attrs
from aot.relay.expr import Constant, Expr, call, const, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range

# Legacy uint8 models: every operator that computes on quantised uint8 tensors is converted as its int8 counterpart.
#
# q' = q - 128 with zero point z' = z - 128 is the same real number, so int8 kernels give the same results if the reference's
# formulas do not depend on the sign of quantised values (multipliers may still differ: `aot.numerics.multipliers` has rows for
# uint8).  The shifts at both ends are `qnn.requantize8` that round nothing; canonicalize removes adjacent ones.


OFFSET = 128


def is_legacy(type_: TensorType) -> bool:
    """Whether a tensor is uint8 with quantisation parameters."""
    return type_.dtype == "uint8" and type_.quant is not None


def shifted_type(type_: TensorType) -> TensorType:
    """The int8 counterpart of a legacy type; others unchanged."""
    if type_.quant is None or not is_legacy(type_):
        return type_
    quant = QuantParams(type_.quant.scale, tuple(z - OFFSET for z in type_.quant.zero_point), type_.quant.axis)
    return TensorType(type_.shape, "int8", quant)


def _shift(expr: Expr, source: TensorType, target: TensorType, span: Span) -> Expr:
    """The same real values in quantised values of the other type."""
    assert source.quant is not None
    assert target.quant is not None
    before, after = source.quant.zero_point[0], target.quant.zero_point[0]
    # the multiplier 1/2 shifted left once is exactly 1
    attrs = Requantize8Attrs(before, 1 << 30, 1, after, *int_range(target.dtype), target.dtype, target.quant)
    return call("qnn.requantize8", [expr], attrs, span=span)


class ShiftedContext(ForwardingContext):
    """Shows legacy tensors as int8."""

    @property
    def is_legacy(self) -> bool:
        return True

    def input(self, op: OperatorView, i: int) -> Expr | None:
        expr = self._ctx.input(op, i)
        if expr is None:
            return None
        type_ = self._ctx.input_type(op, i)
        if not is_legacy(type_):
            return expr
        if isinstance(expr, Constant):
            return replace(const(_shifted(np.asarray(expr.data)), quant=shifted_type(type_).quant), span=expr.span)
        return _shift(expr, type_, shifted_type(type_), expr.span)

    def constant(self, op: OperatorView, i: int) -> Array:
        data = self._ctx.constant(op, i)
        return _shifted(data) if is_legacy(self._ctx.input_type(op, i)) else data

    def input_type(self, op: OperatorView, i: int) -> TensorType:
        return shifted_type(self._ctx.input_type(op, i))

    def output_type(self, op: OperatorView, i: int = 0) -> TensorType:
        return shifted_type(self._ctx.output_type(op, i))


def _shifted(data: Array) -> Array:
    return (data.astype(np.int16) - OFFSET).astype(np.int8)


def legacy_uint8(convert: Converter) -> Converter:
    """The converter for int8, extended to quantised uint8 operands and results."""

    @wraps(convert)
    def converter(ctx: ConvertContext, op: OperatorView) -> Expr | Sequence[Expr]:
        inputs = [ctx.input_type(op, i) for i in range(len(op.inputs)) if op.input(i) >= 0]
        outputs = [ctx.output_type(op, i) for i in range(len(op.outputs))]
        if not any(map(is_legacy, (*inputs, *outputs))):
            return convert(ctx, op)
        result = convert(ShiftedContext(ctx), op)
        results = list(result) if isinstance(result, Sequence) else [result]
        span = ctx.span(op)
        return [
            _shift(expr, shifted_type(type_), type_, span) if is_legacy(type_) else expr
            for expr, type_ in zip(results, outputs, strict=True)
        ]

    return converter


# float16 data in converters that do not know it: moved as 16-bit values, or computed as float32.
#
# LiteRT's kernels for float16 convert each number to float32, compute, and round the result to float16 once.


HALF = "float16"
LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class _Form:
    """How a converter sees float16 tensors: as tensors of `dtype`, with the conversions `there` and `back`."""

    dtype: str
    there: Callable[[Array], Array]
    convert: Callable[[Expr, str, Span], Expr]


def _as_bits(x: Expr, dtype: str, span: Span) -> Expr:
    return call("bitcast", [x], BitcastAttrs(tensor_type(x).shape, dtype), span=span)


def _as_number(x: Expr, dtype: str, span: Span) -> Expr:
    return call("cast", [x], CastAttrs(dtype), span=span)


def rounded_to_half(x: Expr, span: Span) -> Expr:
    """float32 values rounded to float16."""
    return _as_number(_as_number(x, HALF, span), "float32", span)


_BITS = _Form("int16", lambda data: data.view(np.int16), _as_bits)
_NUMBERS = _Form("float32", lambda data: data.astype(np.float32), _as_number)


class _Shown(ForwardingContext):
    """Shows float16 tensors in another form."""

    def __init__(self, ctx: ConvertContext, form: _Form) -> None:
        super().__init__(ctx)
        self._form = form

    def _shown(self, type_: TensorType) -> TensorType:
        return replace(type_, dtype=self._form.dtype) if type_.dtype == HALF else type_

    def input(self, op: OperatorView, i: int) -> Expr | None:
        expr = self._ctx.input(op, i)
        if expr is None or self._ctx.input_type(op, i).dtype != HALF:
            return expr
        if isinstance(expr, Constant):
            return replace(const(self._form.there(np.asarray(expr.data))), span=expr.span)
        return self._form.convert(expr, self._form.dtype, expr.span)

    def constant(self, op: OperatorView, i: int) -> Array:
        data = self._ctx.constant(op, i)
        return self._form.there(data) if self._ctx.input_type(op, i).dtype == HALF else data

    def input_type(self, op: OperatorView, i: int) -> TensorType:
        return self._shown(self._ctx.input_type(op, i))

    def output_type(self, op: OperatorView, i: int = 0) -> TensorType:
        return self._shown(self._ctx.output_type(op, i))


def _same(x: Expr) -> Expr:
    return x


def _through(form: _Form, convert: Converter, then: Callable[[Expr], Expr] = _same) -> Converter:
    @wraps(convert)
    def converter(ctx: ConvertContext, op: OperatorView) -> Expr | Sequence[Expr]:
        if HALF not in {ctx.input_type(op, i).dtype for i in range(len(op.inputs)) if op.input(i) >= 0}:
            return convert(ctx, op)
        result, span = convert(_Shown(ctx, form), op), ctx.span(op)
        results = list(result) if isinstance(result, Sequence) else [result]
        for i, expr in enumerate(results):
            if ctx.output_type(op, i).dtype == HALF:
                results[i] = form.convert(then(expr), HALF, span)
        return results if isinstance(result, Sequence) else results[0]

    return converter


def moves_halves(convert: Converter) -> Converter:
    """The converter, extended to float16: it sees int16."""
    return _through(_BITS, convert)


def widens_halves(convert: Converter, *, then: Callable[[Expr], Expr] = _same) -> Converter:
    """The converter, extended to float16: it sees float32, to which operands are widened.

    Its float32 results are rounded after `then`.
    """
    return _through(_NUMBERS, convert, then)
