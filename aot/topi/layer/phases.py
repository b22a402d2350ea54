"""Phases of a transposed convolution: the results of one remainder of the stride are an ordinary convolution of stride 1.

Of stride s, output row s*Y + r takes the taps rest, rest + s ... of the window, with rest = (r + cut) % s, from the data rows
Y + base, Y + base - 1 ... with base = (r + cut) / s: in the order of the data, the last tap comes first.  Columns likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from aot.ir.op import Array, Op
from aot.ir.type import TensorType
from aot.op.nn.conv2d import Conv2DAttrs
from aot.op.nn.conv2d_transpose import Conv2DTransposeAttrs
from aot.op.qnn.quantize import RequantizeAttrs
from aot.relay.expr import Call, Constant, Var, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.topi.layer.fused import FusedLayer, settle_constant_channels
from aot.topi.strategy import Group

ANCHOR = "nn.conv2d_transpose"


@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """Rows or columns of a phase: how many results, which taps in the order of the data, and how many of those come before the
    datum of the result's own number Y.
    """

    out: int
    taps: tuple[int, ...]
    before: int

    @property
    def behind(self) -> int:
        return len(self.taps) - 1 - self.before


def phase_axes(*, out: int, kernel: int, stride: int, cut: int) -> list[PhaseAxis]:
    """Those of the remainders 0 to stride - 1; some may have no results or no taps."""
    found = []
    for remainder in range(stride):
        base, rest = divmod(remainder + cut, stride)
        taps = tuple(range(rest, kernel, stride))[::-1]
        found.append(PhaseAxis(max(0, -(-(out - remainder) // stride)), taps, len(taps) - 1 - base))
    return found


@dataclass(frozen=True, slots=True)
class SubPixels:
    """One pair of remainders (rows, columns), its rows and columns, and the convolution that makes its results."""

    remainder: tuple[int, int]
    rows: PhaseAxis
    columns: PhaseAxis
    layer: FusedLayer


@dataclass(frozen=True, slots=True)
class SubPixelLayer:
    """A transposed convolution as kernels see one, its phases, and the rows and columns that any of these reads."""

    layer: FusedLayer
    phases: tuple[SubPixels, ...]
    rows: PhaseAxis
    columns: PhaseAxis

    @property
    def window(self) -> FusedLayer:
        """The convolution of stride 1 whose windows have all that a phase reads; only its shapes count."""
        whole, rows, columns = self.layer, self.rows, self.columns
        _, height, width, depth = whole.data_type.shape
        bottom, right = (max(0, a.out - 1 + a.behind - (size - 1)) for a, size in ((rows, height), (columns, width)))
        attrs = Conv2DAttrs((1, 1), (rows.before, columns.before, bottom, right), (1, 1), 0, whole.attrs.input_zp)
        weight = np.zeros((whole.channels, len(rows.taps), len(columns.taps), depth), np.int64)
        out = TensorType((1, rows.out, columns.out, whole.channels), "int8", whole.requant.quant)
        return replace(whole, weight=weight, attrs=attrs, out_type=out)


def sub_pixels(group: Group) -> SubPixelLayer | None:
    """int8, one image, sums that fit int32, and every phase with taps and as many results as there are data."""
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
    """What any of these reads."""
    before, behind = (max(0, *(getattr(a, side) for a in axes)) for side in ("before", "behind"))
    return PhaseAxis(max(a.out for a in axes), tuple(range(before + 1 + behind)), before)


def _match(group: Group) -> FusedLayer | None:
    """The layer with weights less their zero point and the bias as the model has it."""
    anchor, rest = group.anchor, list(group.followers)
    if not isinstance(anchor.op, Op) or anchor.op.name != ANCHOR or tensor_type(anchor).dtype != "int32":
        return None
    data, weight = anchor.args
    if not isinstance(data, Var) or not isinstance(weight, Constant) or data.type.dtype != "int8" or data.type.shape[0] > 1:
        return None
    values = weight.data.astype(np.int64) - anchor.attrs.weight_zp
    bias = np.zeros(values.shape[0], np.int64)
    if rest and is_call(rest[0], "nn.bias_add"):
        constant = rest.pop(0).args[1]
        if not isinstance(constant, Constant):
            return None
        bias = constant.data.astype(np.int64)
    if not rest or not is_call(rest[0], "qnn.requantize") or rest[0].attrs.dtype != "int8" or np.abs(values).max() > 255:
        return None
    requant: RequantizeAttrs = rest.pop(0).attrs
    tail: tuple[Call, ...] = tuple(rest)
    out = tensor_type(tail[-1]) if tail else tensor_type(anchor).with_dtype("int8", requant.quant)
    macs = data.type.size * prod(values.shape[:-1])
    return FusedLayer(anchor, data, values, bias, anchor.attrs, requant, tail, out, bias, bias, macs)


def _phase(whole: FusedLayer, rows: PhaseAxis, columns: PhaseAxis) -> FusedLayer | None:
    """The convolution of one phase; data outside the image is the zero point.  None if its sums may leave int32."""
    weight = whole.weight[:, rows.taps][:, :, columns.taps]
    zp, axes = whole.attrs.input_zp, (1, 2, 3)
    bias: Array = whole.bias - zp * weight.sum(axis=axes)
    if (np.abs(weight).sum(axis=axes) * 256 + np.abs(bias) >= 1 << 31).any():
        return None
    low = bias + np.minimum(weight * 127, weight * -128).sum(axis=axes)
    high = bias + np.maximum(weight * 127, weight * -128).sum(axis=axes)
    settled, requant, values = settle_constant_channels(whole.requant, low, high)
    weight = np.where(settled.reshape(-1, 1, 1, 1), 0, weight)
    bias, low, high = (np.where(settled, values, a) for a in (bias, low, high))
    out = TensorType((1, rows.out, columns.out, whole.channels), "int8", whole.requant.quant)
    layer = replace(whole, weight=weight, bias=bias, requant=requant, tail=(), out_type=out)
    return replace(layer, acc_low=low, acc_high=high, macs=out.size * weight[0].size)
