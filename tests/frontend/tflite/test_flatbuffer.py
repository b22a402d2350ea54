"""The reader: every way to point outside a file, and files made to exhaust time or memory."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from aot.frontend.tflite import flatbuffer
from aot.frontend.tflite.check import check_structure
from aot.frontend.tflite.flatbuffer import BudgetError, FlatbufferError, Reader
from tests.work import calls

CALLS_A_TABLE = 400
"""Of functions, at most: the reader's budget ends the worst of these files after 180 for each table that a file may have."""
FEW = 2_000
"""Tables that a file may have in most of these tests, as counting calls takes its time."""


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flatbuffer, "MAX_TABLES", FEW)


def table_file(fields: dict[int, int], *, slots: int = 4, tail: bytes = b"") -> bytes:
    """A file with one table of 32-bit fields (slot -> value), its vtable before it and `tail` behind it."""
    vtable_size = 4 + 2 * slots
    position = 8 + vtable_size + (-vtable_size % 4)
    places = [0] * slots
    body = b""
    for slot, value in fields.items():
        places[slot] = 4 + len(body)
        body += struct.pack("<I", value & 0xFFFFFFFF)
    vtable = struct.pack(f"<HH{slots}H", vtable_size, 4 + len(body), *places)
    head = struct.pack("<I", position) + b"TEST" + vtable
    return head.ljust(position, b"\0") + struct.pack("<i", position - 8) + body + tail


def root(data: bytes):
    return Reader(data).root(b"TEST")


def test_scalars_and_absent_slots() -> None:
    table = root(table_file({0: 7, 2: 0xFFFFFFFF}))
    assert table.scalar(0, "<i") == 7
    assert table.scalar(1, "<i") is None
    assert table.scalar(2, "<i") == -1
    assert table.scalar(2, "<B") == 255
    assert table.scalar(99, "<i") is None
    assert table.table(1) is None
    assert table.array(1, "<i4") is None
    assert table.string(1) is None
    assert table.tables(1) == ()


def test_vector_is_a_read_only_view_of_the_file() -> None:
    data = table_file({0: 4}, tail=struct.pack("<I3i", 3, 10, -20, 30))
    array = root(data).array(0, "<i4")
    assert array is not None
    assert array.tolist() == [10, -20, 30]
    assert not array.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_string_and_raw_bytes() -> None:
    data = table_file({0: 4}, tail=struct.pack("<I", 3) + b"abc\0")
    assert root(data).string(0) == b"abc"
    assert bytes(root(data).raw(0) or b"") == b"abc"


@pytest.mark.parametrize("size", range(8))
def test_short_files(size: int) -> None:
    with pytest.raises(FlatbufferError) as caught:
        root(b"\x08\0\0\0TEST"[:size])
    assert caught.value.code == "E1001"


@pytest.mark.parametrize("offset", [9, 100, 0x7FFFFFFF, 0xFFFFFFFF])
def test_root_offset_outside(offset: int) -> None:
    with pytest.raises(FlatbufferError) as caught:
        root(struct.pack("<I", offset) + b"TEST\0\0")
    assert caught.value.code == "E1003"


@pytest.mark.parametrize("back", [1 << 30, -(1 << 30), 100, -100])
def test_vtable_outside(back: int) -> None:
    data = bytearray(table_file({0: 1}))
    position = struct.unpack_from("<I", data)[0]
    struct.pack_into("<i", data, position, back)
    with pytest.raises(FlatbufferError) as caught:
        root(bytes(data))
    assert caught.value.code in ("E1003", "E1005")


@pytest.mark.parametrize(("vtable_size", "table_size"), [(0, 8), (3, 8), (5, 8), (0xFFFE, 8), (12, 0), (12, 3), (12, 0xFFFF)])
def test_impossible_table_sizes(vtable_size: int, table_size: int) -> None:
    data = bytearray(table_file({0: 1}))
    struct.pack_into("<HH", data, 8, vtable_size, table_size)
    with pytest.raises(FlatbufferError) as caught:
        root(bytes(data))
    assert caught.value.code == "E1005"


