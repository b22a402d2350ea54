"""Flatbuffer tables to plain records by the schema's tables; faults are noted and replaced by the field's default.

The schema's tables do not contain themselves, so the depth is bounded; the reader's budget bounds the number of visits.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from aot.frontend.problems import Problems
from aot.frontend.tflite import schema
from aot.frontend.tflite.flatbuffer import BudgetError, CutShort, FlatbufferError, Reader, Table

Record = dict[str, Any]
"""Field name -> value: numbers, bool, enum names as str, bytes, arrays, records, tuples of records, (member, record) for
a union; None for an absent vector, string, table or union."""

Path = tuple[str | int, ...]
"""The path to a table: ("subgraphs", 0, "operators", 14)."""


def decode_model(reader: Reader, problems: Problems) -> Record | None:
    """The whole model as a record.

    None if not even the root can be read, several parts are beyond the end of the file, or the work budget is exhausted.
    """
    faults = CutShort(problems)
    try:
        record = _decode(reader.root(schema.FILE_IDENTIFIER), "Model", path=(), faults=faults)
    except FlatbufferError as error:
        problems.add(error.code, error.message)
        return None
    return None if faults.report(reader.size, len(record["buffers"] or ())) else record


def text(value: bytes | None) -> str:
    """A string of the file; empty if it is absent."""
    return "" if value is None else value.decode("utf-8", errors="replace")


def ints(value: npt.NDArray[Any] | None) -> tuple[int, ...]:
    """A vector of integers of the file; empty if it is absent."""
    return () if value is None else tuple(value.tolist())


@cache
def _defaults(name: str) -> Record:
    return {f.name: f.default for f in schema.tables()[name]}


def default_record(name: str) -> Record:
    """The record of an empty table of this name."""
    return dict(_defaults(name))


def _decode(table: Table, name: str, *, path: Path, faults: CutShort) -> Record:
    record = default_record(name)
    for field in schema.tables()[name]:
        try:
            value = _value(table, field, record=record, path=path, faults=faults)
        except BudgetError:
            raise
        except FlatbufferError as error:
            faults.add(error, place(path), field.name)
            continue
        if value is not None:
            record[field.name] = value
    return record


def _value(table: Table, field: schema.Field, *, record: Record, path: Path, faults: CutShort) -> Any:
    match field.kind:
        case "scalar":
            return _scalar(table, field)
        case "vector":
            return table.array(field.slot, schema.SCALARS[field.type][0]) if field.type != "u8" else table.raw(field.slot)
        case "string" | "bytes":
            return table.string(field.slot)
        case "table":
            child = table.table(field.slot)
            return child and _decode(child, field.type, path=(*path, field.name), faults=faults)
        case "union":
            return _union(table, field, record=record, path=path, faults=faults)
        case _:
            return _tables(table, field, path=path, faults=faults)


def _scalar(table: Table, field: schema.Field) -> Any:
    value = table.scalar(field.slot, schema.SCALARS[field.type][0])
    if value is None:
        return None
    if field.type == "bool":
        return value != 0
    if not field.enum:
        return value
    members = schema.enums()[field.enum]
    if not 0 <= value < len(members):
        raise FlatbufferError("E1010", f"{value} is not a value of {field.enum}")
    return members[int(value)]


def _union(table: Table, field: schema.Field, *, record: Record, path: Path, faults: CutShort) -> Any:
    members = schema.enums()[field.type]
    number = record[field.name + "_type"]
    if not 0 <= number < len(members):
        raise FlatbufferError("E1010", f"{number} is not a value of {field.type}")
    if number == 0:
        return None
    child = table.table(field.slot)
    if child is None:
        return None
    name = members[number]
    return name, _decode(child, name, path=(*path, field.name), faults=faults)


def _tables(table: Table, field: schema.Field, *, path: Path, faults: CutShort) -> tuple[Record, ...]:
    records = []
    for i, position in enumerate(table.tables(field.slot)):
        child_path = (*path, field.name, i)
        try:
            child = Table(table.reader, position)
        except BudgetError:
            raise
        except FlatbufferError as error:
            faults.add(error, place(child_path))
            records.append(default_record(field.type))
            continue
        records.append(_decode(child, field.type, path=child_path, faults=faults))
    return tuple(records)


_SHORT = {"operators": "op", "tensors": "tensor", "buffers": "buffer", "operator_codes": "operator code"}


def place(path: Path) -> str:
    """A path as a phrase: `op 14 builtin_options`, `tensor 3 quantization of subgraph 1`."""
    words = [_SHORT.get(p, p) if isinstance(p, str) else str(p) for p in path]
    if words[:1] != ["subgraphs"]:
        return " ".join(words)
    inner = " ".join(words[2:])
    suffix = "" if words[1] == "0" and inner else f"subgraph {words[1]}"
    return f"{inner} of {suffix}" if inner and suffix else inner or suffix


# --- writing


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
