"""Converters of reductions: sums, means, extremes, positions of extremes, running sums, reductions over windows."""

from __future__ import annotations

from math import prod

from aot.frontend.tflite.arithmetic import sum_attrs
from aot.frontend.tflite.convert import Operator, converter
from aot.frontend.tflite.tensor import LARGEST_PAD, dilated, first_number, padded_or_cut
from aot.numerics.fixed_point import quantize_multiplier, real_multiplier, reduced_multiplier
from aot.op import reduce as reductions
from aot.op.gather import TakeAttrs
from aot.op.math.unary import BitcastAttrs
from aot.relay.expr import Expr, call, tensor_type
from aot.support.dtype import bits, int_range, is_float

OF_BOOL = {"SUM": "any", "REDUCE_PROD": "all", "REDUCE_MAX": "any", "REDUCE_MIN": "all"}
"""The equivalents of the numeric reductions for bool, where true and true is true."""


def _reduce(op: Operator) -> Expr:
    """The reduction, or the quantised form of a sum or mean."""
    data = op.type(0)
    kind, types = reductions.OPERATORS[op.opcode]
    if op.opcode in ("SUM", "MEAN") and data.dtype in ("int8", "uint8", "int16"):
        return _quantized(op)
    if op.opcode == "REDUCE_PROD" and data.dtype in reductions.PROD_CODES:
        return _prod(op)
    if op.opcode in OF_BOOL and data.dtype == "bool":
        kind, types = OF_BOOL[op.opcode], ("bool",)
    op.require_dtype(data, types)
    op.require_same_quant(data, op.result_type())
    axes = op.axes(1, len(data.shape))
    if kind == "average" and not data.size:
        op.refuse("a mean of no elements", code="E1121")
    return op.call(kind, [op.operand(0)], reductions.ReduceAttrs(kind, axes, bool(op.option("keep_dims"))))


_ADDABLE = "int8 uint8 int16 int32 int64 float32"
_SUPPORT = {
    "SUM": (f"bool {_ADDABLE}", "any qnn.sum sum"),
    "MEAN": (_ADDABLE, "average mean"),
    "REDUCE_PROD": ("bool int8 int16 int32 int64 float32", "all prod qnn.prod"),
    "REDUCE_MAX": (f"bool {_ADDABLE}", "any reduce_max"),
    "REDUCE_MIN": (f"bool {_ADDABLE}", "all reduce_min"),
}
_ORACLE = {"SUM": "LiteRT; TFLM for int8 and int16"}


for _opcode, (_kind, _dtypes) in reductions.OPERATORS.items():
    converter(_opcode, *_SUPPORT.get(_opcode, (" ".join(_dtypes), _kind)), oracle=_ORACLE.get(_opcode, "LiteRT"))(_reduce)


def mean_multiplier(real: float, count: int) -> tuple[int, int]:
    """Multiplier and shift of a mean of `count` elements whose scales have the ratio `real` (input / output)."""
    multiplier, shift = quantize_multiplier(real)
    extra = min(count.bit_length() - 1, 32, 31 + shift)
    return (multiplier << extra) // count, shift - extra


def _quantized(op: Operator) -> Expr:
    """mean or qnn.sum of quantised values, by the operator's name."""
    data, out = op.type(0, reductions.MEAN_CODES), op.result_type()
    op.require_dtype(out, (data.dtype,), what="a result")
    scale_in, zp_in = op.quant(data, may_be_zero=True)
    scale, zp = op.quant(out, what="the result")
    axes = op.axes(1, len(data.shape))
    count = prod(data.shape[a] for a in axes)
    if count == 0 or count >= 1 << (31 - bits(data.dtype)):
        op.refuse(f"a reduction of {count} elements of {data.dtype} is not supported")
    is_mean = op.opcode == "MEAN"
    real = op.real_multiplier(data.dtype, (scale_in,), (scale,))
    multiplier, shift = mean_multiplier(real, count) if is_mean else quantize_multiplier(real)
    as_bytes = op.ctx.to_the_letter and not is_mean and data.dtype != "uint8"
    if as_bytes and data.dtype == "int16":
        op.refuse("the reference kernel writes only half of an int16 SUM; --oracle litert computes the intended result")
    limits = int_range("uint8" if as_bytes else out.dtype)
    attrs = reductions.MeanAttrs(axes, bool(op.option("keep_dims")), zp_in, multiplier, shift, zp, *limits, out.quant)
    values = _shown_as(op.operand(0), "uint8") if as_bytes else op.operand(0)
    result = op.call("mean" if is_mean else "qnn.sum", [values], attrs)
    return _shown_as(result, "int8") if as_bytes else result


