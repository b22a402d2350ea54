"""TFLM's audio front end, operators without a state."""

from __future__ import annotations

from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from aot.testing import HAVE_TFLM, tflm_reference
from tests.op._differential import FAST, OFTEN, SEEDS, check_lowering, check_tflm, main_of, same
from tests.op._drawn_count import count
from tests.op._one_op import Spec, draw_array
from tests.op.signal import _models as models
from tests.op.signal._models import Array, draw_bits

Case = tuple[bytes, list[Array]]
LENGTHS = st.sampled_from([4, 6, 8, 10, 12, 16, 18, 20, 30, 32, 50, 60, 64])


@st.composite
def windows(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 12))
    shape = (*draw(st.sampled_from([(), (1,), (3,), (2, 2)])), n)
    seed = draw(SEEDS)
    return models.window(shape, draw(st.integers(0, 20)), draw_bits(seed, (n,), "int16")), [draw_bits(seed + 1, shape, "int16")]


@st.composite
def scalings(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 20))
    data = draw_bits(draw(SEEDS), (n,), "int16") >> draw(st.integers(0, 15))
    return models.auto_scale(n), [data]


@st.composite
def spectra(draw: st.DrawFn) -> Case:
    dtype, length = draw(st.sampled_from(["int16", "int32", "float32"])), draw(LENGTHS)
    rows = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    samples = draw(st.integers(max(1, length - 3), length))
    shape = (*rows, samples)
    seed = draw(SEEDS)
    data = draw_array(seed, shape, dtype) if dtype == "float32" else draw_bits(seed, shape, dtype)
    return models.rfft(dtype, rows, samples, length), [data]


@st.composite
def inverse_spectra(draw: st.DrawFn) -> Case:
    dtype, length = draw(st.sampled_from(["int16", "int32", "float32"])), draw(LENGTHS)
    rows = draw(st.sampled_from([(), (1,), (3,), (2, 2)]))
    shape = (*rows, length + 2)
    seed = draw(SEEDS)
    data = draw_array(seed, shape, dtype) if dtype == "float32" else draw_bits(seed, shape, dtype)
    return models.irfft(dtype, rows, length), [data]


@st.composite
def banks(draw: st.DrawFn) -> Case:
    bins, weights = draw(st.integers(1, 20)), draw(st.integers(1, 30))
    channels = []
    for _ in range(draw(st.integers(2, 6))):
        width = draw(st.integers(0, min(bins, weights, 6)))
        channels.append((draw(st.integers(0, bins - width)), draw(st.integers(0, weights - width)), width))
    seed = draw(SEEDS)
    tables = [draw_bits(seed + i, (weights,), "int16") for i in range(2)]
    return models.filter_bank(bins, channels, tables[0], tables[1]), [draw_bits(seed + 2, (bins,), "uint32")]


@st.composite
def roots(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 12))
    data = draw_bits(draw(SEEDS), (n,), "uint64")
    if draw(st.booleans()):  # the edges between roots
        root = data >> np.uint64(32)
        data = root * root + root + np.arange(n, dtype=np.uint64) % np.uint64(3) - np.uint64(1)
    return models.square_root(n), [data, np.array(draw(st.integers(0, 31)), np.int32)]


@st.composite
def gains(draw: st.DrawFn) -> Case:
    n, seed = draw(st.integers(1, 12)), draw(SEEDS)
    table = draw_bits(seed, (draw(st.integers(125, 128)),), "int16")
    data = [draw_bits(seed + 1, (n,), "uint32"), draw_bits(seed + 2, (n,), "uint32")]
    return models.pcan(n, draw(st.integers(0, 40)), table), data


@st.composite
def logs(draw: st.DrawFn) -> Case:
    n = draw(st.integers(1, 12))
    scale = draw(st.one_of(st.sampled_from([64, 1600]), st.integers(0, 1 << 20)))
    return models.log(n, scale, draw(st.integers(0, 31))), [draw_bits(draw(SEEDS), (n,), "uint32")]


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


