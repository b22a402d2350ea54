"""Row forms: which input rows a fused function needs for an output row, and the same function over only those rows.

Row-local are windows along the height (convolution, depthwise convolution, pooling), movement that keeps rows separate (pad,
resize by an integer factor) and everything element-wise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aot.ir.op import T_OP_PATTERN, Op, OpPattern
from aot.ir.type import TensorType, Type
from aot.relay.expr import Call, Constant, Expr, Function, Var, call, post_order, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import lowest


@dataclass(frozen=True, slots=True)
class RowPropagator:
    """Output row y reads the `extent` input rows from y * stride // repeat - before on; one of stride and repeat is 1.

    In rows outside the image all elements are `fill` (None: there are no such rows).  So are the columns outside that the window
    covers: `sides` (left, right), with the value `edge`.
    """

    extent: int = 1
    stride: int = 1
    before: int = 0
    repeat: int = 1
    fill: int | float | None = None
    sides: tuple[int, int] = (0, 0)
    edge: int | float = 0

    def window(self, rows: int) -> int:
        """Input rows needed for `rows` output rows that start at a multiple of `repeat`."""
        return rows // self.repeat if self.repeat > 1 else (rows - 1) * self.stride + self.extent

    def advance(self, rows: int) -> int:
        """Input rows between the starts of two consecutive blocks of `rows` output rows."""
        return rows * self.stride // self.repeat

    def first(self, row: int) -> int:
        """The first input row of the block that starts at output row `row`."""
        return row * self.stride // self.repeat - self.before


@dataclass(frozen=True, slots=True)
class RowForm:
    """How a function reads its parameters, one RowPropagator per parameter."""

    inputs: tuple[RowPropagator, ...]

    @property
    def granule(self) -> int:
        """Output rows are computed in multiples of this."""
        return max((r.repeat for r in self.inputs), default=1)


def row_form(func: Function) -> RowForm | None:
    """The row form of a primitive function, or None if it is not row-local.

    At most one operator may have a window, and it must read parameters only; all tensors are [1, H, W, C] with any W and C.
    """
    if not all(_is_image(e.type) for e in (*func.params, func.body)):
        return None
    propagators: dict[int, RowPropagator] = {}
    windowed: set[int] = set()
    for expr in post_order(func.body):
        if isinstance(expr, (Var, Constant)):
            continue
        if not isinstance(expr, Call) or not isinstance(expr.op, Op):
            return None
        rule = _WINDOWS.get(expr.op.name)
        if rule is None:
            if not _is_elementwise(expr):
                return None
            continue
        rows, data = rule(expr), expr.args[0]
        if rows is None or not isinstance(data, Var) or id(data) in propagators or any(isinstance(a, Var) for a in expr.args[1:]):
            return None
        propagators[id(data)] = rows
        windowed.add(id(expr))
    if len(windowed) > 1 or not _windows_alone(func, propagators):
        return None
    return RowForm(tuple(propagators.get(id(v), RowPropagator()) for v in func.params))


def row_variant(func: Function, form: RowForm, rows: int, wide: Sequence[bool] = ()) -> Function:
    """`func` for `rows` output rows at a time: inputs [1, window, W, C], no vertical padding.

    Inputs that are `wide` come with the columns outside (`RowPropagator.sides`), without padding.
    """
    params, widened = [], False
    for k, (v, r) in enumerate(zip(func.params, form.inputs, strict=True)):
        _, _, width, channels = v.type.shape
        if wide and wide[k]:
            width, widened = width + sum(r.sides), True
        params.append(Var(v.name, replace(v.type, shape=(1, r.window(rows), width, channels)), v.span))
    done: dict[int, Expr] = {id(old): new for old, new in zip(func.params, params, strict=True)}
    for expr in post_order(func.body):
        if isinstance(expr, Constant):
            done[id(expr)] = expr
        elif isinstance(expr, Call):
            assert isinstance(expr.op, Op)
            change = _ATTRS.get(expr.op.name)
            attrs = expr.attrs if change is None else change(expr.attrs, rows)
            if widened and expr.op.name in _WINDOWS:
                attrs = replace(attrs, padding=(0, 0, 0, 0))
            done[id(expr)] = call(expr.op, [done[id(a)] for a in expr.args], attrs, span=expr.span)
    return Function(tuple(params), done[id(func.body)], func.attrs)


def _is_image(type_: Type) -> bool:
    return isinstance(type_, TensorType) and len(type_.shape) == 4 and type_.shape[0] == 1 and type_.size > 0


def _is_elementwise(expr: Call) -> bool:
    """Whether row y of the result depends only on row y of the operands; constants must be the same for all rows."""
    assert isinstance(expr.op, Op)
    if T_OP_PATTERN.get(expr.op.name) > OpPattern.BROADCAST or not isinstance(expr.type, TensorType):
        return False
    shape = expr.type.shape
    for arg in expr.args:
        other = tensor_type(arg).shape
        if isinstance(arg, Constant):
            if len(other) >= 3 and other[-3] != 1:
                return False
        elif other != shape:
            return False
    return len(shape) == 4


def _windows_alone(func: Function, windows: Mapping[int, RowPropagator]) -> bool:
    """Whether every parameter that is read through a window is read in no other way."""
    reads = [id(a) for e in post_order(func.body) if isinstance(e, Call) for a in e.args]
    return all(reads.count(v) == 1 for v in windows)


# ---- windows of the operators


def _layer(expr: Call) -> RowPropagator | None:
    kernel = tensor_type(expr.args[1]).shape[1]
    top, left, bottom, right = expr.attrs.padding
    reach, value = (kernel - 1) * expr.attrs.dilation[0] + 1, expr.attrs.pad_value
    return _clean(expr, RowPropagator(reach, expr.attrs.strides[0], top, fill=value, sides=(left, right), edge=value), bottom)


def _max_pool(expr: Call) -> RowPropagator | None:
    top, left, bottom, right = expr.attrs.padding
    fill = lowest(tensor_type(expr).dtype)
    rows = RowPropagator(expr.attrs.pool_size[0], expr.attrs.strides[0], top, fill=fill, sides=(left, right), edge=fill)
    return _clean(expr, rows, bottom)


def _avg_pool(expr: Call) -> RowPropagator | None:
    """A mean counts only rows inside the image, so no row may be outside."""
    top, _, bottom, _ = expr.attrs.padding
    rows = _clean(expr, RowPropagator(expr.attrs.pool_size[0], expr.attrs.strides[0], top, fill=0), bottom)
    return rows if rows is not None and rows.fill is None else None


def _pad(expr: Call) -> RowPropagator | None:
    (_, (top, bottom), _, _) = expr.attrs.pad_width
    return _clean(expr, RowPropagator(before=top, fill=expr.attrs.pad_value), bottom)


def _resize(expr: Call) -> RowPropagator | None:
    """Each input row is repeated the same number of times."""
    rows, height = expr.attrs.rows, tensor_type(expr.args[0]).shape[1]
    factor = len(rows) // height
    return RowPropagator(repeat=factor) if rows == tuple(i // factor for i in range(height * factor)) and factor else None


def _clean(expr: Call, rows: RowPropagator, after: int) -> RowPropagator:
    """`fill` only if a window really leaves the image."""
    height, out = tensor_type(expr.args[0]).shape[1], tensor_type(expr).shape[1]
    last = rows.first(out - 1) + rows.extent - 1
    return rows if rows.before > 0 or (after > 0 and last >= height) else replace(rows, fill=None)


_WINDOWS: Mapping[str, Callable[[Call], RowPropagator | None]] = {
    "nn.conv2d": _layer,
    "nn.depthwise_conv2d": _layer,
    "nn.max_pool2d": _max_pool,
    "nn.avg_pool2d": _avg_pool,
    "nn.pad": _pad,
    "image.resize_nearest": _resize,
}


def _flat_padding(attrs: Any, _rows: int) -> Any:
    _, left, _, right = attrs.padding
    return replace(attrs, padding=(0, left, 0, right))


def _flat_pad(attrs: Any, _rows: int) -> Any:
    n, _, width, channels = attrs.pad_width
    return replace(attrs, pad_width=(n, (0, 0), width, channels))


def _few_rows(attrs: Any, rows: int) -> Any:
    factor = attrs.rows.count(0)
    return replace(attrs, rows=tuple(i // factor for i in range(rows)))


_ATTRS: Mapping[str, Callable[[Any, int], Any]] = {
    "nn.conv2d": _flat_padding,
    "nn.depthwise_conv2d": _flat_padding,
    "nn.max_pool2d": _flat_padding,
    "nn.avg_pool2d": _flat_padding,
    "nn.pad": _flat_pad,
    "image.resize_nearest": _few_rows,
}


def divisors(*numbers: int) -> Sequence[int]:
    """All common divisors, ascending."""
    return [d for d in range(1, min(numbers) + 1) if all(n % d == 0 for n in numbers)]
