"""What a module exports has the functions of the modules that it imports."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

import aot
from aot import te
from aot.errors import UsageError
from aot.ir.module import IRModule
from aot.runtime import load_module
from aot.runtime.functions import CModule, Module


def plus(name: str, amount: int, *, module: str = "") -> Module:
    a = te.placeholder((4,), "int32", name="a")
    b = te.compute((4,), lambda i: a[i] + amount, name="b")
    func = aot.lower(te.create_schedule(b.op), [a, b], name=name)[name]
    return aot.build(IRModule({name: func}, module or name), target="host")  # type: ignore[return-value]


def run(module: Module, name: str) -> int:
    out = np.zeros(4, "int32")
    module[name](np.zeros(4, "int32"), out)
    return int(out[0])


def nested() -> CModule:
    """one, which imports two, which imports three, and three itself."""
    one, two, three = (plus(n, i) for i, n in enumerate(("one", "two", "three"), start=1))
    two.import_module(three)
    one.import_module(two)
    one.import_module(three)
    assert isinstance(one, CModule)
    return one


def test_library(tmp_path: Path) -> None:
    loaded = load_module(nested().export_library(tmp_path / "one.so"))
    assert [run(loaded, n) for n in ("one", "two", "three")] == [1, 2, 3]
    assert loaded.functions == ("one",)
    assert [m.name for m in loaded.imports] == ["two", "three"]


def test_sources(tmp_path: Path) -> None:
    module = nested()
    with tarfile.open(module.export_library(tmp_path / "one.tar")) as archive:
        assert {f"{n}.{e}" for n in ("one", "two", "three") for e in "ch"} <= set(archive.getnames())
    module.export_library(tmp_path / "first.c")
    assert {p.name for p in tmp_path.glob("*.[ch]")} == {"first.c", "one.h", "two.c", "two.h", "three.c", "three.h"}


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    one = nested()
    loaded = load_module(one.export_library(tmp_path / "one.so"))
    other = plus("other", 5)
    other.import_module(loaded)
    assert run(other, "two") == 2  # callable all the same
    for ending in ("so", "tar", "c"):
        with pytest.raises(UsageError, match=r"E5078.*imports one of kind library, which has no C source"):
            other.save(tmp_path / f"other.{ending}")
    same = plus("one", 7, module="another")
    same.import_module(one)
    with pytest.raises(UsageError, match=r"E5078.*also has function one"):
        same.save(tmp_path / "same.so")
    with pytest.raises(UsageError, match=r"E5078.*also has two\.c"):
        one.save(tmp_path / "two.c")
