"""DILATE and STABLEHLO_PAD of TFLite, from reshape, pad and slice: constant elements between those of a tensor and around them.

Each dimension of n elements becomes (n - 1) * d + 1.  Dilations and the element between have to be constant.
STABLEHLO_PAD then adds elements at both ends of a dimension, or, for negative numbers, cuts some off.
Oracles: `kernels/dilate.cc`, `kernels/stablehlo_pad.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.frontend.view import OperatorView
from aot.ir.span import Span
from aot.op.common.check import require_dtype
from aot.op.common.half import moves_halves
from aot.op.common.move import MOVABLE, constant_ints, reshaped
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.nn.pad import PadAttrs
from aot.op.tensor.strided_slice import slice_of
from aot.relay.expr import Expr, call, tensor_type
from aot.support.dtype import is_float

LARGEST = 1 << 24
"""Elements of a result."""


@from_tflite("DILATE", EVERY, "bitcast nn.pad strided_slice")
@moves_halves
def convert(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Dimension by dimension: pad each element to `dilation` ones, and leave those after the last element out."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, MOVABLE)
    dilations, between = constant_ints(ctx, op, 1), ctx.constant(op, 2)
    if len(dilations) != len(data.shape) or between.size != 1 or ctx.input_type(op, 2).dtype != data.dtype:
        unsupported(ctx, op, f"dilations {dilations} with {between.size} elements between do not suit {data}", code="E1207")
    size = 1
    for extent, dilation in zip(data.shape, dilations, strict=True):
        size *= (extent - 1) * dilation + 1
        if dilation < 1 or extent < 1 or size > LARGEST:
            unsupported(ctx, op, f"dilations {dilations} of {data}", code="E1122")
    value = float(between.ravel()[0]) if is_float(data.dtype) else int(between.ravel()[0])
    return dilated(ctx, op, operand(ctx, op, 0), dilations=dilations, value=value)


@from_tflite("STABLEHLO_PAD", EVERY, "bitcast nn.pad strided_slice")
@moves_halves
def convert_pad(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Dilate each dimension, then pad it, then cut."""
    data, between = ctx.input_type(op, 0), ctx.constant(op, 1)
    require_dtype(ctx, op, data, MOVABLE)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, inner = ([int(n) for n in op.option(name)] for name in names)
    rank = len(data.shape)
    if (
        not rank
        or any(len(n) != rank for n in (low, high, inner))
        or between.size != 1
        or ctx.input_type(op, 1).dtype != data.dtype
    ):
        unsupported(ctx, op, f"paddings {low}, {high}, {inner} do not suit {data}", code="E1207")
    size = 1
    for extent, a, z, i in zip(data.shape, low, high, inner, strict=True):
        size *= (extent - 1) * (i + 1) + 1 + max(a, 0) + max(z, 0)
        if i < 0 or extent < 1 or (extent - 1) * (i + 1) + 1 + a + z < 1 or size > LARGEST:
            unsupported(ctx, op, f"paddings {low}, {high}, {inner} of {data}", code="E1122")
    value = float(between.ravel()[0]) if is_float(data.dtype) else int(between.ravel()[0])
    result = dilated(ctx, op, operand(ctx, op, 0), dilations=[i + 1 for i in inner], value=value)
    return padded_or_cut(ctx, op, result, low=low, high=high, value=value)


def dilated(ctx: ConvertContext, op: OperatorView, data: Expr, *, dilations: Sequence[int], value: float) -> Expr:
    """Each dimension of n elements as (n - 1) * d + 1, with `value` between them."""
    for axis, dilation in enumerate(dilations):
        if dilation > 1:
            data = _dilated(ctx, op, data, axis=axis, dilation=dilation, value=value, span=ctx.span(op))
    return data


def padded_or_cut(
    ctx: ConvertContext, op: OperatorView, data: Expr, *, low: Sequence[int], high: Sequence[int], value: float
) -> Expr:  # fmt: skip
    """As many elements of `value` more at the two ends of each dimension, or, for negative numbers, fewer."""
    widths = tuple((max(a, 0), max(z, 0)) for a, z in zip(low, high, strict=True))
    if any(map(any, widths)):
        data = call("nn.pad", [data], PadAttrs(widths, value), span=ctx.span(op))
    ends = zip(tensor_type(data).shape, low, high, strict=True)
    return slice_of(ctx, op, data, [range(-min(a, 0), n + min(z, 0)) for n, a, z in ends])


def _dilated(
    ctx: ConvertContext, op: OperatorView, data: Expr, *, axis: int, dilation: int, value: float, span: Span
) -> Expr:  # fmt: skip
    shape = tensor_type(data).shape
    before, n, after = shape[:axis], shape[axis], shape[axis + 1 :]
    single = reshaped(data, (*before, n, 1, *after), span)
    widths = [(0, 0)] * (len(shape) + 1)
    widths[axis + 1] = (0, dilation - 1)
    padded = reshaped(call("nn.pad", [single], PadAttrs(tuple(widths), value), span=span), (*before, n * dilation, *after), span)
    positions = [range(extent) for extent in (*before, (n - 1) * dilation + 1, *after)]
    return slice_of(ctx, op, padded, positions)
