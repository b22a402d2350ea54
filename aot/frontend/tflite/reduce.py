"""Converters of reductions: sums, means, extremes, positions of extremes, running sums, reductions over windows."""

from __future__ import annotations

from math import prod

from aot.frontend.tflite.arithmetic import sum_attrs
from aot.frontend.tflite.convert import (
    ConvertContext,
    constant_axes,
    constant_ints,
    from_tflite,
    normalized_axis,
    one_int,
    operand,
    require_dtype,
    require_quant,
    require_same_quant,
    reshaped,
    unsupported,
)
from aot.frontend.tflite.tensor import LARGEST_PAD, dilated, padded_or_cut
from aot.frontend.view import OperatorView
from aot.numerics.fixed_point import quantize_multiplier, real_multiplier, reduced_multiplier
from aot.op.math.cast import BitcastAttrs
from aot.op.reduce import (
    CUMSUM_TYPES,
    KINDS,
    MEAN_CODES,
    OPERATORS,
    PROD_CODES,
    ArgReduceAttrs,
    CumSumAttrs,
    MeanAttrs,
    ProdAttrs,
    ReduceAttrs,
    ReduceWindowAttrs,
    TopKAttrs,
)
from aot.op.reduce import WINDOWED_TYPES as REDUCE_WINDOW_DTYPES
from aot.op.tensor.gather import TakeAttrs
from aot.relay.expr import Expr, call, tensor_type
from aot.support.dtype import bits, int_range, is_float

OF_BOOL = {"SUM": "any", "REDUCE_PROD": "all", "REDUCE_MAX": "any", "REDUCE_MIN": "all"}
"""The equivalents of the numeric reductions for bool, where true and true is true."""


def convert_reduce(ctx: ConvertContext, op: OperatorView) -> Expr:
    """The reduction, or the quantised form of a sum or mean."""
    data = ctx.input_type(op, 0)
    kind, types = OPERATORS[op.opcode]
    if op.opcode in ("SUM", "MEAN") and data.dtype in ("int8", "uint8", "int16"):
        return convert_quantized(ctx, op)
    if op.opcode == "REDUCE_PROD" and data.dtype in PROD_CODES:
        return convert_prod(ctx, op)
    if op.opcode in OF_BOOL and data.dtype == "bool":
        kind, types = OF_BOOL[op.opcode], ("bool",)
    require_dtype(ctx, op, data, types)
    require_same_quant(ctx, op, data, ctx.output_type(op))
    axes = constant_axes(ctx, op, 1, len(data.shape))
    if kind == "average" and not data.size:
        unsupported(ctx, op, "a mean of no elements", code="E1121")
    attrs = ReduceAttrs(kind, axes, bool(op.option("keep_dims")))
    return call(kind, [operand(ctx, op, 0)], attrs, span=ctx.span(op))


_ADDABLE = "int8 uint8 int16 int32 int64 float32"
_SUPPORT = {
    "SUM": (f"bool {_ADDABLE}", "any qnn.sum sum"),
    "MEAN": (_ADDABLE, "average mean"),
    "REDUCE_PROD": ("bool int8 int16 int32 int64 float32", "all prod qnn.prod"),
    "REDUCE_MAX": (f"bool {_ADDABLE}", "any reduce_max"),
    "REDUCE_MIN": (f"bool {_ADDABLE}", "all reduce_min"),
}
_ORACLE = {"SUM": "LiteRT; TFLM for int8 and int16"}


for _opcode, (_kind, _dtypes) in OPERATORS.items():
    from_tflite(_opcode, *_SUPPORT.get(_opcode, (" ".join(_dtypes), _kind)), oracle=_ORACLE.get(_opcode, "LiteRT"))(
        convert_reduce
    )


def mean_multiplier(real: float, count: int) -> tuple[int, int]:
    """Multiplier and shift of a mean of `count` elements whose scales have the ratio `real` (input / output)."""
    multiplier, shift = quantize_multiplier(real)
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << extra) // count, shift - extra


