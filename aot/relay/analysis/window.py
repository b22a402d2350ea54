"""Which taps of a sliding window fall inside the image, and what values a layer reads through each of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from aot.relay.analysis.interval import Int64, Interval
from aot.relay.expr import Call, is_call, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Coverage:
    """For each tap along one axis: whether it falls inside the image, and whether outside, at some output position."""

    inside: Bools
    outside: Bools


def axis_coverage(layer: Call, axis: int) -> Coverage:
    """Taps along the height (axis 0) or width (axis 1) of an nn.conv2d or nn.depthwise_conv2d.

    Tap k at output position p reads row p*stride + k*dilation - padding before.
    """
    size = tensor_type(layer.args[0]).shape[axis + 1]
    kernel = tensor_type(layer.args[1]).shape[axis + 1]
    positions = np.arange(tensor_type(layer).shape[axis + 1]) * layer.attrs.strides[axis] - layer.attrs.padding[axis]
    rows = positions[None, :] + np.arange(kernel)[:, None] * layer.attrs.dilation[axis]
    within = (rows >= 0) & (rows < size)
    return Coverage(within.any(axis=1), (~within).any(axis=1))


def tap_values(layer: Call, data: Interval) -> Interval:
    """Interval of (data - input_zp) as each weight sees it; `data` has one interval for each channel.

    nn.conv2d: arrays [KH, KW, I]; nn.depthwise_conv2d: [KH, KW, C]; nn.dense: [K].  A tap that may fall outside the image
    also sees `pad_value`; one that always does sees nothing else.
    """
    if is_call(layer, "nn.dense"):
        return Interval(data.lo - layer.attrs.input_zp, data.hi - layer.attrs.input_zp)
    rows, columns = axis_coverage(layer, 0), axis_coverage(layer, 1)
    inside = (rows.inside[:, None] & columns.inside[None, :])[:, :, None]
    outside = (rows.outside[:, None] | columns.outside[None, :])[:, :, None]
    pad, zp = layer.attrs.pad_value, layer.attrs.input_zp
    lo = np.where(inside, np.where(outside, np.minimum(data.lo, pad), data.lo), pad)
    hi = np.where(inside, np.where(outside, np.maximum(data.hi, pad), data.hi), pad)
    return Interval(lo - zp, hi - zp)


def sums_fit(layer: Call, weight: Int64, taps: Interval) -> bool:
    """Whether no sum of products w*x of one output channel, over any of the taps in any order, leaves int32.

    Then a part of the sum that is constant can be added at any place, as a bias.  `weight` is less its zero point.
    """
    largest = np.maximum(np.abs(taps.lo), np.abs(taps.hi))
    if is_call(layer, "nn.depthwise_conv2d"):
        sums = (np.abs(weight[0]) * np.repeat(largest, layer.attrs.multiplier, axis=2)).sum(axis=(0, 1))
    else:
        sums = (np.abs(weight) * largest).reshape(len(weight), -1).sum(axis=1)
    return bool((sums <= int_range("int32")[1]).all())
