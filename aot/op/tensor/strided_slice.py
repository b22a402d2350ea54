"""strided_slice: STRIDED_SLICE, SLICE, SPLIT, SPLIT_V and UNPACK of TFLite; pure movement of data.

Element i of the result is element begin + i * stride of the data, in each dimension.  What an operator with several results
yields is one strided_slice each; dimensions that appear or vanish (masks, UNPACK) are a reshape, which costs nothing.
Oracles: `reference_ops::StridedSlice`, `Slice`, `Split`, `Unpack`; begin, end, size and strides have to be constant, but for
a STRIDED_SLICE that picks one position of leading dimensions (`x[t]`, `x[t, 0]`): that is a gather_nd.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.check import require_dtype
from aot.op.common.move import MOVABLE, constant_ints, normalized_axis, one_int, reshaped, tensors_of
from aot.op.convert import EVERY, ConvertContext, from_tflite, operand, unsupported
from aot.op.math.arithmetic import BinaryAttrs
from aot.op.te_rule import F_TE, TeContext
from aot.op.tensor.take import GatherNdAttrs
from aot.relay.expr import Constant, call, const, tensor_type
from aot.relay.expr import Expr as RelayExpr
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, tensor_fn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr


@dataclass(frozen=True, slots=True)
class StridedSliceAttrs:
    """First position, step (not 0) and extent in each dimension."""

    begin: tuple[int, ...]
    strides: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def ranges(self) -> list[range]:
        """The positions taken in each dimension."""
        return [range(b, b + s * n, s) for b, s, n in zip(self.begin, self.strides, self.extents, strict=True)]


def infer_type(types: Sequence[Type], attrs: StridedSliceAttrs) -> Type:
    """A tensor -> the same type with the slice's extents."""
    (data,) = tensors_of(types, 1)
    if not len(data.shape) == len(attrs.begin) == len(attrs.strides) == len(attrs.extents) or 0 in attrs.strides:
        raise TypeRuleError(f"strided_slice of {data} by {attrs}")
    for positions, size in zip(attrs.ranges, data.shape, strict=True):
        if len(positions) and not (0 <= positions[0] < size and 0 <= positions[-1] < size):
            raise TypeRuleError(f"strided_slice of {data} takes {positions}")
    return TensorType(attrs.extents, data.dtype, data.quant)


def evaluate(data: Array, *, attrs: StridedSliceAttrs, out_type: TensorType) -> Array:
    slices = tuple(slice(r.start, r.stop if r.stop >= 0 else None, r.step) for r in attrs.ranges)
    return np.ascontiguousarray(data[slices]).reshape(out_type.shape)


def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: StridedSliceAttrs, out_type: TensorType) -> TensorFn:
    def rule(b: IRBuilder, *i: Expr) -> Expr:
        return args[0].at(b, tuple(x * s + o for x, s, o in zip(i, attrs.strides, attrs.begin, strict=True)))

    return tensor_fn(out_type.shape, out_type.dtype, rule)


def sliced(ctx: ConvertContext, op: OperatorView, positions: Sequence[range]) -> RelayExpr:
    """The elements of operand `data` at these positions of each dimension; `data` itself where that is all of it."""
    return slice_of(ctx, op, operand(ctx, op, 0), positions)


def slice_of(ctx: ConvertContext, op: OperatorView, data: RelayExpr, positions: Sequence[range]) -> RelayExpr:
    """The elements of `data` at these positions of each dimension; `data` itself where that is all of it."""
    shape = tensor_type(data).shape
    if all(p == range(n) for p, n in zip(positions, shape, strict=True)):
        return data
    begin = tuple(p.start if len(p) else 0 for p in positions)
    attrs = StridedSliceAttrs(begin, tuple(p.step for p in positions), tuple(map(len, positions)))
    return call("strided_slice", [data], attrs, span=ctx.span(op))


