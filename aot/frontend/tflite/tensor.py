"""Converters of operators that arrange elements: shapes, slices, padding, blocks, repetition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from aot.frontend.tflite.convert import EVERY, Operator, converter
from aot.frontend.tflite.retyped import moves_halves
from aot.ir.op import Array
from aot.ir.type import TensorType, per_tensor
from aot.numerics.fixed_point import round_half_away
from aot.op import tensor as ops
from aot.op.common.tensors import INDEX_TYPES, MOVABLE
from aot.op.gather import GatherNdAttrs
from aot.op.math.arithmetic import BinaryAttrs, SelectAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import Requantize8Attrs
from aot.relay.expr import Constant, Expr, const, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float, numpy_dtype

Shape = tuple[int, ...]


@converter("RESHAPE", f"{EVERY} complex64", "reshape")
@converter("EXPAND_DIMS", f"{EVERY} complex64", "reshape")
@converter("SQUEEZE", f"{EVERY} complex64", "reshape")
def _reshape(op: Operator) -> Expr:
    """reshape to dimensions that follow from the operand and from constants."""
    new_shape = {"RESHAPE": _reshaped, "EXPAND_DIMS": _expanded, "SQUEEZE": _squeezed}[op.opcode]
    return op.call("reshape", [op.operand(0)], ops.ReshapeAttrs(new_shape(op, op.type(0).shape)))


def _reshaped(op: Operator, data: Shape) -> Shape:
    """Operand 1, or the option, with -1 replaced by the remaining extent.  Without either, the file's declared shape."""
    if op.input(1) is not None:
        shape = op.ints(1)
    elif op.option("new_shape"):
        shape = [] if tuple(op.option("new_shape")) == (0,) else list(op.option("new_shape"))  # (0,): a scalar, in old files
    else:
        declared = op.result_shape()
        if declared is None:
            op.refuse("the new shape is missing", code="E1205")
        return declared
    product = prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and product > 0:
        shape[shape.index(-1)] = prod(data) // product
    return tuple(shape)


def _expanded(op: Operator, data: Shape) -> Shape:
    """One more dimension, at the axis."""
    values = op.constant(1).ravel()
    axis = int(values[0]) if values.size == 1 else len(data) + 1
    if not -len(data) - 1 <= axis <= len(data):
        op.refuse(f"axis {values.tolist()} of {len(data) + 1} dimensions is not supported", code="E1126")
    axis %= len(data) + 1
    return (*data[:axis], 1, *data[axis:])


def _squeezed(op: Operator, data: Shape) -> Shape:
    """Without the listed dimensions, or without all that are 1."""
    named = op.option("squeeze_dims")
    if any(not -len(data) <= d < len(data) or data[d] != 1 for d in named):
        op.refuse(f"dimensions {list(named)} of shape {list(data)} are not all 1", code="E1115")
    gone = {d % len(data) for d in named} if named else {i for i, n in enumerate(data) if n == 1}
    return tuple(n for i, n in enumerate(data) if i not in gone)


# SHAPE, RANK, RANGE, BROADCAST_ARGS and ZEROS_LIKE of TFLite: values that are known at compile time.
#
# Shapes are static here, so these give constants; `fold_constant`, or the converters that need a number, do all arithmetic on
# them.  Oracles: `kernels/shape.cc`, `rank.cc`, `range.cc`, `broadcast_args.cc`, `zeros_like.cc`.


@converter("SHAPE", EVERY, "")
@converter("RANK", EVERY, "")
def _shape(op: Operator) -> Expr:
    """The extents of the operand, or their number, a scalar."""
    out, shape = op.result_type(0, INDEX_TYPES), op.type(0).shape
    return const(np.array(shape if op.opcode == "SHAPE" else len(shape), numpy_dtype(out.dtype)), span=op.span)


MAX_RANGE = 1 << 20
"""Maximum elements of a range, which is computed here one by one."""


