"""Depthwise convolution with one small function for all layers: kernels of up to 7 columns, strides 1 and 2.

One channel at a time: its image, or a band of rows, becomes a plane of 16-bit numbers with its border, its weights pairs (see
intrin_depthwise_pairs), and four results of a line are summed at once.  The geometry is read from a header in front of the
weights, which take one byte each (rows rounded up to pairs).  Scratch: the plane, BAND_BYTES at most for images of some size,
and 8 bytes for each pair.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from aot.ir.op import Array
from aot.op.impl import Group, Impl, Lowered, register_impl
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, equal, logical_and, minimum
from aot.tir.function import FuncAttrs
from aot.topi.arm_dsp.depthwise import PACKED_SCALE, Axis, Numbers, axes, band_height, is_supported, plan_numbers
from aot.topi.arm_dsp.intrin_depthwise_pairs import (
    MAX_WORDS,
    OUTPUTS,
    rest_columns,
    row_words,
    sum_instructions,
    sum_pairs,
    unpack_pairs,
)
from aot.topi.fused import FusedLayer, describe, match_layer
from aot.topi.layer_io import LayerIo, open_io

MAX_PITCH = 512
HEADER = (
    "channels",
    "height",
    "copied",
    "top",
    "left",
    "out_height",
    "out_width",
    "row",
    "column",
    "out_row",
    "band",
    "pad",
    "kernel_rows",
    "words",
    "pitch",
    "stride_rows",
    "stride",
    "plane",
    "packed",
    "bands",
)
FIELDS = ("bias", "multiplier", "constant", "shift")


@dataclass(frozen=True, slots=True)
class _Plan:
    layer: FusedLayer
    numbers: Numbers
    rows: Axis
    columns: Axis

    @property
    def words(self) -> int:
        """Pairs of a kernel row."""
        return row_words(self.columns.taps)

    @property
    def packed(self) -> int:
        """Words of the stream that hold a channel's weights."""
        return -(-self.rows.taps * self.words // 2)

    @property
    def copied(self) -> int:
        columns = self.columns
        return max(0, min(columns.size, (columns.out - 1) * columns.stride + columns.taps - columns.before))

    @property
    def pitch(self) -> int:
        columns = self.columns
        needed = max((columns.out - 1) * columns.stride + columns.taps, columns.before + self.copied)
        return needed + needed % 2

    @property
    def band(self) -> int:
        return band_height(self.rows, line_bytes=2 * self.pitch)

    @property
    def plane(self) -> int:
        """Elements, with what the last block reads beyond the last line."""
        lines = (self.band - 1) * self.rows.stride + self.rows.taps
        last = (self.columns.out - 1) // OUTPUTS * OUTPUTS * self.columns.stride
        size = lines * self.pitch + max(0, last + rest_columns(self.words, self.columns.stride) - self.pitch)
        return size + size % 2

    def header(self) -> Array:
        rows, columns = self.rows, self.columns
        values = (self.layer.channels, rows.size, self.copied, rows.before, columns.before, rows.out, columns.out)
        steps = (rows.data_step, columns.data_step, rows.out_step, self.band, self.layer.attrs.pad_value, rows.taps)
        more = (self.words, self.pitch, rows.stride, columns.stride, self.plane, self.packed, -(-rows.out // self.band))
        return np.asarray([*values, *steps, *more], np.int32)

    def instructions(self) -> int:
        """Of one call (from counts under QEMU)."""
        rows, columns = self.rows, self.columns
        bands = -(-rows.out // self.band)
        lines = rows.out * rows.stride + bands * max(0, rows.taps - rows.stride)
        blocks = rows.out * -(-columns.out // OUTPUTS)
        total = 40 + 11 * self.packed + 30 * bands + lines * (3 * self.copied + 24) + 14 * rows.out
        total += blocks * (24 + sum_instructions(self.words, columns.stride, rows.taps))
        return self.layer.channels * (total + rows.out * columns.out * 9) + self.plane * 2


@lru_cache(maxsize=16)
def _plan(group: Group, target: Target) -> _Plan | None:
    layer = match_layer(group)
    if layer is None or not is_supported(layer, target):
        return None
    if layer.data_type.shape[0] > 1 or layer.attrs.multiplier > 1:
        return None
    rows, columns = axes(layer)
    numbers = plan_numbers(layer, target, packed=True)
    if numbers is None or row_words(columns.taps) > MAX_WORDS or columns.stride > 2 or {rows.dilation, columns.dilation} != {1}:
        return None
    plan = _Plan(layer, numbers, rows, columns)
    return plan if plan.pitch <= MAX_PITCH else None


def accepts(group: Group, target: Target) -> bool:
    return _plan(group, target) is not None


def stream(plan: _Plan) -> Array:
    """int32: the header, then for each channel the packed words of its weights (see unpack_pairs) and the FIELDS."""
    weight = plan.numbers.weight >> PACKED_SCALE
    kh, kw, channels = weight.shape
    taps = np.zeros((channels, kh, 2 * plan.words), np.int64)
    taps[:, :, :kw] = weight.transpose(2, 0, 1)
    flat = np.zeros((channels, 4 * plan.packed), np.int64)
    flat[:, : kh * 2 * plan.words] = taps.reshape(channels, -1)
    quads = np.ascontiguousarray(flat.reshape(channels, -1, 2, 2).transpose(0, 1, 3, 2).astype(np.int8))
    multiplier, constant, shift = (f.values for f in plan.numbers.requant.fields)
    numbers = np.stack([plan.numbers.bias, multiplier, constant, shift], axis=1).astype(np.int32)
    records = np.concatenate([quads.reshape(channels, -1).view(np.int32), numbers], axis=1)
    return np.concatenate([plan.header(), records.reshape(-1)])


def lower(group: Group, target: Target, name: str) -> Lowered:
    plan = _plan(group, target)
    assert plan is not None
    layer = plan.layer
    b = IRBuilder(name)
    io = open_io(b, group, layer, data_shape=(prod(layer.data_type.shape),), out_shape=(prod(layer.out_type.shape),))
    params = io.constant("params", stream(plan), "int32")
    plane = b.scratch("plane", (plan.plane,), "int16", align=4)
    pairs = b.scratch("pairs", (8 * plan.packed,), "int16", align=4)
    n = {field: b.let(field, params[i]) for i, field in enumerate(HEADER)}
    with b.for_("i", n["plane"]) as i:
        b.store(plane, i, n["pad"])
    kernel = _Kernel(b, plan, n, io=io, planes=(plane, pairs))
    with b.for_("c", n["channels"]) as c:
        at = b.let("w", c * (n["packed"] + len(FIELDS)) + len(HEADER))
        b.block(unpack_pairs(), region(params, at * 4, dtype="int8"), region(pairs), n["packed"])
        fields = tuple(b.let(field, params[at + (n["packed"] + i)]) for i, field in enumerate(FIELDS))
        with b.for_("band", n["bands"]) as band:
            y = b.let("y", band * n["band"])
            count = b.let("rows", minimum(n["band"], n["out_height"] - y))
            kernel.copy(c, y=y, count=count)
            kernel.lines(fields, y=y, count=count, at=c)
    func = b.finish(FuncAttrs(kernel=describe("arm_dsp.depthwise_pairs"), span=layer.span, macs=layer.macs))
    return Lowered(func, io.constants, instructions=plan.instructions(), code=CODE + 60 * plan.numbers.requant.signed)


CODE = 1220
"""Bytes."""


class _Kernel:
    """The steps of one channel; `n` are the header's fields."""

    def __init__(self, b: IRBuilder, plan: _Plan, n: dict[str, Var], *, io: LayerIo, planes: tuple[Buffer, Buffer]) -> None:
        self._b, self._plan, self._n, self._io = b, plan, n, io
        self._plane, self._pairs = planes

    def copy(self, channel: Expr, *, y: Expr, count: Expr) -> None:
        """The lines that `count` result rows from `y` on read, padding where they lie outside; the border's columns stay."""
        b, n, plane = self._b, self._n, self._plane
        top = b.let("above", y * n["stride_rows"] - n["top"])
        with b.for_("r", (count - 1) * n["stride_rows"] + n["kernel_rows"]) as r:
            line = b.let("line", top + r)
            at = b.let("at", r * n["pitch"] + n["left"])
            with b.if_(logical_and(line >= 0, line < n["height"])):
                self._pixels(at, b.let("s", channel + line * n["row"]))
            with b.else_(), b.for_("p", n["copied"]) as p:
                b.store(plane, at + p, n["pad"])

    def _pixels(self, at: Expr, start: Expr) -> None:
        """Four pixels a turn, then those left over."""
        b, n, data, plane = self._b, self._n, self._io.data, self._plane
        step = n["column"]
        whole = b.let("whole", (n["copied"] >> 2) * 4)
        with b.for_("p", whole, step=4) as p:
            pixel = b.let("pixel", start + p * step)
            for u in range(4):
                b.store(plane, at + p + u, data.load("int8", pixel + step * u))
        with b.for_("p", n["copied"], start=whole) as p:
            b.store(plane, at + p, data.load("int8", start + p * step))

    def lines(self, fields: tuple[Expr, ...], *, y: Expr, count: Expr, at: Expr) -> None:
        """`count` result rows from `y` on."""
        b, n = self._b, self._n
        with b.for_("r", count) as r:
            line = b.let("line", r * n["stride_rows"] * n["pitch"])
            out = b.let("o", at + (y + r) * n["out_row"])
            with b.for_("x", n["out_width"], step=OUTPUTS) as x:
                acc = self._sums(fields[0], line + x * n["stride"])
                self._store(acc, fields[1:], out=b.let("at", out + x * n["channels"]), left=b.let("left", n["out_width"] - x))

    def _sums(self, bias: Expr, start: Expr) -> Buffer:
        b, n = self._b, self._n
        acc = b.local("acc", (OUTPUTS,), "int32")
        for j in range(OUTPUTS):
            b.store(acc, j, bias)
        operands = (region(self._plane, b.let("x0", start)), region(self._pairs), acc, n["kernel_rows"], n["words"], n["pitch"])
        with b.if_(equal(n["stride"], 1)):
            b.block(sum_pairs(1), *operands)
        with b.else_():
            b.block(sum_pairs(2), *operands)
        return acc

    def _store(self, acc: Buffer, fields: tuple[Expr, ...], *, out: Expr, left: Expr) -> None:
        """The results of a block that lie within the line, `left` or four."""
        b, requant = self._b, self._plan.numbers.requant
        with ExitStack() as inside:
            for j in range(OUTPUTS):
                if j:
                    inside.enter_context(b.if_(left > j))
                self._io.store((out + self._n["channels"] * j,), requant.emit_scaled(b, acc[j], fields))


register_impl(Impl("arm_dsp.depthwise_pairs", "nn.depthwise_conv2d", accepts, lower, plevel=24))