def _shown_as(value: Expr, dtype: str) -> Expr:
    """The same bytes as another type."""
    return call("bitcast", [value], BitcastAttrs(tensor_type(value).shape, dtype), span=value.span)


_LARGEST_SHIFT = 7


def _prod(op: Operator) -> Expr:
    data, out = op.type(0), op.result_type()
    op.require_dtype(out, (data.dtype,), what="a result")
    scale_in, zp_in = op.quant(data, may_be_zero=True)
    scale, zp = op.quant(out, what="the result")
    op.require_symmetric(data.dtype, zp_in, zp)
    axes = op.axes(1, len(data.shape))
    count = prod(data.shape[a] for a in axes)
    if not axes or not count:
        op.refuse("a product of no elements is not supported", code="E1121")
    real = real_multiplier(op.opcode, data.dtype, (scale_in,), (scale ** (1.0 / count),))  # the same in both oracles
    multiplier, shift = quantize_multiplier(min(real, 2.0**31))
    if shift > _LARGEST_SHIFT:
        op.refuse("the output's scale is too small for the inputs' scale", code="E1226")
    attrs = reductions.ProdAttrs(axes, bool(op.option("keep_dims")), zp_in, reduced_multiplier(multiplier), shift, zp, out.quant)
    return op.call("qnn.prod", [op.operand(0)], attrs)


@converter("ARG_MAX", f"bool {_ADDABLE}", "argmax")
@converter("ARG_MIN", f"bool {_ADDABLE}", "argmin")
def _arg_reduce(op: Operator) -> Expr:
    """argmax or argmin along a constant axis."""
    data, out = op.type(0, ("bool", *_ADDABLE.split())), op.result_type(0, ("int32", "int64"))
    axis = op.axis(op.one_int(1), len(data.shape))
    if not data.shape[axis]:
        op.refuse(f"axis {axis} has no elements", code="E1126")
    largest = op.opcode == "ARG_MAX"
    attrs = reductions.ArgReduceAttrs(axis, largest, out.dtype, passes_nan=is_float(data.dtype) and op.oracle != "tflm")
    return op.call("argmax" if largest else "argmin", [op.operand(0)], attrs)


@converter("CUMSUM", "int8 int32 int64 float32", "cumsum qnn.cumsum", oracle="LiteRT; TFLM for int8")
def _cumsum(op: Operator) -> Expr:
    """cumsum of numbers, qnn.cumsum of quantised values."""
    data = op.type(0, (*reductions.CUMSUM_TYPES, "int8"))
    axis = op.axis(op.one_int(1), len(data.shape))
    codes = sum_attrs(op) if data.dtype == "int8" else None
    attrs = reductions.CumSumAttrs(axis, bool(op.option("exclusive")), bool(op.option("reverse")), codes)
    return op.call("cumsum" if codes is None else "qnn.cumsum", [op.operand(0)], attrs)


@converter("TOPK_V2", _ADDABLE, "take topk")
def _topk(op: Operator) -> list[Expr]:
    """The values and their positions; k has to be constant."""
    data, positions = op.type(0, _ADDABLE.split()), op.result_type(1, ("int16", "int32"), what="a position")
    k = op.one_int(1)
    if not data.shape or not 1 <= k <= data.shape[-1]:
        op.refuse(f"k = {k} is out of range for {data}", code="E1122")
    x, rank = op.operand(0), len(data.shape)
    indices = op.call("topk", [x], reductions.TopKAttrs(k, positions.dtype))
    return [op.call("take", [x, indices], TakeAttrs(rank - 1, rank - 1)), indices]


