"""Models with a state, run over several steps: the reference, `evaluate`, the interpreted kernels and the compiled ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.relay.interpreter import StatefulFunction
from aot.relay.state import input_vars, state_of
from aot.testing import HAVE_LITERT, HAVE_TFLM, reference_sets, tflm_sets
from tests.op._differential import check_lowering, main_of, random_array, same
from tests.op._drawn_count import count

Array = np.ndarray[Any, Any]


def check_steps(
    model: bytes, steps: Sequence[Sequence[Array]], *, oracle: str = "litert", host: bool = False
) -> list[list[Array]]:  # fmt: skip
    """Run `model` on the steps one after the other in every way and compare outputs and states; returns the outputs."""
    func = main_of(model, oracle=oracle)
    assert state_of(func), "the model keeps nothing"
    running = StatefulFunction(func)
    found, before, after = [], [], []
    for inputs in steps:
        before.append([*inputs, *(s.copy() for s in running.state)])
        found.append(running.run(inputs))
        after.append([*found[-1], *(s.copy() for s in running.state)])
    compared = HAVE_LITERT if oracle == "litert" else HAVE_TFLM
    if compared:
        wanted = (reference_sets if oracle == "litert" else tflm_sets)(model, steps)
        for i, (outputs, expected) in enumerate(zip(found, wanted, strict=True)):
            same(outputs, expected, f"step {i}: evaluate differs from the reference")
    check_lowering(func, before, after, host=host)
    count(model, steps)
    return found


def random_steps(model: bytes, *, seed: int, number: int, oracle: str = "litert") -> list[list[Array]]:
    """Inputs of that many steps; those of the second are extreme."""
    rng, inputs = np.random.default_rng(seed), input_vars(main_of(model, oracle=oracle))
    return [[random_array(rng, v.type.shape, v.type.dtype, extreme=i == 1) for v in inputs] for i in range(number)]