def test_slot_outside_its_table() -> None:
    data = bytearray(table_file({0: 1}))
    struct.pack_into("<H", data, 12, 6)
    with pytest.raises(FlatbufferError) as caught:
        root(bytes(data)).scalar(0, "<i")
    assert caught.value.code == "E1005"


@pytest.mark.parametrize("count", [4, 0x40000000, 0xFFFFFFFF])
def test_vector_longer_than_the_file(count: int) -> None:
    data = table_file({0: 4}, tail=struct.pack("<I3i", count, 1, 2, 3))
    with pytest.raises(FlatbufferError) as caught:
        root(data).array(0, "<i4")
    assert caught.value.code == "E1004"


@pytest.mark.parametrize("offset", [0xFFFFFFFF, 0x80000000, 1000])
def test_reference_outside(offset: int) -> None:
    for read in ("string", "table", "raw", "tables"):
        with pytest.raises(FlatbufferError) as caught:
            getattr(root(table_file({0: offset})), read)(0)
        assert caught.value.code == "E1003"


def test_block_outside() -> None:
    reader = Reader(b"x" * 100)
    assert bytes(reader.block(90, 10, "data")) == b"x" * 10
    for offset, size in ((91, 10), (1 << 63, 1), (0, 1 << 63), (101, 0)):
        with pytest.raises(FlatbufferError) as caught:
            reader.block(offset, size, "data")
        assert caught.value.code == "E1009"


def test_budget() -> None:
    reader = Reader(b"x" * 100)
    reader.charge(4000)
    with pytest.raises(BudgetError):
        reader.charge(4000)


class Writer:
    """A flatbuffer written front to back by hand, so that references may go where they like."""

    def __init__(self) -> None:
        self.data = bytearray(b"\0\0\0\0TFL3")

    def table(self, sizes: dict[int, int]) -> dict[int, int]:
        """A table whose slots have the given widths; the slots' absolute positions (-1: the table's own)."""
        slots = max(sizes, default=-1) + 1
        places, offset = {}, 4
        for slot, width in sizes.items():
            places[slot] = offset
            offset += width
        vtable = len(self.data)
        self.data += struct.pack("<HH", 4 + 2 * slots, offset)
        self.data += b"".join(struct.pack("<H", places.get(s, 0)) for s in range(slots))
        position = len(self.data)
        self.data += struct.pack("<i", position - vtable) + bytes(offset - 4)
        return {-1: position, **{slot: position + place for slot, place in places.items()}}

    def point(self, at: int, target: int) -> None:
        struct.pack_into("<I", self.data, at, target - at)

    def refs(self, target_of: list[int] | int, count: int) -> int:
        """A vector of references, which the caller aims with `aim`."""
        position = len(self.data)
        self.data += struct.pack("<I", count) + bytes(4 * count)
        if isinstance(target_of, int) and target_of > 0:
            self.aim(position, target_of)
        return position

    def aim(self, vector: int, target: int) -> None:
        """Point every element of a vector of references at one table behind it."""
        count = struct.unpack_from("<I", self.data, vector)[0]
        first = vector + 4
        offsets = target - (first + 4 * np.arange(count, dtype=np.int64))
        self.data[first : first + 4 * count] = offsets.astype("<u4").tobytes()

    def vector(self, data: bytes, count: int) -> int:
        position = len(self.data)
        self.data += struct.pack("<I", count) + data
        return position


MODEL_SUBGRAPHS, MODEL_BUFFERS = 2, 4
GRAPH_TENSORS = 0


