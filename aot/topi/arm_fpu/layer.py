"""FloatLayer: the normalised view of a float32 layer with all that is fused to it.

A sum that starts at +0 never becomes -0, so zeros of either sign change no bit of it: taps outside the image are left out, and a
layer without a bias has one of zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.op.te_rule import F_TE, TeContext
from aot.relay.expr import Call, Constant, Var, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn, elements_of
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, imm
from aot.tir.stmt import Region
from aot.topi.arm_fpu.finish import Clamp
from aot.topi.arm_fpu.intrin_add import add_clamped
from aot.topi.generic.elementwise import is_elementwise
from aot.topi.strategy import Group

Bounds = tuple[float | None, float | None]
"""Of a clamp, None if there is none."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension of a sliding window: `out` positions, tap t of position p at p*stride - before + t*dilation."""

    size: int
    out: int
    taps: int = 1
    stride: int = 1
    dilation: int = 1
    before: int = 0

    def inside(self, position: int) -> list[int]:
        """The taps that lie inside the image at an output position."""
        origin = position * self.stride - self.before
        return [t for t in range(self.taps) if 0 <= origin + t * self.dilation < self.size]

    @property
    def after(self) -> int:
        """What the last window reaches beyond the image."""
        return max(0, (self.out - 1) * self.stride - self.before + (self.taps - 1) * self.dilation + 1 - self.size)

    @property
    def never_empty(self) -> bool:
        return all(self.inside(p) for p in range(self.out))

    @property
    def whole(self) -> tuple[int, int]:
        """[first, last) of the positions whose taps are all inside."""
        found = [p for p in range(self.out) if len(self.inside(p)) == self.taps]
        return (found[0], found[-1] + 1) if found else (0, 0)


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """`clamp(sum w*x + bias)`, which is the value of `head`, and then `tail`, element-wise calls on it.

    weight as the operator has it, bias float32[O]; data NHWC with extents batch, `rows.size`, `columns.size` and `depth`.  `lo`
    and `hi` as the attributes have them.
    """

    anchor: Call
    head: Call
    data: Var
    weight: Array
    bias: Array
    lo: float | None
    hi: float | None
    tail: tuple[Call, ...]
    out_type: TensorType
    batch: int
    rows: Axis
    columns: Axis
    depth: int
    macs: int

    @property
    def span(self) -> Span:
        return self.anchor.span

    @property
    def channels(self) -> int:
        return int(self.bias.size)


def match_float_layer(group: Group, operator: str) -> FloatLayer | None:
    """The view of a group anchored at `operator`: constant finite weights, a tap inside for each result, a tail that reads
    tensors of the result's shape and constants only.  None for others.
    """
    anchor = group.anchor
    if not isinstance(anchor.op, Op) or anchor.op.name != operator:
        return None
    data, *constants = anchor.args
    if not isinstance(data, Var):
        return None
    arrays = [c.data for c in constants if isinstance(c, Constant)]
    if len(arrays) < len(constants) or not all(np.isfinite(a).all() for a in arrays):
        return None
    weight = arrays[0]
    out = tensor_type(anchor)
    bias = bias_of(arrays[1:], out.shape[-1])
    batch, rows, columns = _axes(data.type.shape, out.shape, weight, anchor.attrs)
    (lo, hi), head, tail = with_relu((anchor.attrs.lo, anchor.attrs.hi), anchor, group.followers)
    out_type = tensor_type(tail[-1]) if tail else out
    each = weight.size // weight.shape[-1] if operator == "nn.depthwise_conv2d_float" else weight[0].size
    layer = FloatLayer(
        anchor, head, data, weight, bias, lo, hi, tail, out_type, batch, rows, columns, data.type.shape[-1], out.size * each,
    )  # fmt: skip
    return _simplified(layer) if rows.never_empty and columns.never_empty and takes_tail(layer) else None


def bias_of(arrays: Sequence[Array], channels: int) -> Array:
    """The bias, of which there may be none, with 0 for -0 (which added to a sum makes no difference)."""
    return arrays[0].reshape(-1) + np.float32(0) if arrays else np.zeros(channels, np.float32)


def _axes(shape: tuple[int, ...], out: tuple[int, ...], weight: Array, attrs: Any) -> tuple[int, Axis, Axis]:
    """Batch, rows and columns; the rows of a fully connected layer are pixels."""
    if len(shape) == 2:
        return 1, Axis(1, 1), Axis(shape[0], out[0])
    rows, columns = (
        Axis(shape[1 + i], out[1 + i], int(weight.shape[1 + i]), attrs.strides[i], attrs.dilation[i], attrs.padding[i])
        for i in range(2)
    )
    return shape[0], rows, columns


def _simplified(layer: FloatLayer) -> FloatLayer:
    """Pointwise layers as one row of pixels, images of one column as ones of one row."""
    rows, columns = layer.rows, layer.columns
    if all(a.taps == a.stride == 1 and not a.before and a.out == a.size for a in (rows, columns)):
        pixels = layer.batch * rows.size * columns.size
        return replace(layer, batch=1, rows=Axis(1, 1), columns=Axis(pixels, pixels))
    if columns.size == columns.out == columns.taps == 1 and layer.weight.ndim == 4:
        return replace(layer, rows=columns, columns=rows, weight=layer.weight.swapaxes(1, 2))
    return layer


