"""Kernels that may write exactly over their input, against a trace of every byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.report.measure.inputs import open_npz
from aot.tir.analysis import in_place_pairs
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Var, maximum
from aot.tir.function import PrimFunc
from aot.tir.transform import optimize
from tests.tir.access_trace import Access, trace

MODELS = Path(__file__).resolve().parents[2] / "models"


def truth(log: list[Access], a: Buffer, b: Buffer) -> bool:
    """Whether each byte of `b` is written only after the byte of `a` at its place was read for the last time."""
    used: dict[int, int] = {}
    written: dict[int, int] = {}
    for time, (buffer, start, size, stored) in enumerate(log):
        for byte in range(start, start + size):
            if buffer is a and not stored:
                used[byte] = time
            if buffer is b and stored:
                written.setdefault(byte, time)
    return all(used[byte] < written.get(byte, len(log)) for byte in used)


@pytest.mark.parametrize(
    ("name", "kernels"),
    [
        ("depthwise_same", "native"),
        ("add", "native"),
        ("conv2d_same", "generic"),
        pytest.param("net_sww", "native", marks=pytest.mark.slow),
    ],
)
def test_layers_of_models_against_the_trace(name: str, kernels: str) -> None:
    lowered = compile_model(MODELS / f"{name}.tflite", options=Options(kernels=kernels)).lowered
    for call in lowered.calls[:4]:
        func = lowered.kernel(call)
        log = trace(func, lowered.constants.get(call.func, {}))
        for a, b in in_place_pairs(func):
            assert truth(log, a, b), func.attrs.kernel


def test_a_depthwise_plane_kernel_works_in_place() -> None:
    """The case that ranges cannot tell: the model needs its tensor once, and the result is right."""
    path = MODELS / "depthwise_same.tflite"
    executable = compile_model(path)
    (call,) = executable.lowered.calls
    assert executable.layout.places[call.inputs[0]] == executable.layout.places[call.outputs[0]]
    golden = open_npz(path.with_suffix(".golden.npz"))
    (result,) = executable.interpret([golden["in0_0"]])
    np.testing.assert_array_equal(result, golden["out0_0"])


def mapped(n: int, place: int, *, order: int = 1) -> PrimFunc:
    """out[i] = x[i + place], for i upward or downward; the start clipped."""
    b = IRBuilder("mapped")
    x, out = b.input("x", (n,), "int8"), b.output("out", (n,), "int8")
    with b.for_("i", n - max(place, 0)) as i:
        at: Expr | Var = i if order > 0 else (n - 1 - max(place, 0)) - i
        b.store(out, at, x[maximum(at + place, 0)])
    return optimize(b.finish())


@pytest.mark.parametrize(
    ("place", "order", "allowed"), [(0, 1, True), (0, -1, True), (1, 1, True), (1, -1, False), (-1, 1, False)]
)
def test_only_what_was_read_is_written_over(place: int, order: int, allowed: bool) -> None:
    func = mapped(12, place, order=order)
    assert bool(in_place_pairs(func)) == allowed
    assert truth(trace(func, {}), func.inputs[0], func.outputs[0]) == allowed


def test_two_passes_over_the_input_may_not() -> None:
    b = IRBuilder("twice")
    x, out = b.input("x", (8,), "int8"), b.output("out", (8,), "int8")
    for _ in range(2):
        with b.for_("i", 8) as i:
            b.store(out, i, x[i])
    assert not in_place_pairs(optimize(b.finish()))


def test_more_accesses_than_the_limit_are_not_followed() -> None:
    assert in_place_pairs(mapped(12, 0))
    assert not in_place_pairs(mapped(12, 0), limit=10)