_BODIES = {
    "STABLEHLO_ADD": "ADD", "STABLEHLO_MULTIPLY": "MUL", "STABLEHLO_MAXIMUM": "MAXIMUM", "STABLEHLO_MINIMUM": "MINIMUM",
    "LOGICAL_AND": "ALL", "STABLEHLO_AND": "ALL", "LOGICAL_OR": "ANY",
}  # fmt: skip
"""The operator of STABLEHLO_REDUCE_WINDOW's subgraph -> the reduction, if that has another name."""
MOST_DIMS = 6


@converter("REDUCE_WINDOW", f"bool {_ADDABLE}", "reduce_window")
def _reduce_window(op: Operator) -> Expr:
    _check_windows(op, op.option("reduce_function"))
    window, strides, dilations = (tuple(op.ints(i)) for i in (2, 3, 4))
    return _windows(op, op.operand(0), reductions.ReduceWindowAttrs(op.option("reduce_function"), window, strides, dilations))


@converter("STABLEHLO_REDUCE_WINDOW", f"bool {_ADDABLE}", "nn.pad reduce_window strided_slice")
def _stablehlo_window(op: Operator) -> Expr:
    """Dilate, pad or cut, then reduce_window."""
    data = op.type(0)
    body = op.ctx.operators_of(int(op.option("body_subgraph_index")))
    kind = _BODIES.get(body[0], body[0]) if len(body) == 1 else f"of {len(body)} operators"
    _check_windows(op, kind)
    names = ("window_dimensions", "window_strides", "window_dilations", "base_dilations", "padding")
    window, strides, dilations, base, padding = (tuple(int(n) for n in op.option(name)) for name in names)
    rank, low, high = len(data.shape), padding[::2], padding[1::2]
    if len(base) != rank or len(padding) != 2 * rank or min(base) < 1 or rank > MOST_DIMS:
        op.refuse(f"dilations {base} and paddings {padding} do not match {data}", code="E1207")
    whole = [(n - 1) * d + 1 for n, d in zip(data.shape, base, strict=True)]
    extents = [n + a + z for n, a, z in zip(whole, low, high, strict=True)]
    if min(extents) < 1 or any(n + min(a, 0) + min(z, 0) < 1 for n, a, z in zip(whole, low, high, strict=True)):
        op.refuse(f"paddings {padding} of {whole} leave nothing", code="E1207")
    if prod(whole) > LARGEST_PAD or prod(extents) > LARGEST_PAD:
        op.refuse(f"dilations {base} and paddings {padding} of {data} are not supported", code="E1122")
    expr = op.operand(0)
    if any(padding) or max(base) > 1:
        value = first_number(op.constant(1))
        expr = dilated(op, expr, dilations=base, value=value)
        expr = padded_or_cut(op, expr, low=low, high=high, value=value)
    return _windows(op, expr, reductions.ReduceWindowAttrs(kind, window, strides, dilations))


def _check_windows(op: Operator, kind: str) -> None:
    """Refuse unknown types and functions."""
    data, first = op.type(0, reductions.WINDOWED_TYPES), op.type(1)
    if kind not in reductions.KINDS:
        op.refuse(f"the function {kind} is not supported; only {', '.join(reductions.KINDS)}")
    if data.dtype == "bool" and kind == "ADD":
        op.refuse("sums of bool are not supported, as the reference sums in the bytes of a bool; use ANY instead")
    if first.dtype != data.dtype or first.size != 1 or not data.shape:
        op.refuse(f"windows of {data} cannot start from {first}", code="E1207")


def _windows(op: Operator, expr: Expr, attrs: reductions.ReduceWindowAttrs) -> Expr:
    data = tensor_type(expr)
    numbers = (attrs.window, attrs.strides, attrs.dilations)
    if any(len(n) != len(data.shape) or min(n) < 1 for n in numbers):
        what = f"windows {attrs.window} by {attrs.strides}, dilated {attrs.dilations}"
        op.refuse(f"{what}, of {data} are not supported", code="E1207")
    if any(n < (w - 1) * d + 1 for n, w, d in zip(data.shape, attrs.window, attrs.dilations, strict=True)):
        op.refuse(f"no window {attrs.window} fits {data}", code="E1207")
    return op.call("reduce_window", [expr, op.reshaped(op.operand(1), (1,))], attrs)