DRAWN: list[Callable[[], st.SearchStrategy[Case]]] = [
    windows, scalings, spectra, inverse_spectra, banks, roots, gains, logs,
]  # fmt: skip


@pytest.mark.parametrize("strategy", DRAWN)
def test_random(strategy: Callable[[], st.SearchStrategy[Case]]) -> None:
    @given(strategy())
    @FAST
    def test(case: Case) -> None:
        check_tflm(case[0], case[1])

    test()


@pytest.mark.slow
@pytest.mark.parametrize("strategy", DRAWN)
def test_random_often(strategy: Callable[[], st.SearchStrategy[Case]]) -> None:
    @given(strategy())
    @OFTEN
    def test(case: Case) -> None:
        check_tflm(case[0], case[1])

    test()


@given(energies())
@FAST
def test_energy(case: tuple[int, int, int, int]) -> None:
    check_energy(*case)


@pytest.mark.slow
@given(energies())
@OFTEN
def test_energy_often(case: tuple[int, int, int, int]) -> None:
    check_energy(*case)


def test_on_host() -> None:
    one = np.array([[20000, -20000, 3]], np.int16)
    check_tflm(models.window((2, 3), 12, one[0]), [np.repeat(one, 2, axis=0)], host=True)
    for dtype in ("int16", "int32", "float32"):
        check_tflm(models.rfft(dtype, (2,), 29, 30), host=True)
        check_tflm(models.irfft(dtype, (2,), 16), host=True)
    check_tflm(models.auto_scale(5), [np.array([1, -300, 7, 0, 20], np.int16)], host=True)
    check_tflm(models.square_root(4), [np.array([0, 3, 0xFFFFFFFF, 1 << 63], np.uint64), np.array(1, np.int32)], host=True)
    check_tflm(models.pcan(3, 6, draw_bits(1, (125,), "int16")), [draw_bits(i, (3,), "uint32") for i in range(2)], host=True)
    check_tflm(models.log(4, 1600, 3), [np.array([0, 1, 77777, 0xFFFFFFFF], np.uint32)], host=True)
    weights = draw_bits(3, (6,), "int16")
    bank = models.filter_bank(8, [(0, 0, 2), (2, 2, 3), (5, 3, 3)], weights, weights[::-1].copy())
    check_tflm(bank, [draw_bits(4, (8,), "uint32")], host=True)
    bins, energy = one.repeat(3)[:8], main_of(models.energy(4, 1, 3))
    check_lowering(energy, [[bins]], [evaluate(energy, [bins])], host=True)


def test_the_loudest_sample_may_be_the_most_negative_one() -> None:
    for samples in ([-32768, 5, -6], [5, -32768], [-32768, -32768]):
        check_tflm(models.auto_scale(len(samples)), [np.array(samples, np.int16)])


def test_refused() -> None:
    frame = Spec((8,), "int16")
    for model, code in (
        (models.rfft("int16", (), 4, 14), "E1180"),
        (models.rfft("int16", (), 4, 2), "E1180"),
        (models.rfft("int16", (), 9, 8), "E1122"),
        (models.custom("SignalRfft", [frame], [Spec((10,), "int16")], T=7), "E1116"),
        (models.custom("SignalIrfft", [frame], [frame], T=7, fft_length=8), "E1122"),
        (models.energy(4, 3, 5), "E1122"),
        (models.pcan(3, 6, np.zeros(124, np.int16)), "E1207"),
        (models.window((2, 3), 40, np.zeros(3, np.int16)), "E1122"),
        (models.window((2, 3), 4, np.zeros(2, np.int16)), "E1207"),
        (models.filter_bank(4, [(0, 0, 2), (3, 0, 2)], np.zeros(2, np.int16), np.zeros(2, np.int16)), "E1122"),
        (models.log(4, 1600, 32), "E1122"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model, oracle="tflm")
