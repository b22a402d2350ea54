"""Sums over rows in int32, and what the reduction over all of them makes of one (analysis/running_sum.py)."""

from __future__ import annotations

from typing import Any

from aot.ir.op import op_info
from aot.ir.span import Span
from aot.relay.analysis.running_sum import RunningSum
from aot.relay.construct import constructor
from aot.relay.expr import Call, Expr, call, is_call, tensor_type
from aot.relay.transform._moved import reshaped, with_span


def sum_of(rows: Expr, axes: tuple[int, ...], span: Span) -> Expr:
    """int32 sums of int8, uint8 or int16 over `axes`, which stay with extent 1, for the operator of `span`."""
    wide = with_span(constructor("cast")(rows, dtype="int32"), span)
    if all(tensor_type(rows).shape[a] == 1 for a in axes):
        return wide
    return with_span(constructor("sum")(wide, axis=axes, keepdims=True), span)


def sum_offset(expr: Expr, total: RunningSum) -> int:
    """What `finished_sum` wants taken off a sum of all rows: the zero points of what is added."""
    assert isinstance(expr, Call)
    return 0 if is_call(expr, "nn.avg_pool2d") else int(expr.attrs.input_zp) * total.count


def finished_sum(expr: Call, total: RunningSum, sums: Expr) -> Expr:
    """`expr` from the sum over all rows, less `sum_offset`."""
    attrs, type_ = expr.attrs, tensor_type(expr)
    common = {"lo": attrs.lo, "hi": attrs.hi, "dtype": type_.dtype, "quant": type_.quant}
    own: dict[str, Any] = {"count": total.count}
    name = "nn.avg_of_sums"
    if not is_call(expr, "nn.avg_pool2d"):
        name = "qnn.requantize"
        own = {"multiplier": (attrs.multiplier,), "shift": (attrs.shift,), "zero_point": attrs.zero_point, "rounding": "double"}
    kind = op_info(name).attrs_type
    assert kind is not None
    made = call(name, [sums], kind(**common, **own), span=expr.span)
    return reshaped(made, type_.shape, expr.span)
