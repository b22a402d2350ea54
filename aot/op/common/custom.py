"""The options of custom operators: a FlexBuffers map, or the numbers of a C struct; every entry checked before it is used."""

from __future__ import annotations

import struct

from aot.frontend.flexbuffer import FlexbufferError, Scalar, read_map
from aot.frontend.view import OperatorView
from aot.op.convert import ConvertContext, unsupported


class CustomOptions:
    """The options of one operator; E1116 if they cannot be read or lack one that is requested, E1122 for one out of range."""

    def __init__(self, ctx: ConvertContext, op: OperatorView) -> None:
        self._ctx, self._op = ctx, op
        try:
            self._found = read_map(op.custom_options)
        except FlexbufferError as error:
            unsupported(ctx, op, f"its options cannot be read: {error}", code="E1116")

    def _get(self, name: str, default: Scalar | None) -> Scalar:
        value = self._found.get(name, default)
        if value is None:
            unsupported(self._ctx, self._op, f"its options lack {name}", code="E1116")
        return value

    def integer(self, name: str, low: int, high: int, *, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self._get(name, default)
        if int(value) != value or not low <= value <= high:
            unsupported(self._ctx, self._op, f"its option {name} is {value}, not a number from {low} to {high}", code="E1122")
        return int(value)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """True or false."""
        return bool(self._get(name, default))

    def real(self, name: str, *, default: float | None = None) -> float:
        """A number."""
        return float(self._get(name, default))


PADDING = {1: "SAME", 2: "VALID"}
"""TfLitePadding."""
ACTIVATIONS = {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
"""TfLiteFusedActivation, as far as it is a clamp."""


def struct_options(ctx: ConvertContext, op: OperatorView, number: int) -> tuple[int, ...]:
    """The first `number` int32 of options that are a struct of LiteRT's, `TfLitePoolParams` and the like; E1116 for fewer."""
    data = bytes(op.custom_options)
    if len(data) < 4 * number:
        unsupported(ctx, op, f"its options have {len(data)} bytes, not {4 * number}", code="E1116")
    return struct.unpack_from(f"<{number}i", data)


def padding_name(ctx: ConvertContext, op: OperatorView, padding: int) -> str:
    """SAME or VALID; E1122 for another number."""
    if padding not in PADDING:
        unsupported(ctx, op, f"its padding is {padding}, neither 1 (SAME) nor 2 (VALID)", code="E1122")
    return PADDING[padding]


def steps_and_window(ctx: ConvertContext, op: OperatorView, *pairs: tuple[int, int]) -> None:
    """E1122 for a stride or an extent of a window below 1."""
    if min(n for pair in pairs for n in pair) < 1:
        unsupported(ctx, op, f"strides or window of {', '.join(map(str, pairs))}", code="E1122")
