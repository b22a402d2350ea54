"""SignalEnergy: squares of bins from start to end."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from aot.testing import HAVE_TFLM, tflm_reference
from tests.op._differential import FAST, OFTEN, SEEDS, check_drawn, check_lowering, main_of, same
from tests.op._drawn_count import count
from tests.op.signal import _models as models
from tests.op.signal._models import draw_bits


@st.composite
def energies(draw: st.DrawFn) -> tuple[int, int, int, int]:
    bins = draw(st.integers(1, 12))
    start = draw(st.integers(0, bins))
    return bins, start, draw(st.integers(start, bins)), draw(SEEDS)


def check_energy(bins: int, start: int, end: int, seed: int) -> None:
    """Bins from start to end are TFLM's, the others are 0 (TFLM leaves there what was in memory)."""
    model, data = models.energy(bins, start, end), draw_bits(seed, (2 * bins,), "int16")
    (found,) = evaluate(main_of(model, oracle="tflm"), [data])
    check_lowering(main_of(model, oracle="tflm"), [[data]], [[found]], host=False)
    assert not found[:start].any()
    assert not found[end:].any()
    if HAVE_TFLM:
        same([found[start:end]], [tflm_reference(model, [data])[0][start:end]], "differs from TFLM")
        count(model, [[data]])


def test_random() -> None:
    check_drawn(energies(), FAST, check_energy)


@pytest.mark.slow
def test_random_often() -> None:
    check_drawn(energies(), OFTEN, check_energy)


def test_on_host() -> None:
    one = np.array([[20000, -20000, 3]], np.int16)
    bins, energy = one.repeat(3)[:8], main_of(models.energy(4, 1, 3))
    check_lowering(energy, [[bins]], [evaluate(energy, [bins])], host=True)


def test_refused() -> None:
    with pytest.raises(AotError, match="E1122"):
        main_of(models.energy(4, 3, 5), oracle="tflm")
