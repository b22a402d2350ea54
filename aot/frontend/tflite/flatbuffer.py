"""A reader of flatbuffers from untrusted files: every offset and every length is checked before it is followed.

The wire format is documented on the public FlatBuffers "internals" page: a table starts with a signed offset back to its vtable,
the vtable has the table's size and one 16-bit position per slot, and everything else uses unsigned 32-bit forward offsets.

A file may refer to the same table or vector any number of times, so a small file can describe a huge tree.  `Reader` therefore
has a work budget proportional to the file's size: a file that uses every byte once or twice never exhausts it.
"""

from __future__ import annotations

import struct
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from aot.frontend.problems import Problems

_ALL = "buffers"
"""Name of the file's part that lists all buffers."""


class CutShort:
    """Collects what is beyond the end of a file while it is read; `report` notes it."""

    __slots__ = ("_found", "_parts", "_problems")

    def __init__(self, problems: Problems) -> None:
        self._found: list[tuple[FlatbufferError, str, str]] = []
        self._parts: set[str] = set()
        self._problems = problems

    def add(self, error: FlatbufferError, where: str, field: str = "") -> None:
        """Note what could not be read, with its part and field of the file; parts beyond the end are noted once, later."""
        message = f"{field}: {error.message}" if field else error.message
        if error.reaches is None:
            self._problems.add(error.code, message, where)
        else:
            self._found.append((error, message, where))
            self._parts.add(where or field)

    def report(self, size: int, buffers: int) -> bool:
        """Note a single part as it is, several (or all buffers) as one E1003; returns whether there are several.

        `size` is the file's; `buffers` is the number of buffers in the model.
        """
        if len(self._parts) < 2 and _ALL not in self._parts:
            for error, message, where in self._found:
                self._problems.add(error.code, message, where)
            return False
        lost = sum(part.startswith("buffer ") for part in self._parts)
        others = len(self._parts) - lost - (_ALL in self._parts)
        said = ["all buffers"] if _ALL in self._parts else [f"{lost} of {buffers} buffers"] if lost else []
        if others:
            said.append(f"{others} {'other ' if said else ''}{'part' if others == 1 else 'parts'}")
        furthest = max(error.reaches or 0 for error, _, _ in self._found)
        message = f"the file ends at byte {size}, but {' and '.join(said)} are beyond it, up to at least byte {furthest}"
        self._problems.add("E1003", f"{message}: is the download complete?")
        return True


MAX_TABLES = 50_000
"""Maximum number of tables read from a file; the largest networks for this class of device have a few thousand."""

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")
_SCALARS = {f: struct.Struct(f) for f in ("<b", "<B", "<H", "<i", "<I", "<q", "<Q", "<f")}


