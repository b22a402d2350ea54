"""Random numbers over time, against LiteRT's generator."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.errors import AotError
from aot.runtime.module import load
from aot.testing import reference_sets
from tests.op._differential import FAST, OFTEN, SEEDS, check_drawn, dims, main_of
from tests.op._one_op import Spec, const, draw_array, one_op
from tests.op._steps import check_steps

Array = np.ndarray[Any, Any]
Case = tuple[bytes, list[list[Array]]]
SEED = st.integers(-(2**62), 2**62).filter(lambda n: n & 0xFFFFFFFF != 0) | st.integers(1, 100)
"""The reference reads 32 bits of a seed, and takes a random one for 0."""


@st.composite
def numbers(draw: st.DrawFn, opcode: str) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=5))
    model = one_op(opcode, [const(shape)], [Spec(shape, "float32")], seed=draw(SEED), seed2=draw(SEED | st.just(0)))
    return model, [[], []]


@st.composite
def multinomials(draw: st.DrawFn) -> Case:
    shape, samples, seed = draw(dims(2, largest=6)), draw(st.integers(1, 9)), draw(SEEDS)
    dtype = draw(st.sampled_from(["int32", "int64"]))
    logits = Spec(shape, "float32")
    model = one_op("MULTINOMIAL", [logits, const(samples)], [Spec((shape[0], samples), dtype)], seed=draw(SEED), seed2=draw(SEED))
    scale = np.float32(draw(st.sampled_from([1.0, 5.0, 100.0])))
    steps = [np.asarray(np.random.default_rng(seed + i).standard_normal(shape) * scale, np.float32) for i in range(2)]
    steps[1].flat[0] = draw(st.sampled_from([np.inf, -np.inf, np.nan, 3e38]))
    return model, [[s] for s in steps]


DRAWN = {
    "uniform": numbers("RANDOM_UNIFORM"),
    "normal": numbers("RANDOM_STANDARD_NORMAL"),
    "multinomial": multinomials(),
}


@pytest.mark.parametrize("name", DRAWN)
def test_random(name: str) -> None:
    check_drawn(DRAWN[name], FAST, check_steps)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_random_often(name: str) -> None:
    check_drawn(DRAWN[name], OFTEN, check_steps)


def test_on_host() -> None:
    for opcode in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
        check_steps(one_op(opcode, [const((3, 3))], [Spec((3, 3), "float32")], seed=1, seed2=2), [[]] * 3, host=True)
    draws = [Spec((2, 3), "float32"), const(5)]
    steps = [[draw_array(i, (2, 3), "float32")] for i in range(2)]
    check_steps(one_op("MULTINOMIAL", draws, [Spec((2, 5), "int64")], seed=1, seed2=2), steps, host=True)


def test_a_compiled_model_goes_on_and_begins_anew() -> None:
    model = one_op("RANDOM_UNIFORM", [const((5,))], [Spec((5,), "float32")], seed=7, seed2=0)
    host = load(compile_model(model, target="host").artifact)
    wanted = reference_sets(model, [[]] * 4)
    for _ in range(2):
        found = [host.run([]) for _ in wanted]
        assert [f[0].tobytes() for f in found] == [w[0].tobytes() for w in wanted]
        host.reset()


def test_refused() -> None:
    for seed, shape, code in ((0, (2,), "E1260"), (1 << 32, (2,), "E1260"), (1, (0,), "E1122")):
        with pytest.raises(AotError, match=code):
            main_of(one_op("RANDOM_UNIFORM", [const(shape)], [Spec(shape, "float32")], seed=seed, seed2=0))
    with pytest.raises(AotError, match="E1213"):
        main_of(one_op("RANDOM_UNIFORM", [Spec((1,), "int32")], [Spec((2,), "float32")], seed=1))