def _pieces(ctx: ConvertContext, op: OperatorView, i: int, axis: int, sizes: Sequence[int]) -> list[RelayExpr]:
    """Operand i cut along an axis."""
    data, type_ = operand(ctx, op, i), ctx.input_type(op, i)
    require_dtype(ctx, op, type_, MOVABLE)
    if sum(sizes) != type_.shape[axis] or len(sizes) != len(op.outputs) or min(sizes) < 0:
        message = f"pieces of {list(sizes)} for {len(op.outputs)} results do not make up {type_.shape[axis]}"
        unsupported(ctx, op, message, code="E1128")
    pieces, begin = [], 0
    for size in sizes:
        positions = [range(n) for n in type_.shape]
        positions[axis] = range(begin, begin + size)
        pieces.append(slice_of(ctx, op, data, positions))
        begin += size
    return pieces


@from_tflite("SPLIT", EVERY, "strided_slice")
def convert_split(ctx: ConvertContext, op: OperatorView) -> list[RelayExpr]:
    """Equal pieces, one slice each; operand 0 is the axis."""
    shape, count = ctx.input_type(op, 1).shape, len(op.outputs)
    axis = normalized_axis(ctx, op, one_int(ctx, op, 0), len(shape))
    if count == 0 or shape[axis] % count:
        unsupported(ctx, op, f"{shape[axis]} elements do not divide into {count} results", code="E1128")
    return _pieces(ctx, op, 1, axis, [shape[axis] // count] * count)


@from_tflite("SPLIT_V", EVERY, "strided_slice")
def convert_split_v(ctx: ConvertContext, op: OperatorView) -> list[RelayExpr]:
    """Pieces of the given sizes, of which one may be -1."""
    shape = ctx.input_type(op, 0).shape
    axis = normalized_axis(ctx, op, one_int(ctx, op, 2), len(shape))
    sizes = constant_ints(ctx, op, 1)
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    return _pieces(ctx, op, 0, axis, sizes)


@from_tflite("UNPACK", EVERY, "strided_slice")
def convert_unpack(ctx: ConvertContext, op: OperatorView) -> list[RelayExpr]:
    """One slice of extent 1 for each result, without that dimension."""
    shape = ctx.input_type(op, 0).shape
    axis = normalized_axis(ctx, op, int(op.option("axis")), len(shape))
    pieces = _pieces(ctx, op, 0, axis, [1] * shape[axis])
    return [reshaped(p, shape[:axis] + shape[axis + 1 :], ctx.span(op)) for p in pieces]


@from_tflite("SLICE", EVERY, "strided_slice")
def convert_slice(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """`size` elements from `begin` on; a size of -1 is all that follow."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, MOVABLE)
    begin, size = constant_ints(ctx, op, 1), constant_ints(ctx, op, 2)
    if len(begin) != len(data.shape) or len(size) != len(data.shape):
        unsupported(ctx, op, f"begin {begin} and size {size} do not fit {len(data.shape)} dimensions", code="E1128")
    positions = []
    for b, s, n in zip(begin, size, data.shape, strict=True):
        count = n - b if s == -1 else s
        if b < 0 or count < 0 or b + count > n:
            unsupported(ctx, op, f"a slice of {s} elements from {b} leaves a dimension of {n}", code="E1128")
        positions.append(range(b, b + count))
    return sliced(ctx, op, positions)


@dataclass(frozen=True, slots=True)
class _Spec:
    """STRIDED_SLICE's operands and masks; bit i of a mask speaks of entry i."""

    begin: Sequence[int]
    end: Sequence[int]
    strides: Sequence[int]
    masks: dict[str, int]
    offset: bool

    def has(self, mask: str, i: int) -> bool:
        return bool(self.masks[mask] >> i & 1)

    def positions(self, i: int, size: int) -> range:
        """What entry i takes of a dimension; IndexError where it drops the dimension and the position does not exist."""
        stride, start = self.strides[i], self.begin[i]
        if self.has("shrink_axis_mask", i):
            if self.has("begin_mask", i):
                start = 0
            if not -size <= start < size:
                raise IndexError(f"position {start} of {size}")
            return range(start % size, start % size + 1)
        first = None if self.has("begin_mask", i) else start
        last = None if self.has("end_mask", i) else self.end[i]
        if last is not None and self.offset:  # `end` counts from the first position
            begins = range(size)[slice(first, None, stride)]
            last += begins.start
        return range(size)[slice(first, last, stride)]


_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _entries(spec: _Spec, rank: int) -> tuple[list[int | None], list[int]]:
    """For each dimension of the data the entry that slices it (None: all of it), and where new dimensions of 1 go.

    Positions of new dimensions count in the list of the data's dimensions, before any is dropped.
    """
    count = len(spec.begin)
    ellipsis = next((i for i in range(count) if spec.has("ellipsis_mask", i)), None)
    is_new = [spec.has("new_axis_mask", i) and not spec.has("ellipsis_mask", i) for i in range(count)]
    slicing = sum(not n for n in is_new) - (ellipsis is not None)
    entries: list[int | None] = []
    new: list[int] = []
    for i in range(count):
        if i == ellipsis:
            entries += [None] * (rank - slicing)
        elif is_new[i]:
            new.append(len(entries))
        else:
            entries.append(i)
    return entries + [None] * (rank - len(entries)), new


def _picked(ctx: ConvertContext, op: OperatorView, masks: Mapping[str, int]) -> RelayExpr | None:
    """x[t] where t comes at run time: gather_nd; every entry drops its dimension.  None if it is no such slice.

    A position below 0 counts from the end, which the remainder of the division by the extent says.
    """
    begin, data = operand(ctx, op, 1), operand(ctx, op, 0)
    type_, shape = tensor_type(begin), tensor_type(data).shape
    count = type_.size
    if isinstance(begin, Constant) or type_.dtype not in ("int32", "int64") or not 0 < count <= len(shape):
        return None
    others = {m: v for m, v in masks.items() if m != "shrink_axis_mask"}
    if any(others.values()) or masks["shrink_axis_mask"] != (1 << count) - 1 or 0 in shape[:count]:
        return None
    extents = const(np.array(shape[:count], type_.dtype), span=ctx.span(op))
    whole = reshaped(begin, (count,), ctx.span(op))
    inside = call("floor_mod", [whole, extents], BinaryAttrs(), span=ctx.span(op))
    return call("gather_nd", [data, inside], GatherNdAttrs(), span=ctx.span(op))


@from_tflite("STRIDED_SLICE", EVERY, "strided_slice")
def convert(ctx: ConvertContext, op: OperatorView) -> RelayExpr:
    """strided_slice with all masks resolved, then a reshape to the declared dimensions."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, MOVABLE)
    masks = {m: int(op.option(m)) for m in _MASKS}
    picked = _picked(ctx, op, masks)
    if picked is not None:
        return picked
    begin, end, strides = (constant_ints(ctx, op, i) for i in (1, 2, 3))
    if not len(begin) == len(end) == len(strides) or 0 in strides or masks["ellipsis_mask"].bit_count() > 1:
        unsupported(ctx, op, f"begin {begin}, end {end}, strides {strides} do not fit together", code="E1128")
    spec = _Spec(begin, end, strides, masks, bool(op.option("offset")))
    rank = len(data.shape)
    entries, new = _entries(spec, rank)
    if masks["ellipsis_mask"] and None not in entries:
        unsupported(ctx, op, "an ellipsis that stands for no dimension means one thing to TensorFlow and another to TFLite")
    if len(entries) != rank:
        unsupported(ctx, op, f"begin {begin} has more entries than {list(data.shape)} has dimensions", code="E1128")
    try:
        positions = [range(n) if e is None else spec.positions(e, n) for e, n in zip(entries, data.shape, strict=True)]
    except IndexError as error:
        unsupported(ctx, op, str(error), code="E1128")
    shape: list[int] = []
    for i, (entry, taken) in enumerate(zip(entries, positions, strict=True)):
        shape += [1] * new.count(i)
        if entry is None or not spec.has("shrink_axis_mask", entry):
            shape.append(len(taken))
    shape += [1] * new.count(rank)
    return reshaped(sliced(ctx, op, positions), shape, ctx.span(op))


register_op(
    "strided_slice",
    1,
    arguments=[("data", "any", "the operand")],
    attrs_type=StridedSliceAttrs,
    pattern=OpPattern.INJECTIVE,
    infer_type=infer_type,
    evaluate=evaluate,
    doc="STRIDED_SLICE (all masks), SLICE, SPLIT, SPLIT_V, UNPACK; constant positions",
)
F_TE.set("strided_slice", te_rule)
