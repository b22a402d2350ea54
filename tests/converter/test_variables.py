"""Modules with variables as TensorFlow's converter writes them (make_variables.py), over time against the reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.frontend.specialize import Choice
from aot.runtime.module import load
from aot.testing.reference import reference_sets
from tests.op.state.test_variable import same

MODELS = sorted((Path(__file__).parent / "variables").glob("*.tflite"))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_over_time(path: Path) -> None:
    model, rng = path.read_bytes(), np.random.default_rng(1)
    host = load(build(model, target="host"))
    shapes = [(row["shape"], row["dtype"]) for row in host.metadata["inputs"]]
    steps = [[rng.standard_normal(shape).astype(dtype) for shape, dtype in shapes] for _ in range(12)]
    expected = reference_sets(model, steps)
    for _ in range(2):
        assert same([host.run(s) for s in steps], expected)
        host.reset()


def test_a_signature_that_resets() -> None:
    (path,) = [p for p in MODELS if p.stem == "ring"]
    models = {
        key: load(build(path.read_bytes(), target="host", name=key, options=Options(io="user", choice=Choice(signature=key))))
        for key in ("step", "reset")
    }
    rng = np.random.default_rng(1)
    steps = [[rng.standard_normal((1, 1, 4)).astype(np.float32)] for _ in range(5)]
    state = models["step"].new_state()
    first = [models["step"].run(s, state=state) for s in steps]
    models["reset"].run([], state=state)
    assert same([models["step"].run(s, state=state) for s in steps], first)