def convert_quantized(ctx: ConvertContext, op: OperatorView) -> Expr:
    """mean or qnn.sum of quantised values, by the operator's name."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, MEAN_CODES)
    require_dtype(ctx, op, out, (data.dtype,), what="a result")
    scale_in, zp_in = require_quant(ctx, op, data, may_be_zero=True)
    scale, zp = require_quant(ctx, op, out, what="the result")
    axes = constant_axes(ctx, op, 1, len(data.shape))
    count = prod(data.shape[a] for a in axes)
    if count == 0 or count >= 1 << (31 - bits(data.dtype)):
        unsupported(ctx, op, f"a reduction of {count} elements of {data.dtype} is not supported")
    is_mean = op.opcode == "MEAN"
    real = real_multiplier(op.opcode, data.dtype, (scale_in,), (scale,), oracle=ctx.oracle)
    multiplier, shift = mean_multiplier(real, count) if is_mean else quantize_multiplier(real)
    as_bytes = ctx.to_the_letter and not is_mean and data.dtype != "uint8"
    if as_bytes and data.dtype == "int16":
        unsupported(
            ctx, op, "the reference kernel writes only half of an int16 SUM; --oracle litert computes the intended result"
        )
    low, high = int_range("uint8" if as_bytes else out.dtype)
    keepdims = bool(op.option("keep_dims"))
    attrs = MeanAttrs(axes, keepdims, zp_in, multiplier, shift, zp, low, high, out.quant)
    values = _shown_as(operand(ctx, op, 0), "uint8") if as_bytes else operand(ctx, op, 0)
    result = call("mean" if is_mean else "qnn.sum", [values], attrs, span=ctx.span(op))
    return _shown_as(result, "int8") if as_bytes else result


def _shown_as(value: Expr, dtype: str) -> Expr:
    """The same bytes as another type."""
    return call("bitcast", [value], BitcastAttrs(tensor_type(value).shape, dtype), span=value.span)


_LARGEST_SHIFT = 7


def convert_prod(ctx: ConvertContext, op: OperatorView) -> Expr:
    """qnn.prod."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, out, (data.dtype,), what="a result")
    scale_in, zp_in = require_quant(ctx, op, data, may_be_zero=True)
    scale, zp = require_quant(ctx, op, out, what="the result")
    if data.dtype == "int16" and (zp_in or zp):
        unsupported(ctx, op, "int16 with a non-zero zero point is not supported (TFLite rejects it too)", code="E1224")
    axes = constant_axes(ctx, op, 1, len(data.shape))
    count = prod(data.shape[a] for a in axes)
    if not axes or not count:
        unsupported(ctx, op, "a product of no elements is not supported", code="E1121")
    multiplier, shift = quantize_multiplier(
        min(real_multiplier(op.opcode, data.dtype, (scale_in,), (scale ** (1.0 / count),)), 2.0**31)
    )
    if shift > _LARGEST_SHIFT:
        unsupported(ctx, op, "the output's scale is too small for the inputs' scale", code="E1226")
    attrs = ProdAttrs(axes, bool(op.option("keep_dims")), zp_in, reduced_multiplier(multiplier), shift, zp, out.quant)
    return call("qnn.prod", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


ARG_TYPES = ("bool", "int8", "uint8", "int16", "int32", "int64", "float32")


@from_tflite("ARG_MAX", " ".join(ARG_TYPES), "argmax")
@from_tflite("ARG_MIN", " ".join(ARG_TYPES), "argmin")
def convert_arg_reduce(ctx: ConvertContext, op: OperatorView) -> Expr:
    """argmax or argmin along a constant axis."""
    data, out = ctx.input_type(op, 0), ctx.output_type(op)
    require_dtype(ctx, op, data, ARG_TYPES)
    require_dtype(ctx, op, out, ("int32", "int64"), what="a result")
    axis = normalized_axis(ctx, op, one_int(ctx, op, 1), len(data.shape))
    if not data.shape[axis]:
        unsupported(ctx, op, f"axis {axis} has no elements", code="E1126")
    largest = op.opcode == "ARG_MAX"
    attrs = ArgReduceAttrs(axis, largest, out.dtype, passes_nan=is_float(data.dtype) and ctx.oracle != "tflm")
    return call("argmax" if largest else "argmin", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


@from_tflite("CUMSUM", "int8 int32 int64 float32", "cumsum qnn.cumsum", oracle="LiteRT; TFLM for int8")
def convert_cumsum(ctx: ConvertContext, op: OperatorView) -> Expr:
    """cumsum of numbers, qnn.cumsum of quantised values."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, (*CUMSUM_TYPES, "int8"))
    axis = normalized_axis(ctx, op, one_int(ctx, op, 1), len(data.shape))
    codes = sum_attrs(ctx, op) if data.dtype == "int8" else None
    attrs = CumSumAttrs(axis, bool(op.option("exclusive")), bool(op.option("reverse")), codes)
    return call("cumsum" if codes is None else "qnn.cumsum", [operand(ctx, op, 0)], attrs, span=ctx.span(op))


TOPK_TYPES = ("int8", "uint8", "int16", "int32", "int64", "float32")


@from_tflite("TOPK_V2", "int8 uint8 int16 int32 int64 float32", "take topk")
def convert_topk(ctx: ConvertContext, op: OperatorView) -> list[Expr]:
    """The values and their positions; k has to be constant."""
    data, positions = ctx.input_type(op, 0), ctx.output_type(op, 1)
    require_dtype(ctx, op, data, TOPK_TYPES)
    require_dtype(ctx, op, positions, ("int16", "int32"), what="a position")
    k = one_int(ctx, op, 1)
    if not data.shape or not 1 <= k <= data.shape[-1]:
        unsupported(ctx, op, f"k = {k} is out of range for {data}", code="E1122")
    x, span, rank = operand(ctx, op, 0), ctx.span(op), len(data.shape)
    indices = call("topk", [x], TopKAttrs(k, positions.dtype), span=span)
    values = call("take", [x, indices], TakeAttrs(rank - 1, rank - 1), span=span)
    return [values, indices]


BODIES = {
    **{name: "ADD" for name in ("ADD", "STABLEHLO_ADD")},
    **{name: "MUL" for name in ("MUL", "STABLEHLO_MULTIPLY")},
    **{name: "MAXIMUM" for name in ("MAXIMUM", "STABLEHLO_MAXIMUM")},
    **{name: "MINIMUM" for name in ("MINIMUM", "STABLEHLO_MINIMUM")},
    **{name: "ALL" for name in ("LOGICAL_AND", "STABLEHLO_AND")},
    "LOGICAL_OR": "ANY",
}
"""The operator of STABLEHLO_REDUCE_WINDOW's subgraph -> the reduction."""
MOST_DIMS = 6


@from_tflite("REDUCE_WINDOW", "bool int8 uint8 int16 int32 int64 float32", "reduce_window")
def convert_reduce_window(ctx: ConvertContext, op: OperatorView) -> Expr:
    """reduce_window."""
    _check_windows(ctx, op, op.option("reduce_function"))
    window, strides, dilations = (tuple(constant_ints(ctx, op, i)) for i in (2, 3, 4))
    return _windows(ctx, op, operand(ctx, op, 0), ReduceWindowAttrs(op.option("reduce_function"), window, strides, dilations))


@from_tflite(
    "STABLEHLO_REDUCE_WINDOW", "bool int8 uint8 int16 int32 int64 float32", "nn.pad reduce_window strided_slice"
)  # fmt: skip
def convert_stablehlo_window(ctx: ConvertContext, op: OperatorView) -> Expr:
    """Dilate, pad or cut, then reduce_window."""
    data = ctx.input_type(op, 0)
    body = ctx.operators_of(int(op.option("body_subgraph_index")))
    kind = BODIES.get(body[0], body[0]) if len(body) == 1 else f"of {len(body)} operators"
    _check_windows(ctx, op, kind)
    names = ("window_dimensions", "window_strides", "window_dilations", "base_dilations", "padding")
    window, strides, dilations, base, padding = (tuple(int(n) for n in op.option(name)) for name in names)
    rank, low, high = len(data.shape), padding[::2], padding[1::2]
    if len(base) != rank or len(padding) != 2 * rank or min(base) < 1 or rank > MOST_DIMS:
        unsupported(ctx, op, f"dilations {base} and paddings {padding} do not match {data}", code="E1207")
    whole = [(n - 1) * d + 1 for n, d in zip(data.shape, base, strict=True)]
    extents = [n + a + z for n, a, z in zip(whole, low, high, strict=True)]
    if min(extents) < 1 or any(n + min(a, 0) + min(z, 0) < 1 for n, a, z in zip(whole, low, high, strict=True)):
        unsupported(ctx, op, f"paddings {padding} of {whole} leave nothing", code="E1207")
    if prod(whole) > LARGEST_PAD or prod(extents) > LARGEST_PAD:
        unsupported(ctx, op, f"dilations {base} and paddings {padding} of {data} are not supported", code="E1122")
    expr = operand(ctx, op, 0)
    if any(padding) or max(base) > 1:
        first = ctx.constant(op, 1).ravel()[0]
        value = float(first) if is_float(data.dtype) else int(first)
        expr = dilated(ctx, op, expr, dilations=base, value=value)
        expr = padded_or_cut(ctx, op, expr, low=low, high=high, value=value)
    return _windows(ctx, op, expr, ReduceWindowAttrs(kind, window, strides, dilations))


def _check_windows(ctx: ConvertContext, op: OperatorView, kind: str) -> None:
    """Refuse unknown types and functions."""
    data, first = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, REDUCE_WINDOW_DTYPES)
    if kind not in KINDS:
        unsupported(ctx, op, f"the function {kind} is not supported; only {', '.join(KINDS)}")
    if data.dtype == "bool" and kind == "ADD":
        unsupported(ctx, op, "sums of bool are not supported, as the reference sums in the bytes of a bool; use ANY instead")
    if first.dtype != data.dtype or first.size != 1 or not data.shape:
        unsupported(ctx, op, f"windows of {data} cannot start from {first}", code="E1207")


def _windows(ctx: ConvertContext, op: OperatorView, expr: Expr, attrs: ReduceWindowAttrs) -> Expr:
    data, span = tensor_type(expr), ctx.span(op)
    numbers = (attrs.window, attrs.strides, attrs.dilations)
    if any(len(n) != len(data.shape) or min(n) < 1 for n in numbers):
        unsupported(
            ctx,
            op,
            f"windows {attrs.window} by {attrs.strides}, dilated {attrs.dilations}, of {data} are not supported",
            code="E1207",
        )
    if any(n < (w - 1) * d + 1 for n, w, d in zip(data.shape, attrs.window, attrs.dilations, strict=True)):
        unsupported(ctx, op, f"no window {attrs.window} fits {data}", code="E1207")
    return call("reduce_window", [expr, reshaped(operand(ctx, op, 1), (1,), span)], attrs, span=span)