class FlatbufferError(Exception):
    """One place in the file cannot be read; has the problem's code and a message without the place's name.

    `reaches`: the size that the file would need, None if that is not the problem.
    """

    def __init__(self, code: str, message: str, reaches: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.reaches = reaches


class BudgetError(FlatbufferError):
    """The file needs more work than its size allows; reading must stop."""


def _outside(what: str, position: int, width: int, size: int) -> NoReturn:
    reaches = None if position < 0 else position + width
    raise FlatbufferError("E1003", f"{what} at byte {position} is outside the file of {size} bytes", reaches)


def _beyond(end: int, size: int) -> int | None:
    return end if end > size else None


class Reader:
    """The bytes of one file with checked primitive reads.  Raises only `FlatbufferError`."""

    __slots__ = ("_bytes_left", "_tables_left", "data", "size")

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data).toreadonly()
        self.size = len(self.data)
        self._bytes_left = 4 * self.size + 4096
        self._tables_left = MAX_TABLES

    def charge(self, count: int) -> None:
        """Charge `count` bytes of work to the budget."""
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise BudgetError("E1006", "its parts refer to each other more often than a file of this size can need")

    def charge_table(self, count: int) -> None:
        """Charge one table of `count` bytes."""
        self.charge(count)
        self._tables_left -= 1
        if self._tables_left < 0:
            raise BudgetError("E1006", f"it holds more than {MAX_TABLES} tables")

    def u16(self, position: int, what: str) -> int:
        """The 16-bit number at `position`."""
        if not 0 <= position <= self.size - 2:
            _outside(what, position, 2, self.size)
        return int(_U16.unpack_from(self.data, position)[0])

    def u32(self, position: int, what: str) -> int:
        """The 32-bit number at `position`."""
        if not 0 <= position <= self.size - 4:
            _outside(what, position, 4, self.size)
        return int(_U32.unpack_from(self.data, position)[0])

    def i32(self, position: int, what: str) -> int:
        """The signed 32-bit number at `position`."""
        if not 0 <= position <= self.size - 4:
            _outside(what, position, 4, self.size)
        return int(_I32.unpack_from(self.data, position)[0])

    def block(self, offset: int, size: int, what: str) -> memoryview:
        """`size` bytes from `offset` of the file, not copied."""
        if offset > self.size or size > self.size - offset:
            message = f"{what} of {size} bytes at byte {offset} ends outside the file of {self.size} bytes"
            raise FlatbufferError("E1009", message, offset + size)
        return self.data[offset : offset + size]

    def root(self, identifier: bytes) -> Table:
        """The root table, after a check of the four-byte file identifier."""
        if self.size < 8:
            raise FlatbufferError("E1001", f"a file of {self.size} bytes is too short to hold a model")
        if bytes(self.data[4:8]) != identifier:
            actual = bytes(self.data[4:8])
            expected = identifier.decode("ascii")
            raise FlatbufferError("E1002", f"bytes 4 to 7 are {actual!r}, expected {expected!r}{_guess(self.data)}")
        return Table(self, self.u32(0, "root offset"))


def _guess(data: memoryview) -> str:
    """What else the file may be, for the message."""
    starts = {
        b"PK\x03\x04": "a zip archive, such as a .keras or task bundle",
        b"\x89HDF": "an HDF5 file, such as a Keras .h5",
        b"\x1f\x8b": "compressed with gzip",
        b"version https": "a Git LFS pointer: run git lfs pull",
        b"<!DOCTYPE": "an HTML page: the download went wrong",
        b"\x7fELF": "an ELF program",
    }
    head = bytes(data[:16])
    for start, meaning in starts.items():
        if head.startswith(start):
            return f"; it looks like {meaning}"
    return ""


