"""The main function: what the interpreter runs is what the C file prints."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import AotError
from aot.executor.emit import LoweredOutput
from aot.ir.instrument import random_inputs
from aot.runtime.module import load
from aot.tir.stmt import CallPrim
from tests.scale import cases

ROOT = Path(__file__).resolve().parents[3]
OWN = sorted((ROOT / "tests" / "models").glob("*.tflite"))
OWN = OWN[:: len(OWN) // cases(len(OWN))]
SHARED = sorted((ROOT.parent / "shared" / "models" / "nets").glob("*.tflite"), key=lambda p: (p.stat().st_size, p.name))
SHARED = SHARED[: cases(30)]
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
FED = Options(opt="ram", feed_rows=True)


def same(path: Path, options: Options, cache: Path) -> LoweredOutput:
    """Compile for this machine; the interpreted main function must give the bytes of the C one, layer by layer too."""
    exe = compile_model(path, target="host", options=options)
    inputs = random_inputs([t.type for t in exe.lowered.inputs], seed=7)
    told: list[int] = []
    interpreted = exe.interpret(inputs, on_call=lambda i, _name, _outputs: told.append(i))
    for want, got in zip(load(exe.artifact, cache=cache).run(inputs), interpreted, strict=True):
        assert np.asarray(want).tobytes() == got.tobytes()
    assert (
        told == [s.layer for s in exe.main.run.body if isinstance(s, CallPrim) and s.layer >= 0][exe.main.feeding is not None :]
    )
    return exe


@needs_gcc
@pytest.mark.parametrize(("name", "io"), [("graph_two_inputs_two_outputs", "user"), ("graph_output_used_inside", "arena")])
def test_interpreted_is_printed(name: str, io: str, tmp_path: Path) -> None:
    exe = same(ROOT / "tests" / "models" / f"{name}.tflite", Options(io=io), tmp_path)  # type: ignore[arg-type]
    text = exe.artifact.files[f"{name}.c"]
    calls = [s for s in exe.main.run.body if isinstance(s, CallPrim)]
    places = [text.index(f"  {s.func}(") for s in calls if s.layer >= 0]
    assert places == sorted(places)
    assert len(places) == len(exe.layers)


@needs_gcc
def test_fed_rows(tmp_path: Path) -> None:
    """The interpreter passes in row by row, as the C file does."""
    exe = same(DIGITS, FED, tmp_path)
    feeding = exe.main.feeding
    assert feeding is not None
    assert exe.main.run.body[1:] == feeding.end.body
    (take,) = feeding.take.body
    assert isinstance(take, CallPrim)
    assert f"  {take.func}(row," in exe.artifact.files["digits.c"]


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("path", OWN, ids=lambda p: p.stem)
@pytest.mark.parametrize("options", [Options(), Options(opt="ram", io="user"), FED], ids=["balanced", "ram", "fed"])
def test_own_networks(path: Path, options: Options, tmp_path: Path) -> None:
    try:
        same(path, options, tmp_path)
    except AotError as error:
        if not options.feed_rows or not all(p.code == "E5054" for p in error.problems):
            raise
        pytest.skip("cannot be fed by rows")


@needs_gcc
@pytest.mark.slow
@pytest.mark.parametrize("path", SHARED, ids=lambda p: p.stem)
def test_corpus(path: Path, tmp_path: Path) -> None:
    """The smallest 30 of the corpus; at least 20 of them compile without a word about their shapes."""
    try:
        same(path, Options(), tmp_path)
    except AotError as error:
        if not all(p.code == "E1214" for p in error.problems):
            raise
        pytest.skip("its shapes have to be given")
