"""A file that ends too early is one problem, wherever it ends; a single wrong offset is named with its place."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from aot.errors import Problem
from aot.frontend.problems import Problems
from aot.frontend.tflite.check import check_structure
from aot.frontend.tflite.flatbuffer import CutShort, FlatbufferError
from aot.testing import conv2d_model

NETWORK = (Path(__file__).parents[2] / "models" / "net_kws_dscnn.tflite").read_bytes()
QUESTION = "is the download complete?"


def cut(data: bytes, end: int) -> Problem:
    """The only problem of the first bytes of a file."""
    (problem,) = check_structure(data[:end])
    return problem


@pytest.mark.parametrize(
    ("end", "parts"),
    [
        (13017, "all buffers and 37 other parts"),
        (26035, "22 of 22 buffers and 3 other parts"),
        (42958, "2 of 22 buffers and 1 other part"),
    ],
)
def test_a_download_that_broke_off(end: int, parts: str) -> None:
    problem = cut(NETWORK, end)
    assert (problem.code, problem.where) == ("E1003", "")
    assert problem.message.startswith(f"the file ends at byte {end}, but {parts} are beyond it, up to at least byte ")
    assert problem.message.endswith(f": {QUESTION}")
    reaches = int(problem.message.partition("up to at least byte ")[2].split(":")[0])
    assert end < reaches <= len(NETWORK)


def test_one_problem_wherever_a_file_ends() -> None:
    data = conv2d_model()
    ends = range(8, len(data), 4)
    assert sum(cut(data, end).message.endswith(QUESTION) for end in ends) > len(ends) // 2


@pytest.mark.slow
def test_one_problem_wherever_a_network_ends() -> None:
    for end in range(8, len(NETWORK), 97):
        assert cut(NETWORK, end).code.startswith("E10")


def test_a_single_part_is_named() -> None:
    """One buffer at a place that no file has; then the list of all of them, which names none."""
    data = bytearray(NETWORK)
    (root,) = struct.unpack_from("<I", data)
    vtable = root - struct.unpack_from("<i", data, root)[0]
    at = root + struct.unpack_from("<H", data, vtable + 4 + 2 * 4)[0]  # slot 4 of Model
    buffers = at + struct.unpack_from("<I", data, at)[0]
    struct.pack_into("<I", data, buffers + 4 + 4 * 3, 1 << 30)
    problem = cut(bytes(data), len(data))
    assert (problem.code, problem.where) == ("E1003", "buffer 3")
    assert problem.message.startswith("a table at byte 10")
    struct.pack_into("<I", data, at, 1 << 30)
    assert ", but all buffers are beyond it, up to at least byte 10" in cut(bytes(data), len(data)).message


def test_data_behind_the_tables() -> None:
    """Of buffers that are named by offsets in the file, as converters write those of large models."""
    problems = Problems()
    faults = CutShort(problems)
    for i in range(3):
        faults.add(FlatbufferError("E1009", f"its data of 10 bytes at byte {90 + i} ends outside", 100 + i), f"buffer {i}")
    assert faults.report(95, 5)
    (problem,) = problems.report()
    assert problem.message == f"the file ends at byte 95, but 3 of 5 buffers are beyond it, up to at least byte 102: {QUESTION}"


def test_what_is_wrong_otherwise_is_noted_by_itself() -> None:
    problems = Problems()
    faults = CutShort(problems)
    faults.add(FlatbufferError("E1010", "99 is not a value of TensorType"), "tensor 1", "type")
    faults.add(FlatbufferError("E1004", "the vector at byte 8 claims 9 elements", 21), "tensor 2", "shape")
    faults.add(FlatbufferError("E1004", "the vector at byte 8 claims 9 elements", 21), "tensor 2", "name")
    assert not faults.report(16, 0)
    assert [(p.code, p.message[:5], p.where) for p in problems.report()] == [
        ("E1010", "type:", "tensor 1"),
        ("E1004", "shape", "tensor 2"),
        ("E1004", "name:", "tensor 2"),
    ]
