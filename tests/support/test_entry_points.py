"""Tests of aot/support/entry_points.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

from aot.ir.op import get_global_func, list_global_func_names
from aot.support.entry_points import declare, declared, reach


@pytest.mark.parametrize("name", ["operators", "constructors", "pattern tables", "kernels", "passes"])
def test_everything_that_is_declared_is_there(name: str) -> None:
    assert name in declared()
    reach(name)


def test_functions_get_the_operands() -> None:
    reach("operator", "nn.conv2d")
    with pytest.raises(TypeError):
        reach("operator")


def test_names_by_prefix() -> None:
    declare({"a test: one": (), "a test: another": ()})
    assert declared("a test: ") == ["another", "one"]
    reach("a test: one")
    with pytest.raises(KeyError):
        reach("a test: third")


def test_global_functions_are_entry_points() -> None:
    assert {*declared("global function ")} <= {*list_global_func_names()}
    assert callable(get_global_func("target.build.c"))


def test_importing_the_package_imports_none_of_it() -> None:
    code = "import aot, sys; print(sorted(m for m in sys.modules if m.startswith('aot.') and m.count('.') == 1))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "['aot.support', 'aot.version']"
