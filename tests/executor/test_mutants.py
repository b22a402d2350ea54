"""Our own models with other scales, attributes, shapes and constants: as C under both sanitizers, bytes as the graph's."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import numpy as np
import pytest

from aot.driver.build import build
from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate
from tests.executor.mutants import mutate
from tests.op.test_any_data import extreme_sets
from tests.scale import cases

MODELS = sorted(p for p in (Path(__file__).parents[1] / "models").glob("*.tflite") if not p.name.startswith("net_"))
COUNT = 200
"""Mutants that compile, with AOT_FULL=1."""


def mutant(number: int) -> tuple[bytes, Function]:
    """The first mutation of a model, chosen by `number`, that the front end accepts and that is not the model itself."""
    rng, path = Random(number), MODELS[(7 * number) % len(MODELS)]
    original = path.read_bytes()
    for _ in range(200):
        try:
            data = mutate(original, rng)
            main = from_tflite(data)["main"]
        except AotError:
            continue
        assert isinstance(main, Function)
        if data != original:
            return data, main
    pytest.fail(f"no mutation of {path.name} is accepted")


def test_mutants_are_different_models() -> None:
    assert len({mutant(i)[0] for i in range(6)}) == 6


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("number", range(cases(COUNT)))
def test_no_undefined_behaviour(number: int, tmp_path: Path) -> None:
    data, main = mutant(number)
    project = prepare(build(data, target="host", name="mutant"), load_board("host"), folder=tmp_path, sanitize=True)
    sets = extreme_sets(main, 3)
    with np.errstate(all="ignore"):
        wanted = [evaluate(main, inputs) for inputs in sets]
    for found, right in zip(run(project, [tuple(s) for s in sets]).outputs, wanted, strict=True):
        for a, b in zip(found, right, strict=True):
            assert np.array_equal(a.reshape(b.shape), b, equal_nan=b.dtype.kind == "f")
