"""runtime.Module: calling, sources, files, imports, and what is refused."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aot
from aot import te
from aot.errors import UsageError
from aot.ir.module import IRModule
from aot.runtime import Module, load_module
from aot.runtime.functions import CModule
from aot.target import Target
from tests.c_tools import COMPILERS, compile_all


def scaled(name: str = "twice", factor: int = 2, *, cached: bool = False) -> CModule:
    """y = factor * x, int8[6] to int32[6]."""
    x = te.placeholder((6,), "int8", "x")
    y = te.compute((6,), lambda i: x[i].astype("int32") * factor, "y")
    s = te.create_schedule(y.op)
    if cached:
        s.cache_read(x, "global", [y])
    module = aot.build(s, [y, x], target="host", name=name)
    assert isinstance(module, CModule)
    return module


X = np.arange(-3, 3, dtype=np.int8)


def test_call_in_the_order_of_the_arguments() -> None:
    for cached in (False, True):
        y = np.zeros(6, np.int32)
        m = scaled(cached=cached)
        m["twice"](y, X)
        np.testing.assert_array_equal(y, 2 * X.astype(np.int32))
        m(y, X)  # the only function
        assert [p.name for p in m["twice"].params] == ["y", "x"]
        assert ("workspace" in m.get_source()) == cached


class OverDlpack:
    """An array of somebody else's."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **_: Any) -> Any:
        return self._array.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_dlpack_and_unaligned_arrays() -> None:
    y, raw = np.zeros(6, np.int32), np.zeros(25, np.uint8)
    scaled()["twice"](y, OverDlpack(X))
    np.testing.assert_array_equal(y, 2 * X)
    odd = raw[1:].view(np.int32)
    scaled()["twice"](odd, X)
    np.testing.assert_array_equal(odd, 2 * X)


@pytest.mark.parametrize(
    "args",
    [
        (),
        (np.zeros(6, np.int32),),
        (np.zeros(6, np.int32), X, X),
        (np.zeros(6, np.int32), list(X)),
        (np.zeros(6, np.int64), X),
        (np.zeros(5, np.int32), X),
        (np.zeros(12, np.int32)[::2], X),
        (np.zeros(6, np.int32).astype(">i4"), X),
        (None, X),
    ],
)
def test_wrong_arrays(args: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match="E5075"):
        scaled()["twice"](*args)


def test_read_only_and_overlapping_outputs() -> None:
    y = np.zeros(6, np.int32)
    y.flags.writeable = False
    with pytest.raises(UsageError, match="read-only"):
        scaled()["twice"](y, X)
    shared = np.zeros(24, np.uint8)
    with pytest.raises(UsageError, match="overlap"):
        scaled()["twice"](shared.view(np.int32), shared[:6].view(np.int8))


def test_names_that_there_are_not() -> None:
    m = scaled()
    for wrong in ("thrice", "", 3, None):
        with pytest.raises(UsageError, match="E5076"):
            m[wrong]  # type: ignore[index]
    with pytest.raises(UsageError, match="E5078"):
        m.get_source("ll")


def test_imports() -> None:
    a, b, c = scaled("two", 2), scaled("three", 3), scaled("four", 4)
    b.import_module(c)
    a.import_module(b)
    assert a.imports == (b,)
    y = np.zeros(6, np.int32)
    a["four"](y, X)
    np.testing.assert_array_equal(y, 4 * X.astype(np.int32))
    assert a.implements_function("four", query_imports=True)
    assert not a.implements_function("four")
    with pytest.raises(UsageError, match="E5076"):
        a.get_function("four")
    with pytest.raises(UsageError, match="E5074"):
        c.import_module(a)


def test_several_functions() -> None:
    x, y = te.placeholder((4,), "int32", "x"), te.placeholder((4,), "int32", "y")
    funcs = {}
    for name, op in (("plus", lambda a, b: a + b), ("minus", lambda a, b: a - b)):
        z = te.compute((4,), lambda i, op=op: op(x[i], y[i]), "z")
        funcs[name] = aot.lower(te.create_schedule(z.op), [x, y, z], name=name)[name]
    m = aot.build(IRModule(funcs), target="host", name="both")
    assert isinstance(m, Module)
    assert m.functions == ("plus", "minus")
    a, b, z = np.arange(4, dtype=np.int32), np.full(4, 7, np.int32), np.zeros(4, np.int32)
    m["minus"](a, b, z)
    np.testing.assert_array_equal(z, a - b)
    with pytest.raises(UsageError, match="choose one"):
        m(a, b, z)


def test_files(tmp_path: Path) -> None:
    m = scaled(cached=True)
    library = m.export_library(tmp_path / "m.so")
    loaded = load_module(library)
    y = np.zeros(6, np.int32)
    loaded["twice"](y, X)
    np.testing.assert_array_equal(y, 2 * X)
    assert (m.type_key, loaded.type_key) == ("c", "library")
    m.save(tmp_path / "m.tar")
    m.save(tmp_path / "n.tar")
    assert (tmp_path / "m.tar").read_bytes() == (tmp_path / "n.tar").read_bytes()
    with tarfile.open(tmp_path / "m.tar") as archive:
        assert {"twice.c", "twice.h", "metadata.json", "include/aot/kernel.h"} <= set(archive.getnames())
    m.export_library(tmp_path / "twice.c")
    assert (tmp_path / "twice.h").is_file()
    for name in ("m.exe", "m", "nowhere/m.c"):
        with pytest.raises(UsageError, match=r"E5078|E5005"):
            m.export_library(tmp_path / name)
    for name in ("m.tar", "absent.so"):
        with pytest.raises(UsageError, match=r"E5078|E5001"):
            load_module(tmp_path / name)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", sorted(COMPILERS))
def test_the_source_is_free_of_warnings(compiler: str, tmp_path: Path) -> None:
    m = scaled(cached=True)
    m.export_library(tmp_path / "twice.c")
    compile_all(compiler, [tmp_path / "twice.c"])


def test_the_header_is_cpp(tmp_path: Path) -> None:
    m = scaled()
    (tmp_path / "twice.h").write_text(m.get_source("h"), encoding="utf-8")
    (tmp_path / "user.cpp").write_text('#include "twice.h"\n', encoding="utf-8")
    subprocess.run(["g++", "-fsyntax-only", "-Wall", "-Werror", "user.cpp"], cwd=tmp_path, check=True)


def test_a_kind_of_target_with_a_code_generator_of_its_own() -> None:
    from aot.target import register_target_kind
    from aot.target.target import _KINDS

    class Nothing(Module):
        type_key = "nothing"

    try:
        register_target_kind("test-nothing", codegen=lambda module, target: Nothing(f"{module.name} for {target}"))
        x = te.placeholder((4,), "int32", "x")
        y = te.compute((4,), lambda i: x[i] + 1, "y")
        m = aot.build(te.create_schedule(y.op), [x, y], target="test-nothing -mcpu=cortex-m4", name="f")
        assert (m.type_key, m.name) == ("nothing", "f for test-nothing -keys=arm_cpu,cpu -mcpu=cortex-m4")
        aot.register_func("target.build.test-nothing", lambda _module, _target: 3, override=True)
        with pytest.raises(UsageError, match="E5074"):
            aot.build(te.create_schedule(y.op), [x, y], target="test-nothing")
        with pytest.raises(UsageError, match="E5080"):
            register_target_kind("test-nothing")
    finally:
        _KINDS.pop("test-nothing", None)
        aot.remove_global_func("target.build.test-nothing")
    with pytest.raises(UsageError, match="E5010"):
        Target("test-nothing -mcpu=cortex-m4")
