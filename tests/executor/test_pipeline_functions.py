"""Layers that differ in numbers share a function, and what each computes stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.executor.config import SelectionConfig
from aot.executor.lowered import KernelCall, LoweredModule
from aot.executor.pipeline import share_functions
from aot.tir.interpreter import run
from aot.tir.transform import optimize
from tests.executor.nets import add, tensor

SIZES = (8, 20, 8)


def net() -> LoweredModule:
    """Sums of vectors of three lengths."""
    names = [f"add_{i}" for i in range(len(SIZES))]
    calls = tuple(
        KernelCall(name, (tensor(f"x{i}", n), tensor(f"z{i}", n)), (tensor(f"y{i}", n),), operators={i: "ADD"})
        for i, (name, n) in enumerate(zip(names, SIZES, strict=True))
    )
    functions = {name: optimize(add(n)) for name, n in zip(names, SIZES, strict=True)}
    return LoweredModule(
        functions,
        "net",
        inputs=tuple(t for c in calls for t in c.inputs),
        outputs=tuple(c.outputs[0] for c in calls),
        calls=calls,
    )


def shared(lowered: LoweredModule) -> LoweredModule:
    found = share_functions(lowered)
    assert isinstance(found, LoweredModule)
    return found


def test_one_function_with_the_lengths_as_arguments() -> None:
    found = shared(net())
    assert len({c.emitted for c in found.calls}) == 1
    assert [c.scalars for c in found.calls] == [(8,), (20,), (8,)]
    assert [c.func for c in found.calls] == [c.func for c in net().calls], "each layer keeps its own function"


def test_each_call_computes_what_its_own_function_does() -> None:
    found, rng = shared(net()), np.random.default_rng(0)
    for call, n in zip(found.calls, SIZES, strict=True):
        func = found.prim_func(call.emitted)
        x, z = (rng.integers(-128, 128, n).astype(np.int8) for _ in range(2))
        y = np.zeros(n, np.int8)
        arrays = dict(zip((b.name for b in func.buffers), (x, z, y), strict=True))
        run(func, arrays, dict(zip((v.name for v in func.scalars), call.scalars, strict=True)))
        np.testing.assert_array_equal(y, np.clip(x.astype(int) + z, -128, 127))


def test_where_speed_counts_numbers_stay_constants() -> None:
    fast = replace(net(), config=replace(SelectionConfig(), opt="speed"))
    assert shared(fast) is fast
