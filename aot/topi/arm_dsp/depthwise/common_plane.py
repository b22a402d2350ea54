"""Shared by depthwise kernels that serve layers of any size: one channel's plane, and the geometry as data.

A channel's image, or a band of its rows, becomes a plane of 16-bit numbers of a fixed distance of rows with its border.  The
kernel reads sizes and steps from a header before its weights, so that the function is the same for all layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import Expr, Var, imm, maximum, minimum
from aot.topi.arm_dsp.depthwise.intrin_pairs import copy_lines
from aot.topi.arm_dsp.depthwise.planes import BAND_BYTES, Axis
from aot.topi.layer.fused import FusedLayer

HEADER = (
    "channels", "height", "copied", "top", "left", "out_height", "out_width",
    "row", "column", "out_row", "band", "bands", "pad", "plane", "stride", "stride_rows",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanePlan:
    """`pitch`: elements from row to row, even; `beyond`: columns that a kernel reads from the last output's window on."""

    layer: FusedLayer
    rows: Axis
    columns: Axis
    pitch: int
    beyond: int

    @property
    def used(self) -> int:
        """Columns of the padded image that results depend on."""
        return (self.columns.out - 1) * self.columns.stride + self.columns.taps

    @property
    def copied(self) -> int:
        return max(0, min(self.columns.size, self.used - self.columns.before))

    @property
    def band(self) -> int:
        """Result rows of a band: all, or as many as keep the plane within BAND_BYTES, in bands of equal height."""
        rows = self.rows
        most = max(1, (BAND_BYTES // (2 * self.pitch) - rows.taps) // rows.stride + 1)
        return -(-rows.out // -(-rows.out // most))

    @property
    def bands(self) -> int:
        return -(-self.rows.out // self.band)

    @property
    def lines(self) -> int:
        return (self.band - 1) * self.rows.stride + self.rows.taps

    @property
    def size(self) -> int:
        """Elements, even."""
        last = (self.columns.out - 1) * self.columns.stride
        size = self.lines * self.pitch + max(0, last + self.beyond - self.pitch)
        return size + size % 2

    def header(self) -> Array:
        rows, columns = self.rows, self.columns
        pad = self.layer.attrs.pad_value & 0xFFFF
        values = (self.layer.channels, rows.size, self.copied, rows.before, columns.before, rows.out, columns.out)
        steps = (rows.data_step, columns.data_step, rows.out_step, self.band, self.bands)
        more = (pad | pad << 16, self.size // 2, columns.stride, rows.stride)
        return np.asarray([*values, *steps, *more], np.int64).astype(np.uint32).view(np.int32)

    def copy_instructions(self) -> int:
        """Of one channel (from counts under QEMU)."""
        rows = self.rows
        inside = min(rows.size, (rows.out - 1) * rows.stride + rows.taps - rows.before)
        inside += (self.bands - 1) * max(0, rows.taps - rows.stride)
        fill = 5 * self.pitch * (rows.taps - 1) // 2 if self.bands > 1 else 0
        return inside * (7 * self.copied // 2 + 10) + 40 * self.bands + fill


def fits(plan: PlanePlan) -> bool:
    return plan.pitch >= max(plan.used, plan.columns.before + plan.copied) and plan.copied > 0


class Plane:
    """The plane of one call; `n` are the header's fields, which are the first words of `params`."""

    def __init__(self, b: IRBuilder, params: Buffer, *, size: int) -> None:
        self.n: dict[str, Var] = {field: b.let(field, params[i]) for i, field in enumerate(HEADER)}
        self._b, self.buffer = b, b.scratch("plane", (size,), "int16", align=4)
        self._fill(imm(0), self.n["plane"])

    def _fill(self, start: Expr, stop: Expr) -> None:
        """Words `start` to `stop` with padding."""
        with self._b.for_("i", stop, start=start) as i:
            self._b.store_as(self.buffer, "int32", i, self.n["pad"])

    def copy(self, data: Buffer, channel: Expr, band: Expr, *, kernel_rows: Expr, pitch: Expr) -> tuple[Expr, Expr]:
        """Fills the plane for a band; (its first result row, how many it has).

        The border does not change, except for the rows of an image that takes several bands.
        """
        b, n = self._b, self.n
        y = b.let("y", band * n["band"])
        count = b.let("rows", minimum(n["band"], n["out_height"] - y))
        above = b.let("above", y * n["stride_rows"] - n["top"])
        lines = b.let("lines", (count - 1) * n["stride_rows"] + kernel_rows)
        first = b.let("first", maximum(imm(0) - above, 0))
        last = b.let("last", minimum(lines, n["height"] - above))
        with b.if_(n["bands"] > 1):
            half = b.let("half", pitch >> 1)
            self._fill(imm(0), first * half)
            self._fill(maximum(last, 0) * half, lines * half)
        with b.if_(last > first):
            source = region(data, channel + (above + first) * n["row"])
            target = region(self.buffer, first * pitch + n["left"])
            b.block(copy_lines(), source, target, last - first, n["copied"], n["row"], n["column"], pitch)
        return y, count


def with_header(plan: PlanePlan, more: Sequence[int], records: Array) -> Array:
    """The constants of a layer: the header, further numbers, the channels' records [channels, words]."""
    extra = np.asarray(list(more), np.int32)
    return np.concatenate([plan.header(), extra, records.reshape(-1).astype(np.int32)])
