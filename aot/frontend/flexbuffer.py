"""A reader of FlexBuffers maps from untrusted files: what custom operators keep their options in.

The wire format is that of the public "FlexBuffers" page: the last byte is the width of the root value, the byte before it the
root's packed type (type * 4 + log2 of the width), and everything else hangs on offsets that count backwards.  Only scalars are
read: entries of other types are left out.  Every offset and length is checked before it is followed.
"""

from __future__ import annotations

import struct

Scalar = bool | int | float

_INT, _UINT, _FLOAT, _MAP, _BOOL = 1, 2, 3, 9, 26
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_FLOATS = {4: "<f", 8: "<d"}


class FlexbufferError(ValueError):
    """The bytes are not a map; the message says where they stop making sense."""


def read_map(data: bytes) -> dict[str, Scalar]:
    """The scalar entries of the map that `data` holds; FlexbufferError for anything else."""
    reader = _Reader(data)
    if len(data) < 3:
        raise FlexbufferError(f"{len(data)} bytes hold no value")
    width, packed = data[-1], data[-2]
    if packed >> 2 != _MAP:
        raise FlexbufferError(f"the root has type {packed >> 2}, which is not a map")
    root = len(data) - 2 - width
    return reader.map(reader.back(root, width), 1 << (packed & 3))


class _Reader:
    """Checked reads of one buffer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def map(self, start: int, width: int) -> dict[str, Scalar]:
        """The map whose values begin at `start`, each `width` bytes."""
        size = self.unsigned(start - width, width)
        keys_width = self.unsigned(start - 2 * width, width)
        keys = self.back(start - 3 * width, width)
        types = start + size * width
        self._take(types, size)  # also bounds the loop by the buffer's size
        found: dict[str, Scalar] = {}
        for i in range(size):
            key = self._text(self.back(keys + i * keys_width, keys_width))
            value = self._scalar(start + i * width, width, self._data[types + i])
            if value is not None:
                found[key] = value
        return found

    def back(self, position: int, width: int) -> int:
        """Where the offset at `position` leads."""
        target = position - self.unsigned(position, width)
        if not 0 <= target < position:
            raise FlexbufferError(f"the offset at byte {position} leads to byte {target}")
        return target

    def unsigned(self, position: int, width: int) -> int:
        """The unsigned number of `width` bytes at `position`."""
        return int.from_bytes(self._take(position, self._width(width)), "little")

    def _scalar(self, position: int, width: int, packed: int) -> Scalar | None:
        kind = packed >> 2
        if kind in _INDIRECT:
            position, width, kind = self.back(position, width), 1 << (packed & 3), _INDIRECT[kind]
        raw = self._take(position, self._width(width))
        if kind == _FLOAT and width in _FLOATS:
            return float(struct.unpack(_FLOATS[width], raw)[0])
        if kind == _BOOL:
            return any(raw)
        if kind in (_INT, _UINT):
            return int.from_bytes(raw, "little", signed=kind == _INT)
        return None

    def _text(self, position: int) -> str:
        end = self._data.find(0, position)
        if end < 0:
            raise FlexbufferError(f"the key at byte {position} does not end")
        return self._data[position:end].decode("utf-8", errors="replace")

    def _width(self, width: int) -> int:
        if width not in (1, 2, 4, 8):
            raise FlexbufferError(f"a number of {width} bytes")
        return width

    def _take(self, position: int, count: int) -> bytes:
        if not 0 <= position <= len(self._data) - count:
            raise FlexbufferError(f"{count} bytes at {position} lie outside the {len(self._data)} bytes of options")
        return self._data[position : position + count]
