"""The options of custom operators: a FlexBuffers map, every entry checked before it is used."""

from __future__ import annotations

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