@converter("RANGE", "int32 int64 float32", "")
def _range(op: Operator) -> Expr:
    """start, start + delta, ... up to limit (exclusive), all constants."""
    out = op.result_type(0, ("int32", "int64", "float32"))
    dtype = numpy_dtype(out.dtype)
    start, limit, delta = (op.constant(i).astype(dtype).ravel()[:1] for i in range(3))
    if 0 in (start.size, limit.size, delta.size) or delta[0] == 0:
        op.refuse("start, limit and delta must be scalars, and delta not 0", code="E1130")
    # range.cc counts ceil(abs((limit - start) / delta)), in integers or in the data's type
    if out.dtype == "float32":
        span, step = limit[0] - start[0], delta[0]
        count = int(np.ceil(np.abs(span / step)))
    else:
        span, step = int(limit[0]) - int(start[0]), int(delta[0])
        count = -(-abs(span) // abs(step))
    if (span > 0) != (step > 0) and span != 0:
        op.refuse(f"steps of {step} never cover a range of {span}", code="E1130")
    if count > MAX_RANGE:
        op.refuse(f"a range of {count} numbers, more than {MAX_RANGE}", code="E1216")
    values = np.empty(count, dtype)
    value = start[0]
    for i in range(count):  # a running sum, as the reference computes it
        values[i] = value
        value = dtype.type(value + delta[0]) if i + 1 < count else value
    return const(values, span=op.span)


@converter("BROADCAST_ARGS", "int32 int64", "")
def _broadcast_args(op: Operator) -> Expr:
    """The shape that two shapes broadcast to; both and the result int32 or int64, as in the reference."""
    op.require_dtype(op.result_type(), ("int32", "int64"), what="a result")
    a, b = op.ints(0), op.ints(1)
    try:
        shape = np.broadcast_shapes(tuple(a), tuple(b))
    except ValueError:
        op.refuse(f"shapes {a} and {b} do not broadcast", code="E1132")
    return const(np.array(shape, numpy_dtype(op.result_type().dtype)), span=op.span)


@converter("ZEROS_LIKE", EVERY, "full")
def _zeros_like(op: Operator) -> Expr:
    """full of 0 (the quantised value 0 for quantised types, as in the reference)."""
    data = op.type(0, MOVABLE)
    zero = const(np.zeros((1,), numpy_dtype(data.dtype)), quant=data.quant, span=op.span)
    return op.call("full", [zero], ops.FullAttrs(data.shape))


@converter("TRANSPOSE", EVERY, "transpose")
def _transpose(op: Operator) -> Expr:
    """transpose; negative axes count from the end."""
    data = op.type(0, MOVABLE)
    rank = len(data.shape)
    axes = tuple(int(a) + rank if a < 0 else int(a) for a in op.constant(1).ravel())
    if sorted(axes) != list(range(rank)):
        op.refuse(f"{list(axes)} is not a permutation of {rank} dimensions", code="E1126")
    return op.call("transpose", [op.operand(0)], ops.TransposeAttrs(axes))


def scaled_codes(data: tuple[float, int], out: tuple[float, int]) -> tuple[int, ...]:
    """The result of ConcatenationWithScaling for each of the 256 values, in float32 as it computes them, less 128."""
    scale = np.float32(data[0]) * (np.float32(1) / np.float32(out[0]))
    values = np.arange(256).astype(np.float32) * scale + np.float32(-data[1]) * scale
    return tuple(min(max(round_half_away(float(v)) + out[1], 0), 255) - 128 for v in values)


def _rescaled_operand(op: Operator, i: int, out: TensorType) -> Expr:
    """Operand i in the result's quantised values: itself, or through a table, for which uint8 becomes int8 and back."""
    type_, expr = op.type(i), op.operand(i)
    legacy = out.dtype == type_.dtype == "uint8" and out.quant is not None and type_.quant is not None
    if not legacy or (op.quant(type_) == op.quant(out)):
        op.require_same_quant(type_, out)
        return expr
    (scale_in, zp_in), (scale, zp) = op.quant(type_), op.quant(out, what="the result")
    one = (1 << 30, 1)  # the multiplier 1/2 shifted left once
    signed = per_tensor(scale, zp - 128)
    down = Requantize8Attrs(zp_in, *one, zp_in - 128, -128, 127, "int8", per_tensor(scale_in, zp_in - 128))
    codes = op.call("qnn.requantize8", [expr], down)
    table = LutAttrs(scaled_codes((scale_in, zp_in), (scale, zp)), signed)
    back = Requantize8Attrs(zp - 128, *one, zp, 0, 255, "uint8", out.quant)
    return op.call("qnn.requantize8", [op.call("qnn.lut", [codes], table)], back)


@converter("CONCATENATION", EVERY, "concatenate")
def _concatenate(op: Operator) -> Expr:
    """concatenate; a single operand is passed on."""
    out = op.result_type(0, MOVABLE, what="data")
    if op.option("fused_activation_function") != "NONE":
        op.refuse("a fused activation is not supported (TFLite rejects it too)")
    axis = int(op.option("axis"))
    axis = axis + len(op.type(0).shape) if axis < 0 else axis
    return op.call("concatenate", [_rescaled_operand(op, i, out) for i in range(len(op.inputs))], ops.ConcatenateAttrs(axis))


# PACK of TFLite: tensors side by side along a new axis, as a concatenation of reshapes; only moves data.
#
# Oracle: `reference_ops::Pack`; TFLite requires the same quantisation for all operands and the result.


@converter("PACK", EVERY, "concatenate")
def _pack(op: Operator) -> Expr:
    """Each operand with an extent of 1 at the axis, concatenated."""
    op.require_dtype(op.result_type(), MOVABLE)
    data = op.type(0).shape
    axis = op.axis(int(op.option("axis")), len(data) + 1)
    parts = [op.reshaped(op.operand(i), (*data[:axis], 1, *data[axis:])) for i in range(len(op.inputs))]
    return parts[0] if len(parts) == 1 else op.call("concatenate", parts, ops.ConcatenateAttrs(axis))


def _pieces(op: Operator, i: int, axis: int, sizes: Sequence[int]) -> list[Expr]:
    """Operand i cut along an axis."""
    data, type_ = op.operand(i), op.type(i, MOVABLE)
    if sum(sizes) != type_.shape[axis] or len(sizes) != len(op.outputs) or min(sizes) < 0:
        op.refuse(f"pieces of {list(sizes)} for {len(op.outputs)} results do not add up to {type_.shape[axis]}", code="E1128")
    before, after = [range(n) for n in type_.shape[:axis]], [range(n) for n in type_.shape[axis + 1 :]]
    ends = np.cumsum(sizes).tolist()
    return [op.slice_of(data, (*before, range(end - n, end), *after)) for n, end in zip(sizes, ends, strict=True)]


@converter("SPLIT", EVERY, "strided_slice")
def _split(op: Operator) -> list[Expr]:
    """Equal pieces, one slice each; operand 0 is the axis."""
    shape, count = op.type(1).shape, len(op.outputs)
    axis = op.axis(op.one_int(0), len(shape))
    if count == 0 or shape[axis] % count:
        op.refuse(f"{shape[axis]} elements do not divide into {count} results", code="E1128")
    return _pieces(op, 1, axis, [shape[axis] // count] * count)


@converter("SPLIT_V", EVERY, "strided_slice")
def _split_v(op: Operator) -> list[Expr]:
    """Pieces of the given sizes, one of which may be -1."""
    shape = op.type(0).shape
    axis, sizes = op.axis(op.one_int(2), len(shape)), op.ints(1)
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = shape[axis] - sum(sizes) - 1
    return _pieces(op, 0, axis, sizes)


@converter("UNPACK", EVERY, "strided_slice")
def _unpack(op: Operator) -> list[Expr]:
    """One slice of extent 1 for each result, without that dimension."""
    shape = op.type(0).shape
    axis = op.axis(int(op.option("axis")), len(shape))
    pieces = _pieces(op, 0, axis, [1] * shape[axis])
    return [op.reshaped(p, shape[:axis] + shape[axis + 1 :]) for p in pieces]


@converter("SLICE", EVERY, "strided_slice")
def _slice(op: Operator) -> Expr:
    """`size` elements from `begin` on; a size of -1 means all remaining ones."""
    data = op.type(0, MOVABLE)
    begin, size = op.ints(1), op.ints(2)
    if len(begin) != len(data.shape) or len(size) != len(data.shape):
        op.refuse(f"begin {begin} and size {size} do not fit {len(data.shape)} dimensions", code="E1128")
    positions = []
    for b, s, n in zip(begin, size, data.shape, strict=True):
        count = n - b if s == -1 else s
        if b < 0 or count < 0 or b + count > n:
            op.refuse(f"a slice of {s} elements from {b} exceeds a dimension of {n}", code="E1128")
        positions.append(range(b, b + count))
    return op.slice_of(op.operand(0), positions)


@dataclass(frozen=True, slots=True)
class _SliceSpec:
    """STRIDED_SLICE's operands and masks; bit i of a mask belongs to entry i."""

    begin: Sequence[int]
    end: Sequence[int]
    strides: Sequence[int]
    masks: dict[str, int]
    offset: bool

    def has(self, mask: str, i: int) -> bool:
        return bool(self.masks[mask] >> i & 1)

    def positions(self, i: int, size: int) -> range:
        """The positions that entry i selects from a dimension; IndexError if it drops the dimension at an invalid position."""
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
            last += range(size)[slice(first, None, stride)].start
        return range(size)[slice(first, last, stride)]


_SLICE_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


def _slice_entries(spec: _SliceSpec, rank: int) -> tuple[list[int | None], list[int]]:
    """For each dimension of the data the entry that slices it (None: all of it), and the places of new dimensions of 1.

    Positions of new dimensions refer to the data's dimensions, before any is dropped.
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


def _picked(op: Operator, masks: Mapping[str, int]) -> Expr | None:
    """x[t] with t computed at run time: gather_nd; every entry drops its dimension.  None if it is not such a slice.

    A negative position counts from the end: the remainder of the division by the extent gives it.
    """
    begin, data = op.operands(1, 0)
    type_, shape = tensor_type(begin), tensor_type(data).shape
    count = type_.size
    if isinstance(begin, Constant) or type_.dtype not in ("int32", "int64") or not 0 < count <= len(shape):
        return None
    others = {m: v for m, v in masks.items() if m != "shrink_axis_mask"}
    if any(others.values()) or masks["shrink_axis_mask"] != (1 << count) - 1 or 0 in shape[:count]:
        return None
    extents = const(np.array(shape[:count], type_.dtype), span=op.span)
    inside = op.call("floor_mod", [op.reshaped(begin, (count,)), extents], BinaryAttrs())
    return op.call("gather_nd", [data, inside], GatherNdAttrs())


@converter("STRIDED_SLICE", EVERY, "strided_slice")
def _strided_slice(op: Operator) -> Expr:
    """strided_slice with all masks resolved, then a reshape to the declared dimensions."""
    data = op.type(0, MOVABLE)
    masks = {m: int(op.option(m)) for m in _SLICE_MASKS}
    if (picked := _picked(op, masks)) is not None:
        return picked
    begin, end, strides = (op.ints(i) for i in (1, 2, 3))
    if not len(begin) == len(end) == len(strides) or 0 in strides or masks["ellipsis_mask"].bit_count() > 1:
        op.refuse(f"begin {begin}, end {end}, strides {strides} do not fit together", code="E1128")
    spec = _SliceSpec(begin, end, strides, masks, bool(op.option("offset")))
    rank = len(data.shape)
    entries, new = _slice_entries(spec, rank)
    if masks["ellipsis_mask"] and None not in entries:
        op.refuse("an ellipsis for zero dimensions is not supported, as TensorFlow and TFLite disagree on its meaning")
    if len(entries) != rank:
        op.refuse(f"begin {begin} has more entries than {list(data.shape)} has dimensions", code="E1128")
    try:
        positions = [range(n) if e is None else spec.positions(e, n) for e, n in zip(entries, data.shape, strict=True)]
    except IndexError as error:
        op.refuse(str(error), code="E1128")
    shape: list[int] = []
    for i, (entry, taken) in enumerate(zip(entries, positions, strict=True)):
        shape += [1] * new.count(i)
        if entry is None or not spec.has("shrink_axis_mask", entry):
            shape.append(len(taken))
    shape += [1] * new.count(rank)
    return op.reshaped(op.slice_of(op.operand(0), positions), shape)


def _padded(op: Operator, value: int | float) -> Expr:
    data = op.type(0, MOVABLE)
    amounts = op.constant(1)
    if amounts.shape != (len(data.shape), 2) or (amounts < 0).any():
        op.refuse(f"paddings {amounts.tolist()} do not fit {len(data.shape)} dimensions", code="E1127")
    return op.call("nn.pad", [op.operand(0)], ops.PadAttrs(tuple((int(a), int(z)) for a, z in amounts), value))


@converter("PAD", EVERY, "bitcast nn.pad")
@moves_halves
def _pad(op: Operator) -> Expr:
    """nn.pad with the output's zero point."""
    out = op.result_type()
    zero = 0.0 if is_float(out.dtype) else out.quant.zero_point[0] if out.quant is not None else 0
    return _padded(op, zero)


@converter("PADV2", EVERY, "bitcast nn.pad")
@moves_halves
def _padv2(op: Operator) -> Expr:
    """nn.pad with the value of operand 2."""
    value = op.constant(2)
    if value.size != 1 or str(value.dtype) != op.type(0).dtype:
        op.refuse("the padding value must be one number of the data's type", code="E1121")
    op.require_same_quant(op.type(0), op.type(2))
    return _padded(op, value.ravel()[0].item())


@converter("MIRROR_PAD", EVERY, "mirror_pad")
def _mirror_pad(op: Operator) -> Expr:
    data, amounts = op.type(0, MOVABLE), op.constant(1)
    if amounts.shape != (len(data.shape), 2):
        op.refuse(f"paddings {amounts.tolist()} do not fit {len(data.shape)} dimensions", code="E1127")
    attrs = ops.MirrorPadAttrs(tuple((int(a), int(b)) for a, b in amounts), op.option("mode") == "SYMMETRIC")
    for n, pair in zip(data.shape, attrs.pad_width, strict=True):
        if min(pair) < 0 or max(pair) > n - attrs.skipped:
            op.refuse(f"{n} elements cannot be mirrored to pad by {pair}", code="E1127")
    return op.call("mirror_pad", [op.operand(0)], attrs)


# DILATE and STABLEHLO_PAD of TFLite, from reshape, pad and slice: constant elements between and around a tensor's elements.
#
# Each dimension of n elements becomes (n - 1) * d + 1.  Dilations and the inserted element must be constant.
# STABLEHLO_PAD then adds elements at both ends of a dimension, or, for negative numbers, removes some.
# Oracles: `kernels/dilate.cc`, `kernels/stablehlo_pad.cc`.


LARGEST_PAD = 1 << 24
"""Maximum elements of a result."""


def first_number(data: Array) -> float:
    """The first element, a bool as 0 or 1."""
    value = data.ravel()[0]
    return float(value) if data.dtype.kind == "f" else int(value)


@converter("DILATE", EVERY, "bitcast nn.pad strided_slice")
@moves_halves
def _dilate(op: Operator) -> Expr:
    """For each dimension: pad each element to `dilation` elements, and drop those after the last element."""
    data = op.type(0, MOVABLE)
    dilations, between = op.ints(1), op.constant(2)
    if len(dilations) != len(data.shape) or between.size != 1 or op.type(2).dtype != data.dtype:
        op.refuse(f"dilations {dilations} with {between.size} elements between do not match {data}", code="E1207")
    size = 1
    for extent, dilation in zip(data.shape, dilations, strict=True):
        size *= (extent - 1) * dilation + 1
        if dilation < 1 or extent < 1 or size > LARGEST_PAD:
            op.refuse(f"dilations {dilations} of {data} are not supported", code="E1122")
    return dilated(op, op.operand(0), dilations=dilations, value=first_number(between))


@converter("STABLEHLO_PAD", EVERY, "bitcast nn.pad strided_slice")
@moves_halves
def _stablehlo_pad(op: Operator) -> Expr:
    """Dilate each dimension, then pad it, then cut."""
    data, between = op.type(0, MOVABLE), op.constant(1)
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, inner = ([int(n) for n in op.option(name)] for name in names)
    rank = len(data.shape)
    if not rank or any(len(n) != rank for n in (low, high, inner)) or between.size != 1 or op.type(1).dtype != data.dtype:
        op.refuse(f"paddings {low}, {high}, {inner} do not match {data}", code="E1207")
    size = 1
    for extent, a, z, i in zip(data.shape, low, high, inner, strict=True):
        size *= (extent - 1) * (i + 1) + 1 + max(a, 0) + max(z, 0)
        if i < 0 or extent < 1 or (extent - 1) * (i + 1) + 1 + a + z < 1 or size > LARGEST_PAD:
            op.refuse(f"paddings {low}, {high}, {inner} of {data} are not supported", code="E1122")
    value = first_number(between)
    result = dilated(op, op.operand(0), dilations=[i + 1 for i in inner], value=value)
    return padded_or_cut(op, result, low=low, high=high, value=value)


def dilated(op: Operator, data: Expr, *, dilations: Sequence[int], value: float) -> Expr:
    """Each dimension of n elements as (n - 1) * d + 1, with `value` between them."""
    for axis, dilation in enumerate(dilations):
        if dilation > 1:
            shape = tensor_type(data).shape
            before, n, after = shape[:axis], shape[axis], shape[axis + 1 :]
            widths = [(0, 0)] * (len(shape) + 1)
            widths[axis + 1] = (0, dilation - 1)
            padded = op.call("nn.pad", [op.reshaped(data, (*before, n, 1, *after))], ops.PadAttrs(tuple(widths), value))
            positions = [range(extent) for extent in (*before, (n - 1) * dilation + 1, *after)]
            data = op.slice_of(op.reshaped(padded, (*before, n * dilation, *after)), positions)
    return data


def padded_or_cut(op: Operator, data: Expr, *, low: Sequence[int], high: Sequence[int], value: float) -> Expr:
    """Elements of `value` added at the two ends of each dimension, or elements removed for negative numbers."""
    widths = tuple((max(a, 0), max(z, 0)) for a, z in zip(low, high, strict=True))
    if any(map(any, widths)):
        data = op.call("nn.pad", [data], ops.PadAttrs(widths, value))
    ends = zip(tensor_type(data).shape, low, high, strict=True)
    return op.slice_of(data, [range(-min(a, 0), n + min(z, 0)) for n, a, z in ends])


# SPACE_TO_DEPTH, DEPTH_TO_SPACE, SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND of TFLite: one transposition between two reshapes,
# with a padding before or a slice after it; only moves data.
#
# Oracles: `reference_ops::SpaceToDepth`, `DepthToSpace`, `SpaceToBatchND` (which pads with the zero point), `BatchToSpaceND`.


def _shuffled(op: Operator, data: Expr, *, split: Sequence[int], axes: Sequence[int], shape: Sequence[int]) -> Expr:
    """`data` viewed as `split`, its dimensions permuted, viewed as `shape`."""
    return op.reshaped(op.call("transpose", [op.reshaped(data, split)], ops.TransposeAttrs(tuple(axes))), shape)


def _block_image(op: Operator) -> tuple[TensorType, int]:
    """The operand's type, which has 4 dimensions, and the block size."""
    data, block = op.type(0, MOVABLE), int(op.option("block_size"))
    if len(data.shape) != 4 or block < 1:
        op.refuse(f"block size {block} does not match {data}", code="E1129")
    return data, block


@converter("SPACE_TO_DEPTH", EVERY, "transpose")
def _space_to_depth(op: Operator) -> Expr:
    """[N, H*b, W*b, C] -> [N, H, W, b*b*C]."""
    data, b = _block_image(op)
    n, h, w, c = data.shape
    if h % b or w % b:
        op.refuse(f"{h} x {w} does not divide into blocks of {b}", code="E1129")
    split, shape = (n, h // b, b, w // b, b, c), (n, h // b, w // b, b * b * c)
    return _shuffled(op, op.operand(0), split=split, axes=(0, 1, 3, 2, 4, 5), shape=shape)


@converter("DEPTH_TO_SPACE", EVERY, "transpose")
def _depth_to_space(op: Operator) -> Expr:
    """[N, H, W, b*b*C] -> [N, H*b, W*b, C]."""
    data, b = _block_image(op)
    n, h, w, c = data.shape
    if c % (b * b):
        op.refuse(f"{c} channels do not form blocks of {b}", code="E1129")
    split, shape = (n, h, w, b, b, c // (b * b)), (n, h * b, w * b, c // (b * b))
    return _shuffled(op, op.operand(0), split=split, axes=(0, 1, 3, 2, 4, 5), shape=shape)


def _blocks(op: Operator) -> tuple[TensorType, list[int], Array]:
    """The operand's type, the block of each spatial dimension and their (before, after) pairs."""
    data, blocks, pairs = op.type(0, MOVABLE), op.ints(1), op.constant(2)
    fits = len(data.shape) > len(blocks) and pairs.shape == (len(blocks), 2) and min(blocks, default=0) >= 1
    if not fits or (pairs < 0).any():
        op.refuse(f"blocks {blocks} with {pairs.tolist()} of {data} are not supported", code="E1129")
    return data, blocks, pairs


@converter("SPACE_TO_BATCH_ND", EVERY, "transpose")
def _space_to_batch(op: Operator) -> Expr:
    """[N, S*b, C] -> [b*N, S, C] after padding S."""
    data, blocks, pairs = _blocks(op)
    x, channels = op.operand(0), len(data.shape) - 1 - len(blocks)
    width = ((0, 0), *((int(a), int(b)) for a, b in pairs), *[(0, 0)] * channels)
    if any(map(any, width)):
        out = op.result_type()
        zero = out.quant.zero_point[0] if out.quant is not None else 0.0 if data.dtype == "float32" else 0
        x = op.call("nn.pad", [x], ops.PadAttrs(width, zero))
    batch, *sizes = tensor_type(x).shape
    space, channel_pads = sizes[: len(blocks)], sizes[len(blocks) :]
    if any(n % b for n, b in zip(space, blocks, strict=True)):
        op.refuse(f"{space} does not divide into blocks of {blocks}", code="E1129")
    outer = [n // b for n, b in zip(space, blocks, strict=True)]
    split = [batch, *(k for pair in zip(outer, blocks, strict=True) for k in pair), *channel_pads]
    inner_axes = [2 + 2 * i for i in range(len(blocks))]
    axes = [*inner_axes, 0, *(i - 1 for i in inner_axes), *range(1 + 2 * len(blocks), len(split))]
    return _shuffled(op, x, split=split, axes=axes, shape=(batch * prod(blocks), *outer, *channel_pads))


@converter("BATCH_TO_SPACE_ND", EVERY, "transpose")
def _batch_to_space(op: Operator) -> Expr:
    """[b*N, S, C] -> [N, S*b, C], with the crops removed."""
    data, blocks, pairs = _blocks(op)
    count, *sizes = data.shape
    space, channels = sizes[: len(blocks)], sizes[len(blocks) :]
    batch = count
    for b in blocks:
        if batch % b:
            op.refuse(f"a batch of {count} does not form blocks of {blocks}", code="E1129")
        batch //= b
    k = len(blocks)
    split = [*blocks, batch, *space, *channels]
    axes = [k, *(a for i in range(k) for a in (k + 1 + i, i)), *range(2 * k + 1, len(split))]
    grown = [n * b for n, b in zip(space, blocks, strict=True)]
    whole = _shuffled(op, op.operand(0), split=split, axes=axes, shape=(batch, *grown, *channels))
    kept = [range(int(a), n - int(b)) for n, (a, b) in zip(grown, pairs, strict=True)]
    if any(r.stop < r.start for r in kept):
        op.refuse(f"crops {pairs.tolist()} do not fit {grown}", code="E1127")
    return op.slice_of(whole, [range(batch), *kept, *map(range, channels)])


@converter("BROADCAST_TO", EVERY, "broadcast_to")
def _broadcast_to(op: Operator) -> Expr:
    """broadcast_to, or a reshape if nothing is repeated."""
    data, shape = op.type(0, MOVABLE), tuple(op.ints(1))
    x = op.operand(0)
    if any(n < 0 for n in shape):
        op.refuse(f"cannot broadcast to {list(shape)}", code="E1132")
    if np.prod(shape) == data.size:
        return op.reshaped(x, shape)
    return op.call("broadcast_to", [x], ops.BroadcastToAttrs(shape))


@converter("TILE", EVERY, "tile")
def _tile(op: Operator) -> Expr:
    """tile, or the data unchanged if nothing is repeated."""
    data, reps = op.type(0, MOVABLE), tuple(op.ints(1))
    if len(reps) != len(data.shape) or any(r < 0 for r in reps):
        op.refuse(f"multiples {list(reps)} do not fit {len(data.shape)} dimensions", code="E1132")
    x = op.operand(0)
    return x if all(r == 1 for r in reps) else op.call("tile", [x], ops.TileAttrs(reps))


@converter("REVERSE_V2", EVERY, "reverse")
def _reverse(op: Operator) -> Expr:
    """reverse along constant axes."""
    data = op.type(0, MOVABLE)
    axes = tuple(sorted({op.axis(a, len(data.shape)) for a in op.ints(1)}))
    return op.call("reverse", [op.operand(0)], ops.ReverseAttrs(axes))


@converter("REVERSE_SEQUENCE", EVERY, "reverse_sequence")
def _reverse_sequence(op: Operator) -> Expr:
    """reverse_sequence; the lengths may be computed at run time."""
    data = op.type(0, MOVABLE)
    op.require_dtype(op.type(1), ("int32", "int64"), what="a length")
    seq, batch = (op.axis(int(op.option(name)), len(data.shape)) for name in ("seq_dim", "batch_dim"))
    if seq == batch:
        op.refuse(f"sequences and batch are both dimension {seq}", code="E1126")
    return op.call("reverse_sequence", op.operands(0, 1), ops.ReverseSequenceAttrs(seq, batch))


@converter("FILL", EVERY, "full")
def _fill(op: Operator) -> Expr:
    """full in the shape of operand 0."""
    value, shape = op.type(1, MOVABLE), tuple(op.ints(0))
    if value.size != 1 or any(n < 0 for n in shape):
        op.refuse(f"cannot fill {list(shape)} with {value}", code="E1132")
    return op.call("full", [op.reshaped(op.operand(1), (1,))], ops.FullAttrs(shape))


# MATRIX_DIAG and MATRIX_SET_DIAG of TFLite, from `select` with a constant mask: rows on the diagonals of matrices.
#
# Elements off the diagonal are 0 (for quantised values too, whatever the zero point) or come from another matrix.
# Oracles: `kernels/matrix_diag.cc`, `kernels/matrix_set_diag.cc`.


DIAGONAL_TYPES = "int8 uint8 int16 int32 int64 float32"


@converter("MATRIX_DIAG", DIAGONAL_TYPES, "reshape select")
def _matrix_diag(op: Operator) -> Expr:
    """[..., n] -> [..., n, n]."""
    data = op.type(0, DIAGONAL_TYPES.split())
    if not data.shape or not data.size:
        op.refuse(f"{data} has no rows", code="E1207")
    n = data.shape[-1]
    rows = op.reshaped(op.operand(0), (*data.shape[:-1], 1, n))
    mask = const(np.eye(n, dtype=np.bool_))
    zeros = const(np.zeros((), numpy_dtype(data.dtype)), quant=data.quant, dtype=data.dtype)
    return op.call("select", [mask, rows, zeros], SelectAttrs(data.quant))


@converter("MATRIX_SET_DIAG", DIAGONAL_TYPES, "reshape select")
def _matrix_set_diag(op: Operator) -> Expr:
    """[..., r, c] with [..., min(r, c)] on its diagonals."""
    data, diagonal = op.type(0, DIAGONAL_TYPES), op.type(1)
    op.require_dtype(diagonal, {data.dtype}, what="a diagonal")
    if len(data.shape) < 2 or diagonal.shape != (*data.shape[:-2], min(data.shape[-2:])) or not data.size:
        op.refuse(f"{diagonal} is not the diagonal of {data}", code="E1207")
    height, width = data.shape[-2:]
    along = (height, 1) if height <= width else (1, width)
    rows = op.reshaped(op.operand(1), (*data.shape[:-2], *along))
    mask = const(np.eye(height, width, dtype=np.bool_))
    return op.call("select", [mask, rows, op.operand(0)], SelectAttrs(data.quant))


# WHERE and UNIQUE of TFLite on values known at compile time, since only then is the shape of the result known.
#
# Oracles: `reference_ops::SelectTrueCoords`; `kernels/unique.cc`.


WHERE_TYPES = "bool int8 uint8 int32 uint32 int64 float32"
UNIQUE_TYPES = "int8 uint8 int16 int32 int64 float32"


@converter("WHERE", WHERE_TYPES, "", oracles=("litert",))
def _where(op: Operator) -> Expr:
    """The positions of non-zero elements (as stored: quantisation is ignored), int64 [positions, dimensions]."""
    shape = op.type(0, WHERE_TYPES.split()).shape
    op.require_dtype(op.result_type(), {"int64"}, what="a result")
    if not shape:
        op.refuse("the operand must have at least one dimension")
    return const(np.argwhere(op.constant(0) != 0).astype(np.int64), span=op.span)


@converter("UNIQUE", UNIQUE_TYPES, "", oracles=("litert",))
def _unique(op: Operator) -> list[Expr]:
    """The distinct values in order of first occurrence, and for each element the index of its value."""
    type_, index, span = op.type(0, UNIQUE_TYPES.split()), op.result_type(1, {"int32", "int64"}), op.span
    data = op.constant(0)
    if data.ndim != 1 or not data.size or (data != data).any():  # in the reference's map NaN equals the first value that it meets
        op.refuse("the operand must be a non-empty vector without NaN")
    _, first, inverse = np.unique(data, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    values, indices = data[np.sort(first)], rank[inverse.reshape(-1)].astype(numpy_dtype(index.dtype))
    return [const(values, quant=type_.quant, span=span), const(indices, span=span)]
