"""Phases of a transposed convolution: results whose index has the same remainder modulo the stride form a convolution of stride
1.

A transposed convolution of stride s inserts s - 1 zeros between data and convolves; most of its products would be with zeros.
Split by remainder, every phase is an ordinary dense convolution with a subset of the taps.  Output row s*Y + r needs the taps
first, first + s ... of the window, with first = (r + cut) % s, and the data rows Y + base, Y + base - 1 ... with
base = (r + cut) / s.  In the order of the data, the last tap comes first.  Columns work likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from aot.ir.type import TensorType
from aot.op.nn.conv import Conv2DAttrs, Conv2DTransposeAttrs
from aot.relay.expr import Constant, Var, tensor_type
from aot.support.dataclass import dataclass
from aot.topi.layer.fused import FusedLayer, Sums, split_followers
from aot.topi.strategy import Group

ANCHOR = "nn.conv2d_transpose"


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
    """The phases of an int8 layer with one image and sums that fit int32, if each phase has taps and at least one result per
    datum.
    """
    whole = _match(group)
    if whole is None:
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
    if anchor.name != ANCHOR or tensor_type(anchor).dtype != "int32":
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
