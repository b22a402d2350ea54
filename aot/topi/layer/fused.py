"""FusedLayer: a normalised view of a convolution, depthwise convolution or fully connected layer and everything fused into it.

Kernels see this view only; none of them reads relay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

from aot.errors import Problem, UnsupportedError
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.op.common.te_rule import F_TE, TeContext
from aot.op.nn.conv import Conv2DAttrs, Conv2DTransposeAttrs
from aot.op.qnn.arithmetic import linear_form
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Call, Constant, Var, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr
from aot.tir.function import FuncAttrs
from aot.topi.intrin.scalar import CODES, lookup
from aot.topi.layer.elementwise import Factors, factors_of, te_of
from aot.topi.strategy import Group, Lowered

LAYERS = ("nn.conv2d", "nn.depthwise_conv2d", "nn.dense")
TRANSPOSE = "nn.conv2d_transpose"


@dataclass(frozen=True, slots=True)
class FusedLayer:
    """`acc = sum w*x + bias`, requantised by `requant`; then `epilogue`, the element-wise calls on the result.

    `weight` is int64 with its zero point subtracted: conv [O, KH, KW, I], depthwise [KH, KW, C*M], dense [O, K].
    `bias` is int64 [O]; the zero point of the data is folded in, so x is the data as stored.  `acc_low` and `acc_high`
    bound each channel's accumulator over all possible data.  `weight_dtype` is the type of the weights in flash (int8, int4).
    """

    anchor: Call
    data: Var
    weight: Array
    bias: Array
    attrs: Any
    requant: RequantizeAttrs
    epilogue: tuple[Call, ...]
    out_type: TensorType
    acc_low: Array
    acc_high: Array
    macs: int
    weight_dtype: str = "int8"

    @property
    def data_type(self) -> TensorType:
        return self.data.type

    @property
    def span(self) -> Span:
        return self.anchor.span

    @property
    def channels(self) -> int:
        return int(self.bias.shape[0])


INT8 = frozenset({("int8", "int8"), ("int8", "int4")})
"""Types of (data, weights) that the kernels of an instruction set accept."""

EVERY_KIND = INT8 | {("int8", "int4"), ("int16", "int8")}
"""Types of (data, weights) that the portable kernels accept."""


def match_layer(group: Group, kinds: frozenset[tuple[str, str]] = INT8, *, wide: bool = False) -> FusedLayer | None:
    """The view of a group, or None if its form differs (the generic te path then lowers it) or its types are not in `kinds`.

    With `INT8`, weights minus their zero point fit int8 and accumulators fit int32.  `wide` is for kernels that keep more than
    eight bits per weight: in legacy uint8 models, a weight minus its zero point may need nine.
    """
    anchor = group.anchor
    if anchor.name not in LAYERS:
        return None
    data, weight = anchor.args
    if not isinstance(data, Var) or not isinstance(weight, Constant) or (data.type.dtype, weight.type.dtype) not in kinds:
        return None
    if kinds is INT8 and not wide and not _weights_fit(anchor, weight.data):
        return None
    return _view_of(group)


def match_for(group: Group, target: Target, feature: str, *, wide: bool = False) -> FusedLayer | None:
    """The view of a group whose epilogue kernels can run, if the core has `feature`; `wide` as in `match_layer`."""
    layer = match_layer(group, wide=wide) if target.has(feature) else None
    return layer if layer is not None and supports_epilogue(layer) else None


@lru_cache(16)  # every kernel that competes for a layer asks
def _view_of(group: Group) -> FusedLayer | None:
    """The view of a layer with constant weights of any type; None unless it is requantised to the type of its data."""
    data, weight = group.anchor.args
    assert isinstance(data, Var)
    assert isinstance(weight, Constant)
    rest = split_followers(group, data.type.dtype)
    return None if rest is None else _view(group.anchor, data, weight, *rest)


def split_followers(group: Group, dtype: str) -> tuple[Array, RequantizeAttrs, tuple[Call, ...]] | None:
    """The bias as in the model (zeros without one), the requantisation to `dtype`, and the epilogue; None for other forms."""
    followers, bias = group.followers, np.zeros(tensor_type(group.anchor).shape[-1], np.int64)
    if followers and is_call(followers[0], "nn.bias_add"):
        constant = followers[0].args[1]
        if not isinstance(constant, Constant):
            return None
        followers, bias = followers[1:], constant.data.astype(np.int64)
    if not followers or not is_call(followers[0], "qnn.requantize") or followers[0].attrs.dtype != dtype:
        return None
    return bias, followers[0].attrs, followers[1:]


def _weights_fit(anchor: Call, weight: Array) -> bool:
    zp = int(anchor.attrs.weight_zp)
    return zp == 0 or (int(weight.min()) - zp >= -128 and int(weight.max()) - zp <= 127)


def _view(
    anchor: Call, data: Var, constant: Constant, bias: Array, requant: RequantizeAttrs, epilogue: tuple[Call, ...]
) -> FusedLayer:
    """Fold in the zero points that are still attributes, and bound the accumulators."""
    weight = constant.data.astype(np.int64) - anchor.attrs.weight_zp
    depthwise, out = anchor.name == "nn.depthwise_conv2d", tensor_type(anchor)
    sums = Sums(weight[0] if depthwise else weight, bias, 2 if depthwise else 0, data.type.dtype)
    sums = replace(sums, bias=bias - anchor.attrs.input_zp * sums.over_taps(sums.weight))
    if out.dtype == "int32" and sums.may_overflow:
        raise UnsupportedError(Problem("E1208", "the int32 accumulator of this layer can overflow", str(anchor.span)))
    out_type = tensor_type(epilogue[-1]) if epilogue else out.with_dtype(requant.dtype, requant.quant)
    macs = out.size * int(sums.weight.size) // len(bias)
    layer = FusedLayer(
        anchor, data, weight, bias, anchor.attrs, requant, epilogue, out_type, bias, bias, macs, constant.type.dtype
    )
    return sums.settled(layer, out.dtype)


@dataclass(frozen=True, slots=True)
class Sums:
    """Accumulators of data of a type: weights, whose channels are along one axis (the last one if depthwise), and biases."""

    weight: Array
    bias: Array
    channels: int
    dtype: str

    def over_taps(self, numbers: Array) -> Array:
        """The sum for each channel."""
        sums: Array = numbers.sum(axis=tuple(a for a in range(numbers.ndim) if a != self.channels))
        return sums

    @property
    def may_overflow(self) -> bool:
        """Whether a sum may exceed int32, whatever zero point the data have (int16 data have none)."""
        widest = 256 if self.dtype == "int8" else -int_range(self.dtype)[0]
        return bool((self.over_taps(np.abs(self.weight)) * widest + np.abs(self.bias) >= 1 << 31).any())

    def settled(self, layer: FusedLayer, dtype: str = "int32") -> FusedLayer:
        """The layer with these weights and biases, the bounds of its accumulators of `dtype`, and constant channels settled."""
        ends = [self.weight * end for end in int_range(self.dtype)]
        low, high = (self.bias + self.over_taps(pick(*ends)) for pick in (np.minimum, np.maximum))
        constant, requant, values = settle_constant_channels(layer.requant, low, high, dtype=dtype)
        weight, bias = self.weight, self.bias
        if constant.any():
            weight = np.where(constant if self.channels else constant.reshape(-1, *[1] * (weight.ndim - 1)), 0, weight)
            bias, low, high = (np.where(constant, values, a) for a in (bias, low, high))
        return replace(layer, weight=weight, bias=bias, requant=requant, acc_low=low, acc_high=high)


def settle_constant_channels(
    requant: RequantizeAttrs, low: Array, high: Array, *, dtype: str = "int32"
) -> tuple[Array, RequantizeAttrs, Array]:
    """Give channels with a constant result plain numbers: (mask of these channels, new requantisation, their accumulators).

    Requantisation is monotone: a channel is constant if both bounds of its accumulator give the same result.  It needs no
    weights: an accumulator of 4 * (result - zero point) and the multiplier 1/4 give that result exactly.  Converters leave
    extreme numbers in dead channels (shifts of 36, biases of 2^30), which would rule out the short forms of requantisation.
    """
    shape = TensorType(low.shape, dtype)
    accs = [np.clip(a, *int_range(dtype)).astype(dtype) for a in (low, high)]
    ends = [requant.evaluate(a, out_type=shape).astype(np.int64) for a in accs]
    constant = ends[0] == ends[1]
    if not constant.any():
        return constant, requant, low
    multiplier = np.where(constant, 1 << 30, np.asarray(requant.multiplier, np.int64))
    shift = np.where(constant, -1, np.asarray(requant.shift, np.int64))
    fraction = tuple(map(int, np.where(constant, 0, np.asarray(requant.fraction, np.int64)))) if requant.fraction else ()
    settled = replace(requant, multiplier=tuple(map(int, multiplier)), shift=tuple(map(int, shift)), fraction=fraction)
    return constant, settled, 4 * (ends[0] - requant.zero_point)


def table_of(layer: FusedLayer) -> Array | None:
    """The table, int8[256] indexed by the quantised value, if it is the whole epilogue; else None."""
    if len(layer.epilogue) != 1 or not is_call(layer.epilogue[0], "qnn.lut") or layer.requant.dtype != "int8":
        return None
    return np.asarray(layer.epilogue[0].attrs.table, np.int8)


EPILOGUE_INSTRUCTIONS = 9
"""Instructions per element of an element-wise call in an epilogue (a residual ADD with two products)."""

FIXED_POINT_ADD = 30
"""Instructions per element of a residual ADD with three rescalings."""

TABLE_INSTRUCTIONS = 2
"""Instructions per element of an epilogue that is one table."""

OF_CALLS = {"qnn.lut": 3, "qnn.dequantize": 5}
"""Instructions per element of cheaper calls."""


def epilogue_each(layer: FusedLayer) -> int:
    """Instructions that the epilogue adds per element (estimate from counts under QEMU)."""
    return sum(map(_call_instructions, layer.epilogue)) if table_of(layer) is None else TABLE_INSTRUCTIONS


def _call_instructions(call: Call) -> int:
    if call.name == "qnn.add" and (tensor_type(call).dtype != "int8" or linear_form(call.attrs) is None):
        return FIXED_POINT_ADD
    return OF_CALLS.get(call.name, EPILOGUE_INSTRUCTIONS)


def epilogue_instructions(layer: FusedLayer) -> int:
    """Instructions that the epilogue adds per call of the layer (estimate)."""
    return epilogue_each(layer) * prod(layer.out_type.shape)


Epilogue = Callable[[Expr, tuple[Expr, ...]], Expr]
"""(int8 value, output indices) -> value to store"""


def supports_epilogue(layer: FusedLayer) -> bool:
    """Whether every other operand of the epilogue is a tensor of the output's shape, so that it can be read at the output's
    index.  The layer's own data is excluded, as each kernel reads that in its own form.
    """
    for call in layer.epilogue:
        if call.name not in F_TE:
            return False
        for arg in call.args:
            if isinstance(arg, Constant) or arg is layer.data:
                return False
            if isinstance(arg, Var) and arg.type.shape != layer.out_type.shape:
                return False
    return True


def compose_epilogue(layer: FusedLayer, ctx: TeContext, shape: tuple[int, ...], operands: dict[int, TensorFn]) -> Epilogue:
    """Compose the te rules of the epilogue; `shape`: the output as the kernel indexes it; `operands`: the other Vars by id."""

    def epilogue(value: Expr, indices: tuple[Expr, ...]) -> Expr:
        current = TensorFn(shape, layer.requant.dtype, lambda _b, _i: value)
        results: dict[int, TensorFn] = {}
        for call in layer.epilogue:
            args = [operands.get(id(a)) or results.get(id(a)) or current for a in call.args]
            current = results[id(call)] = te_of(ctx, call, args, shape)
        return current.at(ctx.builder, indices)

    return epilogue


def residual_factors(layer: FusedLayer, target: Target) -> Factors | None:
    """Factors of an epilogue that is one ADD of another int8 tensor, the first factor being the layer's own; else None."""
    if len(layer.epilogue) != 1 or not target.has("dsp"):
        return None
    (add,) = layer.epilogue
    if add.name != "qnn.add" or layer.requant.dtype != "int8":
        return None
    others = [isinstance(a, Var) and a is not layer.data and a.type.dtype == "int8" for a in add.args]
    if others not in ([False, True], [True, False]) or not isinstance(add.args[others.index(False)], Call):
        return None
    factors = factors_of(add.attrs)
    if factors is None or others == [False, True]:
        return factors
    return replace(factors, a=factors.b, b=factors.a)


