"""Sliding windows: TFLite's SAME and VALID padding, and the part of a window that lies inside the image."""

from __future__ import annotations

from dataclasses import dataclass

from aot.tir.expr import Expr, maximum, minimum

Padding = tuple[int, int, int, int]
"""(top, left, bottom, right)"""


@dataclass(frozen=True, slots=True)
class Window:
    """The result of fitting a window to an image: output height and width, padding on the four sides."""

    output: tuple[int, int]
    padding: Padding


def output_size(size: int, kernel: int, *, stride: int, dilation: int, before: int, after: int) -> int:
    """Positions of a window of `kernel` taps along one axis, given its padding; 0 or less where none fits."""
    return (size + before + after - ((kernel - 1) * dilation + 1)) // stride + 1


def fit_axis(scheme: str, size: int, kernel: int, *, stride: int, dilation: int = 1) -> tuple[int, int, int]:
    """ComputeOutSize and ComputePaddingWithOffset along one axis: (output size, padding before, after).

    An odd total has the larger half after.
    """
    effective = (kernel - 1) * dilation + 1
    if scheme == "SAME":
        out = -(-size // stride)
    elif scheme == "VALID":
        out = (size + stride - effective) // stride
    else:
        raise ValueError(scheme)
    total = max((out - 1) * stride + effective - size, 0)
    return out, total // 2, total - total // 2


def fit_window(
    scheme: str,
    image: tuple[int, int],
    kernel: tuple[int, int],
    *,
    strides: tuple[int, int],
    dilation: tuple[int, int] = (1, 1),
) -> Window:
    """`fit_axis` for height and width."""
    oh, top, bottom = fit_axis(scheme, image[0], kernel[0], stride=strides[0], dilation=dilation[0])
    ow, left, right = fit_axis(scheme, image[1], kernel[1], stride=strides[1], dilation=dilation[1])
    return Window((oh, ow), (top, left, bottom, right))


def inside(position: Expr, *, stride: int, before: int, kernel: int, size: int) -> tuple[Expr, Expr]:
    """[start, stop) of the image rows (or columns) that the window at output `position` covers, without the padding."""
    origin = position * stride - before
    return maximum(origin, 0), minimum(origin + kernel, size)
