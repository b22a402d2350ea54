"""Which rows of its operands an operator reads for a row of its result, along one axis, and the operator over some rows only.

Along axis `a` a row is everything with the same index there.  An operator is local in rows if row r of its result is the same
function, for every r, of the rows from r * stride - before on, `extent` of them, of each operand that has rows; rows outside of
an operand are its padding.  Constants that differ from row to row, or attributes that do, make an operator not local.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from aot.ir.op import T_OP_PATTERN, Op, OpPattern
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, call, is_call, tensor_type
from aot.support.dataclass import dataclass

Range = tuple[int, int]
"""Rows from the first to before the second."""


@dataclass(frozen=True, slots=True)
class RowMap:
    """Row r of the result reads the `extent` rows from r * stride - before on."""

    extent: int = 1
    stride: int = 1
    before: int = 0

    def reads(self, rows: Range) -> Range:
        """The rows that a range of the result reads, those outside of the operand included."""
        return rows[0] * self.stride - self.before, (rows[1] - 1) * self.stride - self.before + self.extent


@dataclass(frozen=True, slots=True)
class RowForm:
    """The axis of the result that its rows lie along, and a RowMap for each operand (None: it has no rows, a constant)."""

    axis: int
    maps: tuple[RowMap | None, ...]


class NotLocalError(ValueError):
    """Why an operator is not local in rows, in words that follow its name; a hop `factor` times as large would help (1: none)."""

    def __init__(self, message: str, factor: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.factor = factor


Axes = Sequence[int | None]
"""For each operand the axis of its rows; None if it has none."""

Rule = Callable[[Call, Axes], RowForm]


def row_form(expr: Call, axes: Axes) -> RowForm:
    """How `expr` reads the rows of its operands, of which one at least has some; NotLocalError where it is not local."""
    if not isinstance(expr.op, Op) or not isinstance(expr.type, TensorType):
        raise NotLocalError("has several results")
    for arg, axis in zip(expr.args, axes, strict=True):
        if axis is None and not isinstance(arg, Constant):
            raise NotLocalError("also reads what does not slide")
    rule = _RULES.get(expr.op.name)
    if rule is None and T_OP_PATTERN.get(expr.op.name) <= OpPattern.BROADCAST and expr.op.name not in _SHAPED:
        rule = _elementwise
    if rule is None:
        raise NotLocalError("reads all rows at once")
    return rule(expr, axes)


def over_rows(expr: Call, form: RowForm, rows: Range, args: Sequence[Expr]) -> Call:
    """`expr` for a range of its rows; `args` are those rows of the operands that exist and that the range reads."""
    assert isinstance(expr.op, Op)
    change = _ATTRS.get(expr.op.name)
    attrs = expr.attrs if change is None else change(expr, form, rows)
    return call(expr.op, args, attrs, span=expr.span)


def clamped(rows: Range, size: int) -> Range:
    """The rows of a range that exist in an operand of `size` rows."""
    return min(max(rows[0], 0), size), min(max(rows[1], 0), size)


def _outside(expr: Call, form: RowForm, rows: Range) -> tuple[int, int]:
    """How many rows that a range reads lie before the first row of operand 0, and after its last one."""
    (row_map, *_), axis = form.maps, form.axis
    assert row_map is not None
    first, stop = row_map.reads(rows)
    return max(0, -first), max(0, stop - tensor_type(expr.args[0]).shape[axis])


# ---- element-wise operators

_SHAPED = frozenset({"broadcast_to", "tile", "full", "qnn.dynamic_params", "qnn.dynamic_quantize", "qnn.hybrid_output"})
"""Operators of element-wise kind whose attributes say the shape, or that look at whole tensors."""


def _elementwise(expr: Call, axes: Axes) -> RowForm:
    axis, out = _common_axis(axes), tensor_type(expr).shape
    for arg, own in zip(expr.args, axes, strict=True):
        shape = tensor_type(arg).shape
        if own is not None and (len(shape) != len(out) or shape[axis] != out[axis]):
            raise NotLocalError("stretches its rows")
        at = axis - (len(out) - len(shape))
        if own is None and at >= 0 and shape[at] != 1:
            raise NotLocalError("has a constant that differs from row to row")
    if (axis == len(out) - 1 or hasattr(expr.attrs, "axis")) and _has_lists(expr.attrs):
        raise NotLocalError("has attributes that differ from row to row")
    return RowForm(axis, tuple(None if a is None else RowMap() for a in axes))


def _has_lists(attrs: Any) -> bool:
    names = getattr(type(attrs), "__dataclass_fields__", ())
    return any(isinstance(v := getattr(attrs, name), tuple) and len(v) > 1 for name in names)


def _common_axis(axes: Axes) -> int:
    found = {a for a in axes if a is not None}
    if len(found) != 1:
        raise NotLocalError("joins rows along different axes")
    return found.pop()


# ---- windows


def _window(expr: Call, axes: Axes) -> RowForm:
    """Convolutions and pooling: [N, H, W, C], rows along H or W."""
    axis = axes[0]
    if axis not in (1, 2) or any(a is not None for a in axes[1:]):
        raise NotLocalError("sums over the axis that slides")
    d = axis - 1
    attrs = expr.attrs
    size = attrs.pool_size[d] if hasattr(attrs, "pool_size") else tensor_type(expr.args[1]).shape[1 + d]
    extent = (size - 1) * getattr(attrs, "dilation", (1, 1))[d] + 1
    before, after = attrs.padding[d], attrs.padding[d + 2]
    if max(before, after) >= extent:
        raise NotLocalError("has more padding than its window")
    return RowForm(axis, (RowMap(extent, attrs.strides[d], before), *[None] * (len(axes) - 1)))


def _cut_window(expr: Call, form: RowForm, rows: Range) -> Any:
    padding = list(expr.attrs.padding)
    padding[form.axis - 1], padding[form.axis + 1] = _outside(expr, form, rows)
    return replace(expr.attrs, padding=tuple(padding))


# ---- movement


def _pad(expr: Call, axes: Axes) -> RowForm:
    axis = _common_axis(axes)
    return RowForm(axis, (RowMap(before=expr.attrs.pad_width[axis][0]),))


def _cut_pad(expr: Call, form: RowForm, rows: Range) -> Any:
    widths = list(expr.attrs.pad_width)
    widths[form.axis] = _outside(expr, form, rows)
    return replace(expr.attrs, pad_width=tuple(widths))


def _slice(expr: Call, axes: Axes) -> RowForm:
    axis = _common_axis(axes)
    step = expr.attrs.strides[axis]
    if step < 1:
        raise NotLocalError("turns time round")
    return RowForm(axis, (RowMap(stride=step, before=-expr.attrs.begin[axis]),))


def _cut_slice(expr: Call, form: RowForm, rows: Range) -> Any:
    begin, extents = list(expr.attrs.begin), list(expr.attrs.extents)
    begin[form.axis], extents[form.axis] = 0, rows[1] - rows[0]
    return replace(expr.attrs, begin=tuple(begin), extents=tuple(extents))


def _reshape(expr: Call, axes: Axes) -> RowForm:
    """Rows stay rows, or a whole number of them becomes one; with nothing but 1 in front of them, or the same sizes."""
    axis, old, new = _common_axis(axes), tensor_type(expr.args[0]).shape, expr.attrs.newshape
    before, size = prod(old[:axis]), old[axis]
    for at, rows in enumerate(new):
        if prod(new[:at]) != before or rows == 1:
            continue
        if rows == size:
            return RowForm(at, (RowMap(),))
        if before == 1 and size % rows == 0:
            return RowForm(at, (RowMap(size // rows, size // rows),))
        break
    raise NotLocalError("takes rows apart or puts them together")


def _cut_reshape(expr: Call, form: RowForm, rows: Range) -> Any:
    shape = list(expr.attrs.newshape)
    shape[form.axis] = rows[1] - rows[0]
    return replace(expr.attrs, newshape=tuple(shape))


def _transpose(expr: Call, axes: Axes) -> RowForm:
    return RowForm(expr.attrs.axes.index(_common_axis(axes)), (RowMap(),))


def _concatenate(expr: Call, axes: Axes) -> RowForm:
    if None in axes:
        raise NotLocalError("joins rows with constants")
    axis = _common_axis(axes)
    if expr.attrs.axis == axis:
        raise NotLocalError("joins tensors along the axis that slides")
    return RowForm(axis, (RowMap(),) * len(axes))


# ---- sums over other axes


def _last_axis(expr: Call, axes: Axes) -> RowForm:
    """Softmax and its like: over the last axis."""
    axis = _common_axis(axes)
    if axis == len(tensor_type(expr).shape) - 1:
        raise NotLocalError("works over the axis that slides")
    return RowForm(axis, (RowMap(),))


def _dense(expr: Call, axes: Axes) -> RowForm:
    if axes[0] != 0 or any(a is not None for a in axes[1:]):
        raise NotLocalError("sums over the axis that slides")
    return RowForm(0, (RowMap(), *[None] * (len(axes) - 1)))


def _reduce(expr: Call, axes: Axes) -> RowForm:
    axis, rank = _common_axis(axes), len(tensor_type(expr.args[0]).shape)
    over = {a % rank for a in expr.attrs.axes}
    if axis in over:
        raise NotLocalError("works over the axis that slides")
    return RowForm(axis if expr.attrs.keepdims else axis - sum(a < axis for a in over), (RowMap(),))


# ---- sound


def _spectrogram(expr: Call, axes: Axes) -> RowForm:
    """[samples, channels] -> [channels, frames, bins]: a frame reads `window` samples, one begins every `stride`."""
    if axes[0] != 0:
        raise NotLocalError("mixes the channels")
    return RowForm(1, (RowMap(expr.attrs.window, expr.attrs.stride),))


_WINDOWS = (
    "nn.conv2d",
    "nn.conv2d_float",
    "nn.depthwise_conv2d",
    "nn.depthwise_conv2d_float",
    "nn.avg_pool2d",
    "nn.max_pool2d",
)

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_WINDOWS, _window),
    **dict.fromkeys(("qnn.softmax", "qnn.softmax16", "qnn.log_softmax", "qnn.l2_normalize", "signal.mfcc"), _last_axis),
    **dict.fromkeys(("mean", "sum", "average", "reduce_max", "reduce_min", "qnn.sum"), _reduce),
    **dict.fromkeys(("nn.dense", "nn.dense_float"), _dense),
    "signal.spectrogram": _spectrogram,
    "nn.pad": _pad,
    "strided_slice": _slice,
    "reshape": _reshape,
    "transpose": _transpose,
    "concatenate": _concatenate,
}

_ATTRS: Mapping[str, Callable[[Call, RowForm, Range], Any]] = {
    **dict.fromkeys(_WINDOWS, _cut_window),
    "nn.pad": _cut_pad,
    "strided_slice": _cut_slice,
    "reshape": _cut_reshape,
}


def is_border(expr: Call, form: RowForm, rows: Range) -> bool:
    """Whether a range of a bordered tensor (nn.pad) is nothing but border."""
    if not is_call(expr, "nn.pad"):
        return False
    (row_map, *_) = form.maps
    assert row_map is not None
    first, stop = clamped(row_map.reads(rows), tensor_type(expr.args[0]).shape[form.axis])
    return first == stop
