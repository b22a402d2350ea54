"""Operators on uint8 and float16, converted as their counterparts on int8 and float32 with conversions before and after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps

import numpy as np

from aot.frontend.tflite.convert import Converter, Form, Operator
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.op.math.unary import BitcastAttrs, CastAttrs
from aot.op.qnn.quantize import Requantize8Attrs
from aot.relay.expr import Expr, call, tensor_type
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


def _shifted_type(type_: TensorType) -> TensorType:
    """The int8 counterpart of a legacy type; others unchanged."""
    if type_.quant is None or not is_legacy(type_):
        return type_
    quant = replace(type_.quant, zero_point=tuple(z - OFFSET for z in type_.quant.zero_point))
    return TensorType(type_.shape, "int8", quant)


def _shift(expr: Expr, source: TensorType, target: TensorType, span: Span) -> Expr:
    """The same real values in quantised values of the other type."""
    assert source.quant is not None
    assert target.quant is not None
    before, after = source.quant.zero_point[0], target.quant.zero_point[0]
    # the multiplier 1/2 shifted left once is exactly 1
    attrs = Requantize8Attrs(before, 1 << 30, 1, after, *int_range(target.dtype), target.dtype, target.quant)
    return call("qnn.requantize8", [expr], attrs, span=span)


def _shifted(data: Array) -> Array:
    return (data.astype(np.int16) - OFFSET).astype(np.int8)


LEGACY = Form(_shifted_type, _shifted, _shift)


def legacy_uint8(convert: Converter) -> Converter:
    """The converter for int8, extended to quantised uint8 operands and results."""

    @wraps(convert)
    def converter(op: Operator) -> Expr | Sequence[Expr]:
        inputs = [op.type(i) for i in range(len(op.inputs)) if op.view.input(i) >= 0]
        outputs = [op.result_type(i) for i in range(len(op.outputs))]
        return _through(LEGACY, convert, op) if any(map(is_legacy, (*inputs, *outputs))) else convert(op)

    return converter


# float16 data in converters that do not know it: moved as 16-bit values, or computed as float32.
#
# LiteRT's kernels for float16 convert each number to float32, compute, and round the result to float16 once.


HALF = "float16"
LARGEST_HALF = float(np.finfo(np.float16).max)


def _as_bits(x: Expr, _source: TensorType, target: TensorType, span: Span) -> Expr:
    return call("bitcast", [x], BitcastAttrs(tensor_type(x).shape, target.dtype), span=span)


def _as_number(x: Expr, _source: TensorType, target: TensorType, span: Span) -> Expr:
    return call("cast", [x], CastAttrs(target.dtype), span=span)


def rounded_to_half(x: Expr, span: Span) -> Expr:
    """float32 values rounded to float16."""
    return call("cast", [call("cast", [x], CastAttrs(HALF), span=span)], CastAttrs("float32"), span=span)


def _half_as(dtype: str) -> Callable[[TensorType], TensorType]:
    return lambda type_: replace(type_, dtype=dtype) if type_.dtype == HALF else type_


_BITS = Form(_half_as("int16"), lambda data: data.view(np.int16), _as_bits)
_NUMBERS = Form(_half_as("float32"), lambda data: data.astype(np.float32), _as_number)


def _through(
    form: Form, convert: Converter, op: Operator, then: Callable[[Expr], Expr] | None = None
) -> Expr | Sequence[Expr]:  # fmt: skip
    """The operator converted in a form; `then` changes a result before it is converted back."""
    result = convert(Operator(op.ctx, op.view, forms=(*op.forms, form), order=op.order))
    results = list(result) if isinstance(result, Sequence) else [result]
    for i, expr in enumerate(results):
        type_ = op.result_type(i)
        shown = form.type_of(type_)
        if shown is not type_:
            results[i] = form.convert(then(expr) if then else expr, shown, type_, op.span)
    return results


def _extended_to_halves(form: Form, convert: Converter, then: Callable[[Expr], Expr] | None = None) -> Converter:
    @wraps(convert)
    def converter(op: Operator) -> Expr | Sequence[Expr]:
        has_halves = HALF in {op.type(i).dtype for i in range(len(op.inputs)) if op.view.input(i) >= 0}
        return _through(form, convert, op, then) if has_halves else convert(op)

    return converter


def moves_halves(convert: Converter) -> Converter:
    """The converter, extended to float16: it sees int16."""
    return _extended_to_halves(_BITS, convert)


def widens_halves(convert: Converter, *, then: Callable[[Expr], Expr] | None = None) -> Converter:
    """The converter, extended to float16: it sees float32, to which operands are widened.

    Its float32 results are rounded after `then`.
    """
    return _extended_to_halves(_NUMBERS, convert, then)
