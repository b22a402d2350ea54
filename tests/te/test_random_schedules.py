"""Random primitives on random stages: whatever is not refused keeps the meaning."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from aot import te
from aot.support.dtype import numpy_dtype
from aot.tir.function import PrimFunc
from aot.tir.interpreter import run
from aot.tir.transform import optimize
from tests.scale import cases
from tests.te.computations import ALL, Array, Computation

SMALL: dict[str, dict[str, int]] = {
    "matmul": {"m": 4, "n": 3, "k": 6},
    "conv2d": {"h": 3, "w": 4, "c": 2, "o": 2},
    "depthwise": {"h": 4, "w": 3, "c": 2},
    "softmax": {"rows": 2, "n": 5},
    "top_k": {"n": 5, "count": 2},
}
COUNT = cases(200)


def primitive(rng: random.Random, s: te.Schedule, c: Computation) -> None:
    """One primitive with arguments drawn at random; many are refused."""
    stage = rng.choice(s.stages)
    leaves = list(stage.leaf_iter_vars)
    axis = rng.choice(leaves) if leaves else None
    match rng.randrange(12):
        case 0 | 1:
            stage.split(axis, rng.randint(1, 5))
        case 2:
            stage.split(axis, nparts=rng.randint(1, 4))
        case 3 | 4:
            stage.reorder(*rng.sample(leaves, rng.randint(1, len(leaves))))
        case 5:
            at = rng.randrange(max(1, len(leaves) - 1))
            stage.fuse(*leaves[at : at + 2])
        case 6:
            rng.choice([stage.unroll, stage.vectorize])(axis)
        case 7 | 8:
            parent = rng.choice(s.stages)
            if parent.leaf_iter_vars:
                stage.compute_at(parent, rng.choice(parent.leaf_iter_vars))
        case 9:
            rng.choice([stage.compute_inline, stage.compute_root, lambda: stage.set_scope("local")])()
        case 10:
            _cache(rng, s, stage, c)
        case _:
            s.rfactor(stage.tensor, axis, rng.randint(0, 2))


def _cache(rng: random.Random, s: te.Schedule, stage: Any, c: Computation) -> None:
    scope = rng.choice(["local", "global"])
    if rng.random() < 0.5:
        s.cache_write(stage.tensor, scope)
        return
    s.cache_read(rng.choice([*c.inputs, *(x.tensor for x in s.stages)]), scope, [stage.tensor])


def drawn(c: Computation, seed: int, counts: Counter[str]) -> PrimFunc | None:
    """A function by a random schedule, None where it cannot be lowered."""
    rng = random.Random(seed)
    s = c.default()
    for _ in range(rng.randint(2, 9)):
        try:
            primitive(rng, s, c)
            counts["done"] += 1
        except te.ScheduleError:
            counts["refused"] += 1
    try:
        func = te.lower(s, c.args, "f")["f"]
    except te.ScheduleError:
        counts["not lowered"] += 1
        return None
    assert isinstance(func, PrimFunc)
    return func


def outputs_of(func: PrimFunc, c: Computation, inputs: list[Array]) -> list[Array]:
    outputs = [np.full(t.shape, 0x55, numpy_dtype(t.dtype)) for t in c.args[-c.outputs :]]
    run(func, {t.name: a for t, a in zip(c.args, [*inputs, *outputs], strict=True)})
    return outputs


def check(make: Callable[..., Computation], seeds: range) -> Counter[str]:
    counts: Counter[str] = Counter()
    c = make(**SMALL[make.__name__])
    inputs = c.data(1)
    wanted = c.meaning(*inputs)
    for seed in seeds:
        func = drawn(c, seed, counts)
        if func is None:
            continue
        for form in (func, optimize(func)):
            for a, b in zip(outputs_of(form, c, inputs), wanted, strict=True):
                assert (a == b).all(), f"seed {seed}"
        counts["kept"] += 1
    return counts


@pytest.mark.parametrize("make", ALL)
def test_some_random_schedules_keep_the_meaning(make: Callable[..., Computation]) -> None:
    counts = check(make, range(5))
    assert counts["kept"] >= 1


@pytest.mark.slow
@pytest.mark.parametrize("make", ALL)
def test_random_schedules_keep_the_meaning(make: Callable[..., Computation]) -> None:
    counts = check(make, range(COUNT))
    print(make.__name__, dict(counts))
    assert counts["kept"] >= COUNT // 2, "most schedules are lowered"
    assert counts["done"] > counts["refused"] > 0
