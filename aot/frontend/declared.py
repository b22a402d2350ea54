"""A tensor's declaration in the file, as types of the graph."""

from __future__ import annotations

from aot.frontend.view import QuantView, TensorView
from aot.ir.type import QuantParams, TensorType


def declared_quant(quant: QuantView | None) -> QuantParams | None:
    """Scales and zero points; None if the file has none."""
    if quant is None or not quant.scales.size:
        return None
    return QuantParams(tuple(quant.scales.tolist()), tuple(quant.zero_points.tolist()), quant.axis)


def declared_type(tensor: TensorView, *, shape: tuple[int, ...] | None = None) -> TensorType:
    """The declared type, with another shape if given."""
    return TensorType(tensor.shape if shape is None else shape, declared_dtype(tensor), declared_quant(tensor.quant))


def declared_dtype(tensor: TensorView) -> str:
    """The element type; resource handles are numbers."""
    return "int32" if tensor.dtype == "resource" else tensor.dtype
