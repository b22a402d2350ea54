"""Constants as C."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from aot.target.codegen_c import LINE, comment, float_literal, wrap_call
from aot.target.source_module import Param, as_stream, internal_header, params_source, print_array
from aot.target.target import find_target
from tests.c_tools import compile_all, shared_library
from tests.work import calls

EDGES = {
    "int8": [-128, -1, 0, 127],
    "uint8": [0, 255],
    "int16": [-32768, 32767],
    "uint16": [65535],
    "int32": [-(2**31), -1, 2**31 - 1],
    "uint32": [0, 2**32 - 1],
    "int64": [-(2**63), 2**63 - 1, -5],
    "uint64": [2**64 - 1],
    "float32": [0.1, 1e-45, 3.4028234663852886e38, -1.0, float("inf"), float("-inf"), float("nan"), -0.0],
    "float64": [0.1, 5e-324, 1.7976931348623157e308, float("inf")],
    "bool": [True, False],
}


def sources(folder: Path) -> tuple[Path, list[Param]]:
    arrays = [Param(f"t_{d}", d, as_stream(np.array(v, d), d), 16, f"edges of {d} */") for d, v in EDGES.items()]
    header = internal_header([], arrays, banner="/* t */", guard="T_H", target=find_target("host"))
    (folder / "t.h").write_text(header)
    path = folder / "t.c"
    path.write_text(params_source(arrays, banner="/* t */", header="t.h"))
    return path, arrays


def test_values_survive_the_compiler(tmp_path: Path) -> None:
    path, arrays = sources(tmp_path)
    library = ctypes.CDLL(str(shared_library([path], tmp_path / "t.so")))
    for array in arrays:
        symbol = (ctypes.c_uint8 * array.data.nbytes).in_dll(library, array.name)
        assert ctypes.addressof(symbol) % 16 == 0
        got = np.frombuffer(bytes(symbol), array.data.dtype)
        np.testing.assert_array_equal(got, array.data)
        if array.data.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(got), np.signbit(array.data))


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-m4"])
def test_constants_compile_without_warnings(compiler: str, tmp_path: Path) -> None:
    compile_all(compiler, [sources(tmp_path)[0]])


def test_a_megabyte_prints_in_wide_lines() -> None:
    """With a call for a line, and none for a value."""
    data = np.random.default_rng(0).integers(-128, 128, 1 << 20).astype(np.int8)
    array = Param("a", "int8", data, 4)
    texts: list[str] = []
    calls(lambda: texts.append(print_array(array)), most=data.size // 10)
    lines = texts[0].splitlines()
    assert len(lines) < (1 << 20) / 20
    values = ",".join(line.rstrip(",") for line in lines[1:-1]).split(",")
    np.testing.assert_array_equal(np.array(values, np.int64), data)


def test_stream_reinterprets_bytes() -> None:
    assert as_stream(np.array([[1, 0, 0, 0], [2, 0, 0, 0]], np.uint8), "int32").tolist() == [1, 2]
    assert as_stream(np.arange(6, dtype=np.int8).reshape(2, 3).T, "int8").tolist() == [0, 3, 1, 4, 2, 5]


@pytest.mark.parametrize("text", ["a*/b", "/* x", "//", "??/", "a\\\nb", "***///", "é\u202e\x00"])
def test_comment_cannot_be_left(text: str) -> None:
    clean = comment(text)
    assert not any(mark in clean for mark in ("*/", "/*", "//", "??", "\\", "\n"))
    assert clean.isascii()


def test_long_calls_are_wrapped() -> None:
    text = wrap_call("f(", [f"argument_{i}" for i in range(20)], ");")
    assert max(map(len, text.splitlines())) <= LINE
    assert text.replace("\n    ", " ") == "f(" + ", ".join(f"argument_{i}" for i in range(20)) + ");"
    assert wrap_call("f(", [], ");") == "f();"


def test_float_literals_are_exact() -> None:
    for value in np.random.default_rng(0).standard_normal(200).astype(np.float32):
        assert np.float32(float_literal(float(value), "float32").rstrip("f")) == value
    assert float_literal(1.0, "float32") == "1.0f"
    assert float_literal(1.0, "float64") == "1.0"
