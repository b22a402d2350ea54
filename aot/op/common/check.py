"""Checks that several converters make, each ending in a coded refusal."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from typing import Self

from aot.frontend.view import MAX_TENSOR_BYTES, OperatorView, stored_bytes
from aot.ir.type import QuantParams, TensorType
from aot.numerics.fixed_point import activation_range, is_clamp_activation
from aot.op.convert import ConvertContext, unsupported


def require_dtype(
    ctx: ConvertContext, op: OperatorView, type_: TensorType, allowed: Collection[str], *, what: str = "data"
) -> None:
    """Refuse element types other than `allowed`."""
    if type_.dtype not in allowed:
        unsupported(ctx, op, f"{what} of {type_.dtype} is not supported; only {', '.join(sorted(allowed))}", code="E1202")


def require_room(ctx: ConvertContext, op: OperatorView, shape: Sequence[int], dtype: str, *, what: str) -> None:
    """Refuse an array of the converter's own, sized by an option of the file, that exceeds what a tensor may have."""
    size = stored_bytes(dtype, prod(shape))
    if size > MAX_TENSOR_BYTES:
        unsupported(ctx, op, f"{what} of shape {list(shape)} takes {size} bytes, more than {MAX_TENSOR_BYTES}", code="E1216")


def _why_zero(type_: TensorType) -> str:
    """Where a scale of 0 comes from with 16 bits, and what to do; the check of the file leaves it to constants of zeros."""
    if type_.dtype != "int16" or type_.quant is None or type_.quant.scale[0] != 0:
        return ""
    origin = "a constant of zeros as normalisations have them with activations of 16 bits"
    return f", {origin}, which LiteRT does not run: keep the normalisation in float or int8"


def require_quant(
    ctx: ConvertContext, op: OperatorView, type_: TensorType, *, what: str = "data", may_be_zero: bool = False
) -> tuple[float, int]:
    """(scale, zero point) of a per-tensor quantised operand; a scale has to be positive.

    `may_be_zero`: scale 0, which the file may give to constants of nothing but zeros, is taken as well.
    """
    quant = type_.quant
    if quant is None:
        unsupported(ctx, op, f"{what} of {type_.dtype} has no quantisation parameters", code="E1206")
    if len(quant.scale) != 1:
        unsupported(ctx, op, f"{what} is quantised per channel", code="E1223")
    if not 0 < quant.scale[0] < float("inf") and not (may_be_zero and quant.scale[0] == 0):
        unsupported(ctx, op, f"{what} has scale {quant.scale[0]}{_why_zero(type_)}", code="E1226")
    return quant.scale[0], quant.zero_point[0]


def require_alike(
    ctx: ConvertContext, op: OperatorView, types: Sequence[TensorType], allowed: Collection[str], *, may_be_zero: bool = False
) -> tuple[tuple[float, int], ...]:
    """(scale, zero point) of each of `types`, which all have the first one's element type, one of `allowed`.

    `may_be_zero`: see `require_quant`; not of the last one, the result.
    """
    for type_ in types:
        require_dtype(ctx, op, type_, {types[0].dtype} & set(allowed) or {"int8"})
    operands = (require_quant(ctx, op, t, may_be_zero=may_be_zero) for t in types[:-1])
    return (*operands, require_quant(ctx, op, types[-1]))


def require_rows(ctx: ConvertContext, op: OperatorView, data: TensorType, *, most: int) -> None:
    """Refuse data without a last axis of 1 to `most` elements."""
    if not data.shape or not 0 < data.shape[-1] <= most:
        unsupported(ctx, op, f"rows of 1 to {most} elements are supported")


def require_same_quant(ctx: ConvertContext, op: OperatorView, a: TensorType, b: TensorType) -> None:
    """Refuse an operator that would have to rescale, which TFLite does not do here either."""
    if a.quant is None and b.quant is None:
        return
    if not have_same_quant(a.quant, b.quant):
        unsupported(ctx, op, "input and output differ in scale or zero point", code="E1227")


def have_same_quant(a: QuantParams | None, b: QuantParams | None) -> bool:
    """Whether values mean the same with either; all of scale 0 are zeros, which any scale has."""
    if a is None or b is None or a.zero_point != b.zero_point:
        return a is b
    return a.scale == b.scale or (0.0,) in (a.scale, b.scale)


def fused_range(ctx: ConvertContext, op: OperatorView, out_type: TensorType) -> tuple[int, int]:
    """The clamp of the operator's fused activation in quantised values of its output."""
    activation = op.option("fused_activation_function")
    if not is_clamp_activation(activation):
        unsupported(ctx, op, f"the fused activation {activation} is not supported")
    return activation_range(activation, out_type)


class Clamped:
    """Attributes, a frozen dataclass, of an operator that clamps its result to [lo, hi]."""

    __slots__ = ()

    lo: int
    hi: int

    def clipped(self, lo: int, hi: int) -> Self:
        """The same followed by a clamp to [lo, hi]."""
        return replace(self, lo=min(max(self.lo, lo), hi), hi=max(min(self.hi, hi), lo))  # type: ignore[type-var]
