"""Rows of an image as 16-bit numbers less a zero point, zeros around them, in a ring of scratch memory."""

from __future__ import annotations

from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, cast, imm, logical_and, select
from aot.topi.arm_dsp.few.intrin import LANES, PIXELS, widen_4
from aot.topi.layer.fused import FusedLayer

MOST_SCRATCH = 1 << 14
"""Bytes."""


@dataclass(frozen=True, slots=True, eq=False)
class Ring:
    """`span` rows of `pitch` halves for the windows of `layer`, whose weights count by shape only; `zp` is taken off the data."""

    layer: FusedLayer
    zp: int
    span: int
    pitch: int

    @classmethod
    def of(cls, layer: FusedLayer, zp: int) -> Ring | None:
        """None where it is too large."""
        _, kh, kw, depth = layer.weight.shape
        outputs = max(layer.out_type.shape[2], PIXELS)
        columns = max((outputs - 1) * layer.attrs.strides[1] + kw, layer.attrs.padding[1] + layer.data_type.shape[2])
        pitch = (columns * depth + 2) // 2 * 2  # of an odd window one half more is read
        ring = cls(layer, zp, (kh - 1) * layer.attrs.dilation[0] + 1, pitch)
        return ring if 2 * ring.span * pitch <= MOST_SCRATCH else None

    def open(self, b: IRBuilder) -> Buffer:
        """The scratch memory, with the zeros to the left and right of every row, which nothing overwrites."""
        rows = b.scratch("rows", (self.span * self.pitch,), "int16", align=4)
        _, _, width, depth = self.layer.data_type.shape
        left = self.layer.attrs.padding[1] * depth
        right = left + width * depth
        with b.for_("z", self.span) as z:
            at = b.let("at", z * self.pitch)
            if left:
                with b.for_("k", left) as k:
                    b.store(rows, at + k, 0)
            with b.for_("k", self.pitch - right) as k:
                b.store(rows, at + right + k, 0)
        return rows

    def fill(self, b: IRBuilder, data: Buffer, rows: Buffer, *, image: Expr, y: Expr) -> None:
        """Put the rows that the windows of row `y` are the first to cover into the ring."""
        layer = self.layer
        _, height, width, depth = layer.data_type.shape
        (stride, _), (top, left, _, _) = layer.attrs.strides, layer.attrs.padding
        size = width * depth
        whole = size - size % LANES
        start = select(y > 0, imm(max(self.span - stride, 0)), imm(0))
        with b.for_("r", self.span, start=start) as r:
            at = b.let("at", (y * stride + r) % self.span * self.pitch + left * depth)
            line = b.let("line", y * stride + r - top)
            with b.if_(logical_and(line >= 0, line < height)):
                source = b.let("source", (image * height + line) * size)
                if whole:
                    b.block(widen_4(), region(data, source), region(rows, at), imm(self.zp), imm(whole))
                for k in range(whole, size):
                    b.store(rows, at + k, cast("int32", data[source + k]) - self.zp)
            with b.else_(), b.for_("k", size) as column:
                b.store(rows, at + column, 0)

    def row(self, number: Expr) -> Expr:
        """Where a row begins, of a number below twice the span."""
        return select(number >= self.span, number - self.span, number) * self.pitch

    def open_instructions(self) -> int:
        """Of `open`."""
        return self.span * (3 * (self.pitch - self.layer.data_type.shape[2] * self.layer.data_type.shape[3]) + 8)

    def fill_instructions(self) -> int:
        """Of `fill` for all rows of one image."""
        layer = self.layer
        _, height, width, depth = layer.data_type.shape
        (stride, _), top = layer.attrs.strides, layer.attrs.padding[0]
        ring, outputs = (0 if self.span == 1 else 16), int(layer.out_type.shape[1])
        lines = [y * stride + r - top for y in range(outputs) for r in range(max(self.span - stride, 0) if y else 0, self.span)]
        inside = sum(1 for line in lines if 0 <= line < height)
        size = int(width * depth)
        total = inside * (9 * (size // LANES) + 4 * (size % LANES) + 14 + ring) + (len(lines) - inside) * (5 * size // 4 + 30)
        return total + outputs * (8 + ring)
