"""The program of many kernels finds what is wrong, and says of which kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.target.codegen_c import emit_func
from aot.tir.builder import IRBuilder
from aot.topi.strategy import Lowered
from tests.topi import batch
from tests.topi.batch import Batch
from tests.topi.drawn import Case
from tests.topi.intrin.test_intrin import needs_board, needs_host


def tripled(count: int) -> Case:
    """y = 3 x."""
    b = IRBuilder("tripled")
    x, y = b.input("x", (count,), "int32"), b.output("y", (count,), "int32")
    with b.for_("i", count) as i:
        b.store(y, i, x[i] * 3)
    data = np.arange(1, count + 1, dtype=np.int32)
    return Case(f"of {count}", Lowered(b.finish()), [data], [data * 3])


FAULTS = {
    "reads and writes past the end": ("i < 5", "i < 6"),
    "writes before the start": ("i = 0", "i = -1"),
    "overflows": ("x[i] * 3", "x[i] * 0x7fffffff"),
}


def wrong(monkeypatch: pytest.MonkeyPatch, fault: tuple[str, str], board: str, folder: Path) -> list[str]:
    """What is found in a program of three kernels, of which the second one gets the fault."""

    def changed(*args: Any, **kwargs: Any) -> str:
        text = emit_func(*args, **kwargs)
        return text.replace(*fault) if "< 5" in text else text

    monkeypatch.setattr(batch, "emit_func", changed)
    return Batch([tripled(4), tripled(5), tripled(6)]).run(board, folder)


@pytest.mark.slow
@needs_host
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_sanitizers_watch_every_buffer(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = wrong(monkeypatch, FAULTS[name], "host", tmp_path)
    assert found.startswith("of 5: ")


@pytest.mark.qemu
@needs_board
def test_a_board_shows_what_is_written_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(monkeypatch, FAULTS["reads and writes past the end"], "mps2-an386", tmp_path) == ["of 5"]


@pytest.mark.slow
@needs_host
def test_alike_functions_are_compiled_once(tmp_path: Path) -> None:
    project = Batch([tripled(4), tripled(4), tripled(5)]).project("host", tmp_path)
    assert project.artifact.files["unit_kernels.c"].count("AOT_KERNEL") == 2
    assert Batch([tripled(4), tripled(4)]).run("host", tmp_path) == []