def describe(kernel: str, **schedule: int) -> str:
    """`generic.conv2d(pixels=1, channels=4)`"""
    inner = ", ".join(f"{k}={v}" for k, v in schedule.items())
    return f"{kernel}({inner})"


# Parameters of a layer's PrimFunc (data, other operands of the epilogue, result, packed constants) and how results are stored.


@dataclass(frozen=True, slots=True)
class LayerIo:
    """The buffers of a layer; `store(indices, value)` runs the epilogue on a requantised int32 value and stores the result.

    `operands`: the other tensors that the epilogue reads.
    """

    data: Buffer
    out: Buffer
    ctx: TeContext
    epilogue: Epilogue | None
    operands: tuple[Buffer, ...] = ()
    table: Buffer | None = None
    """The table of an epilogue that is one table."""

    def store(self, indices: tuple[Expr, ...], value: Expr) -> None:
        self.ctx.builder.store(self.out, indices, self.finished([indices], [value])[0])

    def store_all(self, places: Sequence[tuple[Expr, ...]], values: Iterable[Expr]) -> None:
        """Store several values; a table is looked up for all of them at once, so that its address is loaded once."""
        if self.table is not None:
            values = self.finished(places, list(values))
            for indices, value in zip(places, values, strict=True):
                self.ctx.builder.store(self.out, indices, value)
            return
        for indices, value in zip(places, values, strict=True):
            self.store(indices, value)

    def finished(self, places: Sequence[tuple[Expr, ...]], values: Sequence[Expr]) -> list[Expr]:
        """The results of the epilogue for requantised values (within int8) at the given indices."""
        if self.table is not None:
            codes = self.ctx.builder.local("code", (len(values),), "int32")
            for i, value in enumerate(values):
                self.ctx.builder.store(codes, i, value)
            self.ctx.builder.block(lookup(len(values)), self.table, codes)
            return [codes[i] for i in range(len(values))]
        if self.epilogue is None:
            return list(values)
        return [self.epilogue(value, indices) for indices, value in zip(places, values, strict=True)]

    def index_by_bits(self) -> None:
        """Rotate the table so that the unsigned byte of a result is its index, for kernels that use the stored byte as index."""
        assert self.table is not None
        self.ctx.constants[self.table.name] = np.roll(self.ctx.constants[self.table.name], CODES // 2)

    def constant(self, name: str, data: Array, dtype: str, *, align: int = 4) -> Buffer:
        """Declare an array of packed constants."""
        buffer = self.ctx.builder.const(name, (data.size,), dtype, align=align)
        self.ctx.constants[buffer.name] = data
        return buffer

    @property
    def constants(self) -> dict[str, Array]:
        return dict(self.ctx.constants)


def open_io(
    b: IRBuilder, group: Group, layer: FusedLayer, *, data_shape: tuple[int, ...], out_shape: tuple[int, ...], data_align: int = 1
) -> LayerIo:
    """Declare the buffers: inputs in the order of the group's parameters, operands of the epilogue in the output's shape.

    `data_align` (bytes) is for kernels that read the data word by word.
    """
    data, operands, buffers = None, {}, []
    for var in group.params:
        if var is layer.data and data is None:
            data = b.input("data", data_shape, var.type.dtype, align=data_align)
        else:
            buffers.append(b.input("operand", out_shape, var.type.dtype))
            operands[id(var)] = elements_of(buffers[-1])
    assert data is not None
    ctx = TeContext(b)
    out = b.output("out", out_shape, layer.out_type.dtype)
    codes = table_of(layer)
    if codes is not None:
        table = b.const("table", (codes.size,), "int8")
        ctx.constants[table.name] = codes
        return LayerIo(data, out, ctx, None, (), table)
    epilogue = compose_epilogue(layer, ctx, out_shape, operands) if layer.epilogue else None
    return LayerIo(data, out, ctx, epilogue, tuple(buffers))


def lowered(io: LayerIo, layer: FusedLayer, kernel: str, instructions: int, code: int, **schedule: int) -> Lowered:
    """Finish the function of a layer; return it with its costs."""
    func = io.ctx.builder.finish(FuncAttrs(kernel=describe(kernel, **schedule), span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions, code)


def open_flat(b: IRBuilder, group: Group, layer: FusedLayer) -> LayerIo:
    """`open_io` with data and result as flat arrays."""
    return open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(prod(layer.out_type.shape),))


# Phases of a transposed convolution: results whose index has the same remainder modulo the stride form a convolution of stride 1.
#
# A transposed convolution of stride s inserts s - 1 zeros between data and convolves; most of its products would be with zeros.
# Split by remainder, every phase is an ordinary dense convolution with a subset of the taps.  Output row s*Y + r needs the taps
# first, first + s ... of the window, with first = (r + cut) % s, and the data rows Y + base, Y + base - 1 ... with
# base = (r + cut) / s.  In the order of the data, the last tap comes first.  Columns work likewise.


@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """Rows or columns of a phase: number of results, its taps in the order of the data, and how many taps read data before datum
    Y (the one with the result's own number).
    """

    out: int
    taps: tuple[int, ...]
    before: int

    @property
    def behind(self) -> int:
        return len(self.taps) - 1 - self.before


def phase_axes(*, out: int, kernel: int, stride: int, cut: int) -> list[PhaseAxis]:
    """The axis of each remainder from 0 to stride - 1; some may have no results or no taps."""
    axes = []
    for remainder in range(stride):
        base, first = divmod(remainder + cut, stride)
        taps = tuple(range(first, kernel, stride))[::-1]
        axes.append(PhaseAxis(max(0, -(-(out - remainder) // stride)), taps, len(taps) - 1 - base))
    return axes


@dataclass(frozen=True, slots=True)
class SubPixels:
    """One phase: its remainders (row, column), its rows and columns, and the convolution that computes its results."""

    remainder: tuple[int, int]
    rows: PhaseAxis
    columns: PhaseAxis
    layer: FusedLayer


@dataclass(frozen=True, slots=True)
class SubPixelLayer:
    """A transposed convolution as kernels see it: its phases, and the rows and columns that any of them reads."""

    layer: FusedLayer
    phases: tuple[SubPixels, ...]
    rows: PhaseAxis
    columns: PhaseAxis

    @property
    def window(self) -> FusedLayer:
        """The convolution of stride 1 whose window covers everything that any phase reads; only its shapes matter."""
        whole, rows, columns = self.layer, self.rows, self.columns
        _, height, width, depth = whole.data_type.shape
        bottom, right = (max(0, a.out - 1 + a.behind - (size - 1)) for a, size in ((rows, height), (columns, width)))
        attrs = Conv2DAttrs((1, 1), (rows.before, columns.before, bottom, right), (1, 1), 0, whole.attrs.input_zp)
        weight = np.zeros((whole.channels, len(rows.taps), len(columns.taps), depth), np.int64)
        out = TensorType((1, rows.out, columns.out, whole.channels), "int8", whole.requant.quant)
        return replace(whole, weight=weight, attrs=attrs, out_type=out)


def sub_pixels(group: Group) -> SubPixelLayer | None:
    """The phases of an int8 layer with one image, sums that fit int32, and at most a table as epilogue, if each phase has taps
    and at least one result per datum.
    """
    whole = _match(group)
    if whole is None or (whole.epilogue and table_of(whole) is None):
        return None
    attrs: Conv2DTransposeAttrs = whole.attrs
    _, height, width, _ = whole.data_type.shape
    _, kh, kw, _ = whole.weight.shape
    axes: list[list[PhaseAxis]] = []
    for size, out, kernel, stride, cut in zip((height, width), attrs.size, (kh, kw), attrs.strides, attrs.padding, strict=True):
        axes.append(phase_axes(out=out, kernel=kernel, stride=stride, cut=cut))
        if any(a.out < size or not a.taps for a in axes[-1]):
            return None
    phases = []
    for y, x in product(range(attrs.strides[0]), range(attrs.strides[1])):
        rows, columns = axes[0][y], axes[1][x]
        layer = _phase(whole, rows, columns)
        if layer is None:
            return None
        phases.append(SubPixels((y, x), rows, columns, layer))
    return SubPixelLayer(whole, tuple(phases), _whole(axes[0]), _whole(axes[1]))


def _whole(axes: Sequence[PhaseAxis]) -> PhaseAxis:
    """An axis that covers everything that any of `axes` reads."""
    before, behind = (max(0, *(getattr(a, side) for a in axes)) for side in ("before", "behind"))
    return PhaseAxis(max(a.out for a in axes), tuple(range(before + 1 + behind)), before)


def _match(group: Group) -> FusedLayer | None:
    """The layer, with the zero point subtracted from the weights and the bias as in the model."""
    anchor = group.anchor
    if anchor.name != TRANSPOSE or tensor_type(anchor).dtype != "int32":
        return None
    data, weight = anchor.args
    if not isinstance(data, Var) or not isinstance(weight, Constant) or data.type.dtype != "int8" or data.type.shape[0] > 1:
        return None
    values, rest = weight.data.astype(np.int64) - anchor.attrs.weight_zp, split_followers(group, "int8")
    if rest is None or np.abs(values).max() > 255:
        return None
    bias, requant, epilogue = rest
    out = tensor_type(epilogue[-1]) if epilogue else tensor_type(anchor).with_dtype("int8", requant.quant)
    macs = data.type.size * prod(values.shape[:-1])
    return FusedLayer(anchor, data, values, bias, anchor.attrs, requant, epilogue, out, bias, bias, macs)


def _phase(whole: FusedLayer, rows: PhaseAxis, columns: PhaseAxis) -> FusedLayer | None:
    """The convolution of one phase; data outside of the image is the zero point.  None if its sums may exceed int32."""
    weight = whole.weight[:, rows.taps][:, :, columns.taps]
    sums = Sums(weight, whole.bias - whole.attrs.input_zp * weight.sum(axis=(1, 2, 3)), 0, "int8")
    out = TensorType((1, rows.out, columns.out, whole.channels), "int8", whole.requant.quant)
    return None if sums.may_overflow else sums.settled(replace(whole, epilogue=(), out_type=out, macs=out.size * weight[0].size))