def shared_model(subgraphs: int, tensors: int, *, tensor_slots: dict[int, int] | None = None) -> tuple[Writer, dict[int, int]]:
    """A model whose subgraphs are all the same one, whose tensors are all the same one."""
    w = Writer()
    model = w.table({0: 4, MODEL_SUBGRAPHS: 4, MODEL_BUFFERS: 4})
    struct.pack_into("<I", w.data, 0, model[-1])
    struct.pack_into("<I", w.data, model[0], 3)
    graphs = w.refs(0, subgraphs)
    w.point(model[MODEL_SUBGRAPHS], graphs)
    graph = w.table({GRAPH_TENSORS: 4})
    w.aim(graphs, graph[-1])
    vector = w.refs(0, tensors)
    w.point(graph[GRAPH_TENSORS], vector)
    tensor = w.table(tensor_slots or {0: 4, 3: 4})
    w.aim(vector, tensor[-1])
    buffers = w.refs(0, 1)
    w.point(model[MODEL_BUFFERS], buffers)
    buffer = w.table({0: 4})
    w.aim(buffers, buffer[-1])
    return w, {**{100 + k: v for k, v in buffer.items()}, **tensor}


def answer(data: bytes) -> set[str]:
    """Codes of the answer, which must come after a limited amount of work."""
    found: set[str] = set()
    calls(lambda: found.update(p.code for p in check_structure(data)), most=CALLS_A_TABLE * flatbuffer.MAX_TABLES)
    assert found
    return found


@pytest.mark.usefixtures("few")
def test_quadratic_sharing_is_refused() -> None:
    w, slots = shared_model(FEW, FEW)
    end = w.vector(b"", 0)
    for slot in (0, 3, 100):
        w.point(slots[slot], end)
    assert "E1006" in answer(bytes(w.data))


@pytest.mark.usefixtures("few")
def test_many_tensors_that_share_a_long_vector() -> None:
    w, slots = shared_model(1, FEW - 100)
    w.point(slots[0], w.vector(bytes(400_000), 100_000))
    end = w.vector(b"", 0)
    w.point(slots[3], end)
    w.point(slots[100], end)
    assert "E1006" in answer(bytes(w.data))


@pytest.mark.usefixtures("few")
def test_many_tensors_that_share_a_long_name() -> None:
    w, slots = shared_model(1, FEW - 100)
    w.point(slots[3], w.vector(b"n" * 800_000, 800_000))
    end = w.vector(b"", 0)
    w.point(slots[0], end)
    w.point(slots[100], end)
    assert "E1006" in answer(bytes(w.data))


@pytest.mark.slow
def test_as_many_tensors_as_are_allowed() -> None:
    w, slots = shared_model(1, 49_000)
    end = w.vector(b"\xff\xff\xff\xff", 1)  # shape [-1]; its bytes as a name are no UTF-8
    for slot in (0, 3, 100):
        w.point(slots[slot], end)
    w.data += bytes(1_000_000)
    assert "E1102" in answer(bytes(w.data))


@pytest.mark.usefixtures("few")
def test_many_int4_tensors_over_one_buffer() -> None:
    """The unpacked values are shared, as the packed ones are."""
    w, slots = shared_model(1, FEW - 100, tensor_slots={0: 4, 1: 1, 3: 4})
    w.data[slots[1]] = 17  # INT4
    w.point(slots[0], w.vector(struct.pack("<i", 800_000), 1))
    w.point(slots[3], w.vector(b"", 0))
    w.point(slots[100], w.vector(bytes(400_000), 400_000))
    assert answer(bytes(w.data)) <= {"E1102", "E1217"}


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("fill", [0x00, 0x01, 0x04, 0x08, 0x10, 0x7F, 0xFF])
def test_a_megabyte_of_one_byte(fill: int) -> None:
    answer(struct.pack("<I", 8) + b"TFL3" + bytes([fill]) * 1_000_000)


@pytest.mark.usefixtures("few")
def test_a_table_that_contains_itself() -> None:
    """Every reference leads back to the root: the schema bounds the depth, the budget the width."""
    w = Writer()
    model = w.table({slot: 4 for slot in range(10)})
    struct.pack_into("<I", w.data, 0, model[-1])
    vector = w.refs(0, 60_000)
    for slot in range(1, 10):
        w.point(model[slot], vector)
    graph = w.table({0: 4, 1: 4, 2: 4, 3: 4, 4: 4})
    w.aim(vector, graph[-1])
    for slot in range(5):
        struct.pack_into("<I", w.data, graph[slot], 0xFFFFFFFC)
    answer(bytes(w.data))