class Table:
    """One table: checked on construction, slots read on demand.  Absent slots give None."""

    __slots__ = ("_positions", "position", "reader", "size")

    def __init__(self, reader: Reader, position: int) -> None:
        vtable = position - reader.i32(position, "a table")
        vtable_size = reader.u16(vtable, "the vtable of a table")
        size = reader.u16(vtable + 2, "the vtable of a table")
        if vtable_size < 4 or vtable_size % 2 or vtable + vtable_size > reader.size:
            message = f"the vtable at byte {vtable} has an impossible size of {vtable_size}"
            raise FlatbufferError("E1005", message, _beyond(vtable + vtable_size, reader.size))
        if size < 4 or position + size > reader.size:
            message = f"the table at byte {position} has an impossible size of {size}"
            raise FlatbufferError("E1005", message, _beyond(position + size, reader.size))
        reader.charge_table(size)
        slots = vtable_size // 2 - 2
        self.reader = reader
        self.position = position
        self.size = size
        self._positions: tuple[int, ...] = struct.unpack_from(f"<{slots}H", reader.data, vtable + 4)

    def _slot(self, slot: int, width: int) -> int | None:
        """Absolute position of the slot's `width` bytes, or None if the slot is absent."""
        if slot >= len(self._positions) or not self._positions[slot]:
            return None
        relative = self._positions[slot]
        if relative < 4 or relative + width > self.size:
            raise FlatbufferError("E1005", f"the table at byte {self.position} keeps slot {slot} outside itself")
        return self.position + relative

    def scalar(self, slot: int, format_: str) -> int | float | None:
        """The number in a slot; `format_` is a struct format with one little-endian item."""
        codec = _SCALARS[format_]
        position = self._slot(slot, codec.size)
        if position is None:
            return None
        value: int | float = codec.unpack_from(self.reader.data, position)[0]
        return value

    def target(self, slot: int, what: str) -> int | None:
        """The absolute position to which the offset in a slot points."""
        position = self._slot(slot, 4)
        if position is None:
            return None
        return position + self.reader.u32(position, what)

    def table(self, slot: int) -> Table | None:
        """The table that a slot refers to."""
        position = self.target(slot, "a reference to a table")
        return None if position is None else Table(self.reader, position)

    def vector(self, slot: int, width: int) -> tuple[int, int] | None:
        """(position of the first element, number of elements) of a vector whose elements are `width` bytes wide."""
        position = self.target(slot, "a reference to a vector")
        if position is None:
            return None
        count = self.reader.u32(position, "a vector")
        if count * width > self.reader.size - position - 4:
            message = f"the vector at byte {position} claims {count} elements, more than the file holds"
            raise FlatbufferError("E1004", message, position + 4 + count * width)
        return position + 4, count

    def raw(self, slot: int) -> memoryview | None:
        """A vector of bytes, not copied and not charged."""
        vector = self.vector(slot, 1)
        return None if vector is None else self.reader.data[vector[0] : vector[0] + vector[1]]

    def array(self, slot: int, dtype: npt.DTypeLike) -> npt.NDArray[np.generic] | None:
        """A vector of numbers as a read-only array over the file's bytes (little endian, possibly unaligned)."""
        type_ = np.dtype(dtype)
        vector = self.vector(slot, type_.itemsize)
        if vector is None:
            return None
        position, count = vector
        self.reader.charge(4 + count * type_.itemsize)
        return np.frombuffer(self.reader.data, type_, count, position) if count else np.empty(0, type_)

    def string(self, slot: int) -> bytes | None:
        """The bytes of a string; the caller checks whether they are UTF-8."""
        data = self.raw(slot)
        if data is None:
            return None
        self.reader.charge(len(data))
        return bytes(data)

    def tables(self, slot: int) -> tuple[int, ...]:
        """Positions of the tables in a vector of tables; construct `Table(reader, position)` for each."""
        vector = self.vector(slot, 4)
        if vector is None:
            return ()
        first, count = vector
        if count > MAX_TABLES:
            raise BudgetError("E1006", f"it holds more than {MAX_TABLES} tables")
        self.reader.charge(4 * count)
        offsets = struct.unpack_from(f"<{count}I", self.reader.data, first)
        return tuple(first + 4 * i + offset for i, offset in enumerate(offsets))


# A reader of FlexBuffers maps from untrusted files: the format of custom operators' options. # The wire format is documented on
# the public "FlexBuffers" page: the last byte is the width of the root value, the byte before it the root's packed type (type * 4
# + log2 of the width), and everything else uses backward offsets.  Only scalars are read; entries of other types are skipped.
# Every offset and length is checked before it is followed.


Scalar = bool | int | float

_INT, _UINT, _FLOAT, _MAP, _BOOL = 1, 2, 3, 9, 26
_INDIRECT = {6: _INT, 7: _UINT, 8: _FLOAT}
_FLOATS = {4: "<f", 8: "<d"}


class FlexbufferError(ValueError):
    """The bytes are not a map; the message says where they become invalid."""


def read_map(data: bytes) -> dict[str, Scalar]:
    """The scalar entries of the map in `data`; FlexbufferError for anything else."""
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
        entries: dict[str, Scalar] = {}
        for i in range(size):
            key = self._text(self.back(keys + i * keys_width, keys_width))
            value = self._scalar(start + i * width, width, self._data[types + i])
            if value is not None:
                entries[key] = value
        return entries

    def back(self, position: int, width: int) -> int:
        """The target of the offset at `position`."""
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
            raise FlexbufferError(f"{count} bytes at {position} are outside the {len(self._data)} bytes of options")
        return self._data[position : position + count]