def takes_tail(layer: FloatLayer) -> bool:
    """Whether the tail is made of element-wise operators whose other operands can be read at a pixel and a channel."""
    shape = layer.out_type.shape
    for call in layer.tail:
        if not is_elementwise(call) or tensor_type(call).shape != shape:
            return False
        for arg in call.args:
            if arg is layer.data or (isinstance(arg, Var) and arg.type.shape != shape):
                return False
            if isinstance(arg, Constant) and _by_channel(arg.data, shape) is None:
                return False
    return True


def with_relu(bounds: Bounds, head: Call, tail: tuple[Call, ...]) -> tuple[Bounds, Call, tuple[Call, ...]]:
    """A clamp with the RELUs that follow: its bounds, the last of them, the rest of the tail."""
    while tail and is_call(tail[0], "relu") and not any(a is head for call in tail[1:] for a in call.args):
        (lo, hi), attrs = bounds, tail[0].attrs
        if lo is None or hi is None:
            break
        lo, hi = max(lo, lo if attrs.lo is None else attrs.lo), min(hi, hi if attrs.hi is None else attrs.hi)
        if lo > hi:
            break
        bounds, head, tail = (lo, hi), tail[0], tail[1:]
    return bounds, head, tail


def residual_bounds(layer: FloatLayer) -> Bounds | None:
    """The clamp of a tail that is one ADD of another float32 tensor, with or without a RELU after it; None for others."""
    if not layer.tail or not is_call(layer.tail[0], "add"):
        return None
    add = layer.tail[0]
    others = [a for a in add.args if isinstance(a, Var)]
    if len(others) != 1 or others[0].type.dtype != "float32" or others[0].type.shape != layer.out_type.shape:
        return None
    bounds, _, rest = with_relu((add.attrs.lo, add.attrs.hi), add, layer.tail[1:])
    return None if rest else bounds


def _by_channel(data: Array, shape: tuple[int, ...]) -> Array | None:
    """A constant that broadcasts to `shape`, as one that broadcasts to [pixels, channels]; None if it has no such form."""
    if data.size == 1:
        return data.reshape(1)
    if data.shape == shape:
        return data.reshape(-1, shape[-1])
    return data.reshape(-1) if data.size == data.shape[-1] == shape[-1] else None


class FloatIo:
    """Parameters of the PrimFunc: data and result flat, other operands of the tail, packed constants."""

    def __init__(self, b: IRBuilder, group: Group, layer: FloatLayer, *, run: int, weight: Var | None = None) -> None:
        """`run`: the largest number of results that a kernel's turn yields; `weight`: the weights, where they are a tensor."""
        self._b, self._layer, self._ctx = b, layer, TeContext(b)
        self._tensors: dict[int, TensorFn] = {}
        self._shape = (layer.out_type.size // layer.channels, layer.channels)
        self._other: Buffer | None = None
        data: Buffer | None = None
        self.weight: Buffer | None = None
        for var in group.params:
            if var is layer.data and data is None:
                data = b.input("data", (prod(var.type.shape),), "float32", align=4)
            elif var is weight:
                self.weight = b.input("weight", (prod(var.type.shape),), "float32", align=4)
            else:
                operand = b.input("operand", self._shape, var.type.dtype, align=1 if residual_bounds(layer) is None else 4)
                self._tensors[id(var)] = elements_of(operand)
                self._other = None if residual_bounds(layer) is None else operand
        assert data is not None
        self.data = data
        self.out = b.output("out", (layer.out_type.size,), layer.out_type.dtype, align=4)
        for arg in (a for call in layer.tail for a in call.args):
            if isinstance(arg, Constant):
                values = _by_channel(arg.data, layer.out_type.shape)
                assert values is not None
                self._tensors[id(arg)] = self._ctx.constant("table", values)
        self.results = b.scratch("results", (run,), "float32") if layer.tail else None

    @property
    def constants(self) -> dict[str, Array]:
        return dict(self._ctx.constants)

    def stream(self, data: Array, dtype: str = "float32") -> Buffer:
        """The packed weights and biases, float32 or words that hold some of them in a smaller form."""
        buffer = self._b.const("params", (data.size,), dtype, align=4)
        self._ctx.constants[buffer.name] = data.astype(dtype)
        return buffer

    def target(self, pixel: Expr, channel: Expr, count: int) -> tuple[Region, int]:
        """Where a kernel puts `count` results of a pixel from a channel on, and the elements from there to the next pixel's."""
        if self.results is not None:
            return region(self.results), count
        return region(self.out, pixel * self._layer.channels + channel), self._layer.channels

    def finish(self, pixel: Expr, channel: Expr, *, pixels: int, count: int) -> None:
        """The tail of `count` channels of `pixels` pixels, whose results are in the scratch memory."""
        if self.results is None:
            return
        b, layer, results = self._b, self._layer, self.results
        if self._other is not None:
            at, bounds = pixel * layer.channels + channel, residual_bounds(layer)
            assert bounds is not None
            block = add_clamped(pixels, count, Clamp(*bounds))
            b.block(block, results, region(self._other, at), region(self.out, at), imm(layer.channels))
            return
        for p in range(pixels):
            with b.for_("j", count) as j:
                current = TensorFn(self._shape, "float32", lambda _b, _i, at=p * count + j: results[at])  # type: ignore[misc]
                done = {id(layer.head): current}
                for call in layer.tail:
                    type_ = tensor_type(call)
                    args = [done.get(id(a)) or self._tensors[id(a)] for a in call.args]
                    flat = TensorType(self._shape, type_.dtype, type_.quant)
                    current = done[id(call)] = F_TE.get(str(call.op))(self._ctx, args, call.attrs, flat)
                value = current.at(b, (pixel + p, channel + j))
                b.store(self.out, (pixel + p) * layer.channels + channel + j, value)
