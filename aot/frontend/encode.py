"""Serialises records (aot.frontend.decode) as a .tflite file: a small flatbuffer writer, driven by the schema's tables.

Content that the schema does not know is lost; fields with their default value are omitted.  The same record gives the same bytes.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from aot.frontend import schema
from aot.frontend.decode import Record

DATA_ALIGN = 16
"""Alignment of constants' buffers, as the schema requires."""


def encode_model(record: Record) -> bytes:
    """The file that `decode_model` reads as this record."""
    writer = _Writer()
    writer.data += struct.pack("<I4s", 0, schema.FILE_IDENTIFIER)
    writer.point(0, writer.table("Model", record))
    return bytes(writer.data)


class _Writer:
    """Writes parents before children, so that all offsets are positive; references are patched when the child is written."""

    def __init__(self) -> None:
        self.data = bytearray()

    def point(self, place: int, target: int) -> None:
        """Make the 32-bit field at `place` refer to `target`."""
        struct.pack_into("<I", self.data, place, target - place)

    def align(self, width: int, *, ahead: int = 0) -> None:
        """Pad so that the position `ahead` bytes further is a multiple of `width`."""
        self.data += bytes(-(len(self.data) + ahead) % width)

    def table(self, name: str, record: Record) -> int:
        """Write a table with its vtable and everything below it; returns its position."""
        fields = [f for f in schema.tables()[name] if _present(f, record)]
        fields.sort(key=lambda f: (-_width(f), f.slot))  # widest first: only one gap, after the offset to the vtable
        slots = 1 + max((f.slot for f in fields), default=-1)
        self.align(2)
        vtable = len(self.data)
        widest = max((_width(f) for f in fields), default=4)
        self.data += bytes(4 + 2 * slots)
        self.align(max(widest, 4), ahead=4)
        start = len(self.data)
        self.data += struct.pack("<i", start - vtable)
        places = {}
        for field in fields:
            places[field.slot] = len(self.data)
            self.data += self._scalar(field, record) if field.kind == "scalar" else bytes(4)
        struct.pack_into("<HH", self.data, vtable, 4 + 2 * slots, len(self.data) - start)
        for slot, place in places.items():
            struct.pack_into("<H", self.data, vtable + 4 + 2 * slot, place - start)
        for field in fields:
            if field.kind != "scalar":
                self.point(places[field.slot], self._child(field, record[field.name]))
        return start

    def _scalar(self, field: schema.Field, record: Record) -> bytes:
        value = record[field.name]
        if field.enum:
            value = schema.enums()[field.enum].index(value)
        return struct.pack(schema.SCALARS[field.type][0], value)

    def _child(self, field: schema.Field, value: Any) -> int:
        match field.kind:
            case "table":
                return self.table(field.type, value)
            case "union":
                return self.table(*value)
            case "tables":
                return self._tables(field.type, value)
            case "string" | "bytes":
                return self._vector(value, len(value), 1, tail=b"\0")
            case _:
                format_, width = schema.SCALARS[field.type]
                if isinstance(value, memoryview | bytes):
                    return self._vector(value, len(value), 1, align=DATA_ALIGN)
                array = np.ascontiguousarray(value, np.dtype(format_))
                return self._vector(array.tobytes(), array.size, width)

    def _vector(self, content: bytes | memoryview, count: int, width: int, *, align: int = 4, tail: bytes = b"") -> int:
        self.align(max(width, align), ahead=4)
        start = len(self.data)
        self.data += struct.pack("<I", count)
        self.data += content
        self.data += tail
        return start

    def _tables(self, name: str, records: tuple[Record, ...]) -> int:
        start = self._vector(bytes(4 * len(records)), len(records), 4)
        for i, record in enumerate(records):
            self.point(start + 4 + 4 * i, self.table(name, record))
        return start


def _width(field: schema.Field) -> int:
    return schema.SCALARS[field.type][1] if field.kind == "scalar" else 4


def _present(field: schema.Field, record: Record) -> bool:
    """Whether the field must be written: it is present and differs from its default."""
    value = record[field.name]
    if field.kind == "scalar":
        return bool(value != field.default)
    return value is not None
