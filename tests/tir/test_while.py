"""tir.While: printed, run, verified, and as C."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest

from aot.errors import InternalError
from aot.target.codegen_c import emit_func, headers
from aot.target.target import find_target
from aot.tir.analysis import safe_distances
from aot.tir.buffer import Buffer
from aot.tir.expr import BinOp, Imm
from aot.tir.function import PrimFunc
from aot.tir.interpreter import InterpreterError, run
from aot.tir.printer import print_stmt
from aot.tir.stmt import Store, While
from aot.tir.transform import optimize
from aot.tir.verify import verify
from tests.c_tools import shared_library


def doubling(limit: int = 0) -> PrimFunc:
    """y = x; while (y < 100) y = y + y."""
    x, y = Buffer("x", (1,), "int32"), Buffer("y", (1,), "int32")
    loop = While(
        (Store(x, (Imm(0),), y[0], "int32"),) if limit < 0 else (),
        BinOp("<", y[0], Imm(100)),
        (Store(y, (Imm(0),), BinOp("+", y[0], y[0]), "int32"),),
        max(limit, 0),
    )
    return PrimFunc("doubling", (x,), (y,), (Store(y, (Imm(0),), x[0], "int32"), loop))


def result(func: PrimFunc, value: int) -> int:
    out = np.zeros(1, np.int32)
    run(func, {"x": np.array([value], np.int32), "y": out})
    return int(out[0])


def test_runs() -> None:
    assert [result(doubling(), v) for v in (3, 100, 200)] == [192, 100, 200]
    assert result(optimize(doubling()), 3) == 192
    with pytest.raises(InterpreterError, match="has not ended after 5 iterations"):
        result(doubling(5), 0)
    assert result(doubling(6), 3) == 192


def test_text() -> None:
    text = print_stmt(doubling(9).body[1])
    assert text.splitlines() == ["while at most 9 {", "} holds y[0] < 100 {", "  y[0] = y[0] + y[0]", "}"]


def test_verified() -> None:
    verify(doubling())
    with pytest.raises(InternalError, match="is not writable here"):
        verify(doubling(-1))


def test_nothing_overlaps() -> None:
    assert safe_distances(doubling()) == {}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_c(tmp_path: Path) -> None:
    func = optimize(doubling())
    text = emit_func(func, name="doubling", target=find_target("host"), linkage="extern")
    source = tmp_path / "doubling.c"
    declared = "void doubling(const int32_t *x, int32_t *y);"
    source.write_text("\n".join([*(f'#include "{h}"' for h in headers(func)), declared, text]))
    library = ctypes.CDLL(str(shared_library([source], tmp_path / "doubling.so")))
    given, out = (ctypes.c_int32 * 1)(3), (ctypes.c_int32 * 1)()
    library.doubling(given, out)
    assert out[0] == 192
    with pytest.raises(InternalError, match="only a main function"):
        emit_func(doubling(5), name="f", target=find_target("host"))
