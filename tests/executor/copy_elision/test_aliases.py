"""Slices and parts of a concatenation along the outermost dimension take no instruction and no memory."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.executor.config import Io
from aot.executor.emit import LoweredOutput
from aot.executor.storage_map import plan_lowered
from aot.memory.plan import liveness_bound
from aot.runtime.module import load
from aot.testing import ModelBuilder, reference_sets
from tests.scale import cases

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
SCALE = {"scale": 0.5, "zero_point": 3}


class Graph:
    """An int8 graph in a few words; rows are the outermost dimension."""

    def __init__(self, width: int = 4) -> None:
        self.b, self.width, self.count = ModelBuilder(), width, 0
        self.rows: dict[int, int] = {}

    def tensor(self, rows: int) -> int:
        self.count += 1
        index = self.b.tensor(f"t{self.count}", (1, rows, self.width, 2), "int8", **SCALE)
        self.rows[index] = rows
        return index

    def constant(self, values: list[int]) -> int:
        self.count += 1
        return self.b.tensor(f"c{self.count}", (len(values),), "int32", data=np.array(values, np.int32))

    def slice(self, source: int, first: int, rows: int) -> int:
        result = self.tensor(rows)
        self.b.op("SLICE", [source, self.constant([0, first, 0, 0]), self.constant([1, rows, self.width, 2])], [result])
        return result

    def concat(self, parts: list[int]) -> int:
        result = self.tensor(sum(self.rows[p] for p in parts))
        self.b.op("CONCATENATION", parts, [result], axis=1)
        return result

    def pool(self, source: int) -> int:
        """A layer that no copy is fused with; the shape stays."""
        result = self.tensor(self.rows[source])
        size = {"filter_height": 2, "filter_width": 2, "stride_h": 1, "stride_w": 1}
        self.b.op("AVERAGE_POOL_2D", [source], [result], padding="SAME", fused_activation_function="NONE", **size)
        return result


def run(model: bytes, *, io: Io = "arena") -> LoweredOutput:
    """Compile for this machine, run in both interpreters and as C, compare with the reference; what was compiled."""
    made = compile_model(model, target="host", name="m", options=Options(io=io))
    rng = np.random.default_rng(0)
    sets = [[rng.integers(-128, 128, t.type.shape, np.int8) for t in made.lowered.inputs] for _ in range(2)]
    loaded: Any = load(made.artifact)
    for inputs, wanted in zip(sets, reference_sets(model, sets), strict=True):
        for found in (made.interpret(inputs), loaded.run(inputs)):
            assert [f.tobytes() for f in found] == [w.tobytes() for w in wanted]
    return made


def copies(made: LoweredOutput) -> int:
    """Layers that only copy."""
    return sum(layer.func.attrs.kernel.startswith("generic.copy") for layer in made.layers)


@needs_gcc
@pytest.mark.parametrize("io", ["arena", "user"])
def test_slices_and_parts_are_views(io: Io) -> None:
    g = Graph()
    x = g.tensor(6)
    top, bottom = g.slice(x, 0, 3), g.slice(x, 3, 3)
    y = g.concat([g.pool(top), g.pool(bottom)])
    made = run(g.b.build([x], [y]), io=io)
    assert copies(made) == 0
    assert len(made.lowered.calls) == 2
    if io == "arena":
        assert made.layout.plan.size <= 2 * 48, "the input and the result, each once"


@needs_gcc
def test_parts_that_cannot_be_views_are_copied() -> None:
    """Inputs, results, one tensor twice, and parts of an element's size that do not suit a word."""
    g = Graph()
    x = g.tensor(2)
    y = g.pool(x)
    model = g.b.build([x], [g.concat([y, x]), g.concat([y, y]), g.slice(g.pool(y), 0, 1)])
    made = run(model)
    assert copies(made) == 3, [layer.func.attrs.kernel for layer in made.layers]


@needs_gcc
def test_chains_of_views() -> None:
    """A part of a part, a slice of a slice, a slice across two parts."""
    g = Graph()
    x = g.tensor(4)
    inner = g.concat([g.pool(x), g.pool(g.pool(x))])
    outer = g.concat([g.pool(inner), g.pool(g.pool(inner))])
    across = g.slice(g.slice(outer, 1, 9), 2, 5)
    assert copies(run(g.b.build([x], [g.pool(across)]))) == 0


def test_memory_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that are made early have their whole tensor there at the peak: fine within the bound, but not where RAM counts."""
    g = Graph(width=8)
    x = g.tensor(1)
    early = g.pool(x)
    peak = g.pool(g.pool(g.concat([early] * 8)))
    late = g.concat([g.pool(g.slice(peak, k, 1)) for k in range(8)])
    model = g.b.build([x], [g.concat([early, late])])
    with monkeypatch.context() as patch:
        patch.setattr("aot.executor.copy_elision.with_aliases", lambda lowered, **_: lowered)
        plain = compile_model(model, target="host")
    for tight, limit in ((False, liveness_bound(plain.layout.buffers)), (True, plain.layout.plan.size)):
        planned = plan_lowered(replace(plain.lowered, config=replace(plain.lowered.config, tight=tight)))
        assert len(planned.calls) < len(plain.lowered.calls)
        assert planned.size <= limit


@st.composite
def graphs(draw: st.DrawFn) -> bytes:
    """A dozen operators over tensors of up to 12 rows."""
    g = Graph(draw(st.sampled_from([1, 3, 4, 8])))
    inputs = [g.tensor(draw(st.integers(1, 4)))]
    known = list(inputs)
    for _ in range(draw(st.integers(3, 12))):
        kind, source = draw(st.integers(0, 2)), draw(st.sampled_from(known))
        rows = g.rows[source]
        if kind == 0:
            first = draw(st.integers(0, rows - 1))
            known.append(g.slice(source, first, draw(st.integers(1, rows - first))))
        elif kind == 1 and rows <= 12:
            known.append(g.concat([source, *draw(st.lists(st.sampled_from(known), min_size=1, max_size=2))]))
        else:
            known.append(g.pool(source))
    outputs = list(dict.fromkeys([known[-1], *draw(st.lists(st.sampled_from(known[1:]), max_size=2))]))
    return g.b.build(inputs, outputs)


@needs_gcc
@pytest.mark.slow
@given(graphs(), st.sampled_from(["arena", "user"]))
@settings(max_examples=cases(300))
def test_random_graphs(model: bytes, io: Io) -> None:
    run(model, io=io)
