"""Pooling by words against the operators' meaning, and the arithmetic below it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.frontend.tflite.reduce import mean_multiplier
from aot.ir.op import TypeRuleError
from aot.ir.type import TensorType
from aot.op.common.layer import PoolAttrs
from aot.op.reduce import MeanAttrs
from aot.relay.expr import Var, call
from aot.relay.interpreter import evaluate
from aot.tir.builder import IRBuilder
from aot.topi.generic.pool import exact_mean, exact_means
from aot.topi.intrin.scalar import SMAX8, SMIN8, UMAX8, UMIN8, splat
from tests.scale import cases
from tests.topi.groups import Function, check_group, data_of, lowered
from tests.topi.intrin.test_intrin import needs_board, needs_host
from tests.topi.oncore import run_on

NONE = (0, 0, 0, 0)

POOLS = [
    ((1, 4, 6, 8), (2, 2), (2, 2), NONE),
    ((1, 5, 5, 4), (5, 5), (5, 5), NONE),
    ((2, 3, 4, 12), (2, 3), (1, 1), (1, 1, 0, 1)),
    ((1, 7, 5, 16), (5, 5), (1, 1), (2, 2, 2, 2)),
    ((1, 9, 1, 4), (4, 1), (3, 1), NONE),
    ((1, 1, 1, 4), (1, 1), (1, 1), NONE),
    ((1, 6, 7, 20), (3, 3), (2, 2), (0, 1, 1, 1)),
    ((1, 5, 6, 4), (4, 6), (1, 1), NONE),
]


def pool(name: str, shape: tuple[int, ...], attrs: PoolAttrs, dtype: str = "int8") -> tuple[tuple[Var], object]:
    x = Var("x", TensorType(shape, dtype))
    return (x,), call(name, [x], attrs)


@pytest.mark.parametrize("cpu", ["cortex-m0", "cortex-m4"])
@pytest.mark.parametrize("limits", [(-128, 127), (-100, 60)])
@pytest.mark.parametrize("name", ["nn.max_pool2d", "nn.avg_pool2d"])
@pytest.mark.parametrize("case", POOLS)
def test_pool_equals_meaning(case: tuple[tuple[int, ...], ...], name: str, limits: tuple[int, int], cpu: str) -> None:
    shape, window, strides, padding = case
    params, body = pool(name, shape, PoolAttrs(window, strides, padding, *limits))  # type: ignore[arg-type]
    check_group("generic.pool", params, body, cpu=cpu)  # type: ignore[arg-type]


def test_unsigned_maximum() -> None:
    params, body = pool("nn.max_pool2d", (1, 4, 4, 4), PoolAttrs((3, 2), (1, 2), (1, 0, 1, 0), 7, 201), "uint8")
    check_group("generic.pool", params, body)  # type: ignore[arg-type]


@pytest.mark.parametrize("cpu", ["cortex-m3", "cortex-m33"])
@pytest.mark.parametrize("shape", [(1, 7, 3, 8), (2, 20, 17, 4)])
def test_mean_equals_meaning(shape: tuple[int, ...], cpu: str) -> None:
    """The larger one has more taps than a 16-bit lane can sum."""
    x = Var("x", TensorType(shape, "int8"))
    multiplier, shift = mean_multiplier(1.7, shape[1] * shape[2])
    body = call("mean", [x], MeanAttrs((1, 2), False, 11, multiplier, shift, -5))
    check_group("generic.pool", (x,), body, cpu=cpu)


def test_average_of_many_extreme_codes() -> None:
    """A lane holds 256 of the lowest code; 17 * 17 taps are more."""
    for side in (16, 17):
        params, body = pool("nn.avg_pool2d", (1, side, side, 4), PoolAttrs((side, side), (1, 1), NONE, -128, 127))
        low = lowered("generic.pool", params, body)  # type: ignore[arg-type]
        assert low is not None
        from tests.topi.groups import run_lowered

        for code in (-128, 127):
            data = np.full((1, side, side, 4), code, np.int8)
            assert (run_lowered(low, [data], body.type) == code).all()  # type: ignore[attr-defined]


def test_groups_that_are_left_to_others() -> None:
    params, body = pool("nn.max_pool2d", (1, 4, 4, 6), PoolAttrs((2, 2), (2, 2), NONE, -128, 127))
    assert lowered("generic.pool", params, body) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9, 16, 64, 125, 150])
def test_mean_without_division(count: int) -> None:
    """`exact_mean` checks every sum itself; here a few against the definition, ties of both signs among them."""
    form = exact_mean(count)
    assert form is not None
    for total in {-128 * count, 127 * count, count // 2, -(count // 2), count + count // 2, -count - count // 2, 0, 1, -1}:
        away = (abs(total) + count // 2) // count * (1 if total >= 0 else -1)
        assert (total * form.multiplier + (1 << (form.shift - 1))) >> form.shift == away


def bytes_case() -> tuple[object, dict[str, np.ndarray], np.ndarray]:  # type: ignore[type-arg]
    """Every operation on all pairs of some bytes, in each place of a word."""
    codes = np.array([-128, -127, -65, -64, -1, 0, 1, 63, 64, 100, 126, 127], np.int8)
    pairs = np.stack(np.meshgrid(codes, codes)).reshape(2, -1)
    words = [np.stack([np.roll(p, 37 * k) for k in range(4)], axis=1).copy() for p in pairs]
    a, b = (w.view(np.uint32).reshape(-1) for w in words)
    expected = [
        f(words[0].view(t), words[1].view(t)).view(np.uint32).reshape(-1)
        for f, t in ((np.maximum, np.int8), (np.minimum, np.int8), (np.maximum, np.uint8), (np.minimum, np.uint8))
    ]
    ib = IRBuilder("bytes")
    x, y = ib.input("x", a.shape, "uint32"), ib.input("y", b.shape, "uint32")
    out = ib.output("z", (4, a.size), "uint32")
    with ib.for_("i", a.size) as i:
        for row, f in enumerate((SMAX8, SMIN8, UMAX8, UMIN8)):
            ib.store(out, (row, i), f(x[i], y[i]))
    return ib.finish(), {"x": a, "y": b}, np.stack(expected)


def test_means_of_several_counts_with_one_shift() -> None:
    found = exact_means({2, 3, 4, 6, 9})
    assert found is not None
    multipliers, shift = found
    for count, multiplier in multipliers.items():
        totals = np.arange(-128 * count, 127 * count + 1)
        wanted = np.sign(totals) * ((2 * np.abs(totals) + count) // (2 * count))
        np.testing.assert_array_equal((totals * multiplier + (1 << (shift - 1))) >> shift, wanted)


def test_windows_that_leave_the_image_without_a_division() -> None:
    """A table of multipliers where the core cannot divide, as long as it is short."""
    params, body = pool("nn.avg_pool2d", (1, 6, 7, 8), PoolAttrs((3, 3), (1, 1), (1, 1, 1, 1), -128, 127))
    for cpu, tables in (("cortex-m0", 1), ("cortex-m3", 0)):
        assert len(check_group("generic.pool", params, body, cpu=cpu).constants) == tables  # type: ignore[arg-type]
    params, body = pool("nn.avg_pool2d", (1, 12, 12, 4), PoolAttrs((9, 9), (1, 1), (4, 4, 4, 4), -128, 127))
    assert not check_group("generic.pool", params, body, cpu="cortex-m0").constants  # type: ignore[arg-type]


def test_bytes_in_the_interpreter() -> None:
    from tests.topi.oncore import interpret

    func, inputs, expected = bytes_case()
    np.testing.assert_array_equal(interpret(func, inputs)["z"], expected)  # type: ignore[arg-type]
    assert splat(-2) == 0xFEFEFEFE


@needs_host
def test_bytes_in_portable_c(tmp_path: Path) -> None:
    func, inputs, expected = bytes_case()
    np.testing.assert_array_equal(run_on(func, inputs, board="host", folder=tmp_path)[0]["z"], expected)  # type: ignore[arg-type]


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("board", ["mps2-an385", "mps2-an386", "mps2-an505", "microbit"])
def test_bytes_on_the_board(tmp_path: Path, board: str) -> None:
    func, inputs, expected = bytes_case()
    np.testing.assert_array_equal(run_on(func, inputs, board=board, folder=tmp_path)[0]["z"], expected)  # type: ignore[arg-type]


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("name", ["nn.max_pool2d", "nn.avg_pool2d"])
def test_pool_on_the_board(tmp_path: Path, name: str) -> None:
    """Bit-exact on M4, and about as many instructions as the kernel says."""
    params, body = pool(name, (1, 12, 12, 32), PoolAttrs((2, 2), (2, 2), NONE, -128, 127))
    low = lowered("generic.pool", params, body)  # type: ignore[arg-type]
    assert low is not None
    data = data_of(params[0], 3)
    outputs, result = run_on(low.func, {"data": data.reshape(-1)}, board="mps2-an386", folder=tmp_path)
    (expected,) = evaluate(Function(params, body), [data])  # type: ignore[arg-type]
    np.testing.assert_array_equal(outputs["out"].reshape(expected.shape), expected)
    assert result.instructions is not None
    assert 0.7 * low.instructions < result.instructions < 1.3 * low.instructions


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_random_pools(part: int) -> None:
    """500 random shapes a part, half of them on a core without DSP."""
    rng = np.random.default_rng(900 + part)
    done = 0
    while done < cases(500):
        shape = (int(rng.integers(1, 3)), *map(int, rng.integers(1, 10, 2)), 4 * int(rng.integers(1, 6)))
        window = tuple(int(rng.integers(1, min(n, 6) + 1)) for n in shape[1:3])
        padding = tuple(int(rng.integers(0, k)) if rng.random() < 0.5 else 0 for k in (*window, *window))
        lo, hi = sorted(int(v) for v in rng.integers(-128, 128, 2)) if rng.random() < 0.5 else (-128, 127)
        attrs = PoolAttrs(window, (int(rng.integers(1, 4)), int(rng.integers(1, 4))), padding, lo, hi)  # type: ignore[arg-type]
        name = ("nn.max_pool2d", "nn.avg_pool2d")[int(rng.integers(2))]
        try:
            params, body = pool(name, shape, attrs)
        except TypeRuleError:  # a window that lies outside the image
            continue
        check_group("generic.pool", params, body, cpu=("cortex-m3", "cortex-m4")[done % 2], seed=done)  # type: ignore[arg-type]
        done += 1
