"""MUL of four bytes at a time against the operator's meaning: whole tensors, gates of channels and of pixels, drawn numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aot.ir.type import TensorType
from aot.micro.board import load_board
from aot.op.qnn.arithmetic import MultiplyAttrs
from aot.relay.expr import Expr, Function, Var, call, const
from aot.relay.interpreter import evaluate
from aot.target.target import find_target
from aot.tir.analysis import safe_distances
from aot.tune.measure import MeasureInput, measure
from tests.topi.drawn import Case, pick
from tests.topi.groups import check_group, data_of, lowered
from tests.topi.intrin.test_intrin import needs_board
from tests.topi.runs import on_board

KERNEL = "arm_dsp.multiply"
MUL = MultiplyAttrs((-128, 3), 1340000000, -7, 5, -128, 127)


def variables(own: tuple[int, ...], other: tuple[int, ...]) -> tuple[Var, Var]:
    return Var("x", TensorType(own, "int8")), Var("y", TensorType(other, "int8"))


@pytest.mark.parametrize("other", [(1, 4, 3, 8), (1, 1, 1, 8), (8,), (1, 4, 3, 1), (1, 4, 1, 1)])
def test_whole_tensors_and_gates(other: tuple[int, ...]) -> None:
    x, y = variables((1, 4, 3, 8), other)
    check_group(KERNEL, (x, y), call("qnn.multiply", [x, y], MUL))
    check_group(KERNEL, (x, y), call("qnn.multiply", [y, x], MUL), seed=4)


@pytest.mark.parametrize("channels", [4, 5, 6, 7, 17, 70])
def test_channels_that_are_no_multiple_of_four(channels: int) -> None:
    """Runs are joined where that makes them one; else the rest of each goes one by one."""
    for rows in (5, 8):
        x, y = variables((1, rows, 1, channels), (1, 1, 1, channels))
        check_group(KERNEL, (x, y), call("qnn.multiply", [x, y], MUL), seed=channels)


def test_a_constant_operand_and_one_tensor_twice() -> None:
    x, _ = variables((1, 33), ())
    table = const(np.random.default_rng(0).integers(-128, 128, (1, 33)).astype(np.int8))
    check_group(KERNEL, (x,), call("qnn.multiply", [table, x], MUL))
    check_group(KERNEL, (x,), call("qnn.multiply", [x, x], MUL))


@pytest.mark.parametrize(("other", "over"), [((1, 4, 3, 8), [0, 0]), ((8,), [0]), ((1, 4, 3, 1), [0])])
def test_the_result_may_lie_over_every_operand_of_its_size(other: tuple[int, ...], over: list[int]) -> None:
    pair = variables((1, 4, 3, 8), other)
    low = lowered(KERNEL, pair, call("qnn.multiply", pair, MUL))
    assert low is not None
    found = safe_distances(low.func).items()
    assert [d.up for (a, b), d in found if b in low.func.outputs and a in low.func.inputs and a.nbytes == b.nbytes] == over


def test_what_is_left_to_others() -> None:
    x, y = variables((1, 33), (1, 33))
    assert lowered(KERNEL, (x, y), call("qnn.multiply", [x, y], MUL), cpu="cortex-m3") is None
    clipped = MultiplyAttrs(MUL.input_zp, MUL.multiplier, MUL.shift, 5, -20, 100)
    assert lowered(KERNEL, (x, y), call("qnn.multiply", [x, y], clipped)) is None
    larger = MultiplyAttrs(MUL.input_zp, MUL.multiplier, 1, 5, -128, 127)
    assert lowered(KERNEL, (x, y), call("qnn.multiply", [x, y], larger)) is None
    few = variables((1, 15), (1, 15))
    assert lowered(KERNEL, few, call("qnn.multiply", few, MUL)) is None
    middle = variables((1, 4, 4, 8), (1, 4, 1, 8))
    assert lowered(KERNEL, middle, call("qnn.multiply", middle, MUL)) is None


def draw(rng: np.random.Generator) -> tuple[tuple[Var, ...], Expr]:
    """Operands may be repeated along outer or inner axes, constant, or change places."""
    channels = pick(rng, 1, 3, 4, 5, 8, 12, 17, 24, 31, 64, 65)
    whole = (pick(rng, 1, 1, 2), pick(rng, 1, 2, 3), pick(rng, 1, 3, 4), channels)
    other = (whole, (1, 1, 1, channels), (channels,), (*whole[:3], 1), (*whole[:2], 1, 1))[pick(rng, 0, 0, 1, 1, 2, 3, 3, 4)]
    x, y = variables(whole, other)
    second: Expr = y if rng.random() < 0.8 else const(data_of(y, pick(rng, *range(9))))
    operands: list[Expr] = [x, second] if rng.random() < 0.5 else [second, x]
    zps = (pick(rng, -128, 0, 127, -7), pick(rng, -128, -128, 0, 127, 9))
    multiplier = int(rng.integers(1 << 30, 1 << 31)) if rng.random() < 0.8 else 1 << 30
    attrs = MultiplyAttrs(zps, multiplier, -pick(rng, 1, 3, 6, 7, 8, 9, 15), pick(rng, -128, 0, 127, 5), -128, 127)
    return (x, y) if second is y else (x,), call("qnn.multiply", operands, attrs)


def cases(seed: int, *, kernel: str = KERNEL, cpu: str = "cortex-m4") -> Iterator[Case]:
    """Endless groups that the kernel takes; every third one with operands at the ends of their ranges alone."""
    rng = np.random.default_rng(seed)
    for n in range(1 << 30):
        params, body = draw(rng)
        low = lowered(kernel, params, body, cpu=cpu)
        if low is None:
            continue
        inputs = [data_of(v, seed + n + i) for i, v in enumerate(params)]
        if n % 3 == 0:
            inputs = [np.where(x < 0, -128, 127).astype(np.int8) for x in inputs]
        yield Case(f"{kernel} {seed} {n}", low, inputs, evaluate(Function(params, body), inputs))


@pytest.mark.qemu
@needs_board
def test_a_run_as_long_as_the_requantisation_s_constant(tmp_path: Path) -> None:
    """GCC gave both one register, which counts down, as long as the counter was not an operand written early."""
    x, y = variables((1, 3, 1, 64), (1, 3, 1, 1))
    params, body = (x, y), call("qnn.multiply", [x, y], MultiplyAttrs((-7, -128), 1889253549, -7, 0, -128, 127))
    low = lowered(KERNEL, params, body)
    assert low is not None
    inputs = [data_of(v, i) for i, v in enumerate(params)]
    on_board("mps2-an386", [[Case("64", low, inputs, evaluate(Function(params, body), inputs))]], tmp_path)


@pytest.mark.qemu
@needs_board
def test_seven_instructions_an_element_whatever_the_zero_points() -> None:
    """Of whole tensors, with everything around; an odd number of words among them."""
    pairs = [(-128, -128), (-128, -7), (-7, -128), (0, 0), (-100, -110), (-128, 127), (127, 127), (3, 9)]
    funcs = []
    for n, zps in enumerate(pairs):
        x, y = variables((1, 1024 + 4 * (n % 2)), (1, 1024 + 4 * (n % 2)))
        product = call("qnn.multiply", [x, y], MultiplyAttrs(zps, 1340000000, -7, -90, -128, 127))
        funcs.append(Function((x, y), product, {"Primitive": 1}))
    given = [MeasureInput(str(i), func, (KERNEL,)) for i, func in enumerate(funcs)]
    for result, func in zip(measure(given, load_board("mps2-an386"), find_target("cortex-m4")), funcs, strict=True):
        assert not result.wrong
        assert result.count <= 7 * func.params[0].type.size
        low = lowered(KERNEL, func.params, func.body)
        assert low is not None
        assert result.count == pytest.approx(low.instructions, rel=0.05)
