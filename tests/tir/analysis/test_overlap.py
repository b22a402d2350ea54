"""Safe distances against a trace of every byte that a kernel touches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.tir.analysis import Distance, safe_distances
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder, region
from aot.tir.expr import cast, logical_and, maximum, minimum
from aot.tir.function import PrimFunc
from aot.tir.functor import walk
from aot.tir.stmt import Block, CallPrim
from aot.tir.transform import optimize
from tests.scale import cases
from tests.tir.access_trace import distances, trace

MODELS = Path(__file__).resolve().parents[2] / "models"
EXACT = (
    "add",
    "average_pool",
    "max_pool",
    "concat_channels",
    "conv2d_1x1_relu6",
    "depthwise_dilation",
    "pad",
    "resize_nearest",
)
"""Models whose generic kernels must come out exactly: nothing in them is data-dependent, and no intrinsic hides an order."""


Kernel = tuple[PrimFunc, Mapping[str, np.ndarray]]
"""A function and its constants."""


def layers(name: str, kernels: str, opt: str = "balanced") -> list[Kernel]:
    lowered = compile_model(MODELS / f"{name}.tflite", options=Options(kernels=kernels, opt=opt)).lowered
    return [(lowered.kernel(c), lowered.constants.get(c.func, {})) for c in lowered.calls]


def compare(kernel: Kernel) -> bool:
    """Never below the trace's answer; the result says whether equal to it."""
    func, constants = kernel
    log = trace(func, constants)
    equal = True
    for (a, b), found in safe_distances(func).items():
        up, down = distances(log, a, b)
        truth = Distance(min(up, b.nbytes), min(down, a.nbytes))
        assert found.up >= truth.up, f"{func.attrs.kernel} {a.name} {b.name} {found} {truth}"
        assert found.down >= truth.down, f"{func.attrs.kernel} {a.name} {b.name} {found} {truth}"
        equal = equal and found == truth
    return equal


@pytest.mark.parametrize("name", EXACT)
def test_common_kernels_come_out_exactly(name: str) -> None:
    for kernel in layers(name, "generic"):
        assert compare(kernel), kernel[0].attrs.kernel


@pytest.mark.parametrize("name", ["dense_batch3", "conv2d_same", "depthwise_same", "softmax"])
def test_kernels_with_intrinsics_are_never_taken_for_too_close(name: str) -> None:
    for kernel in layers(name, "native"):
        compare(kernel)


def test_an_intrinsic_that_keeps_its_order_comes_out_exactly() -> None:
    """The packing of a dense layer's input writes two bytes for each that it reads: the input may be in the later half."""
    packing = [
        k
        for k in layers("net_ad_autoencoder", "native", "speed")
        if any(isinstance(s, Block) and s.intrin.ordered for s in walk(k[0].body))
    ]
    kernel = min(packing, key=lambda k: sum(array.nbytes for array in k[1].values()))
    assert kernel[0].attrs.kernel.startswith("arm_dsp.dense_w8(")
    assert compare(kernel)


@pytest.mark.slow
def test_layers_of_the_models_against_the_trace() -> None:
    loose = []
    paths = [p for p in sorted(MODELS.glob("*.tflite")) if not p.stem.startswith("net_")]
    for path in paths[:: 1 if cases(10) == 10 else 5]:
        for kernels in ("native", "generic"):
            for kernel in layers(path.stem, kernels):
                func, _ = kernel
                blocks = any(isinstance(s, Block) for s in walk(func.body))
                if not compare(kernel) and not blocks:
                    loose.append(f"{path.stem} {func.attrs.kernel}")
    assert not loose, "kernels without intrinsics whose distance is larger than it has to be"


def one(found: dict[tuple[Buffer, Buffer], Distance]) -> Distance:
    (distance,) = found.values()
    return distance


def shifted(n: int, ahead: int, *, step: int = 1) -> PrimFunc:
    """out[i] = x[i + ahead], clipped to the ends."""
    b = IRBuilder("shifted")
    x, out = b.input("x", (n,), "int8"), b.output("out", (n,), "int8")
    with b.for_("i", n, step=step) as i:
        for k in range(step):
            b.store(out, i + k, x[minimum(maximum(i + (ahead + k), 0), n - 1)])
    return optimize(b.finish())


@pytest.mark.parametrize(("ahead", "up"), [(0, 0), (3, 0), (-1, 1), (-5, 5)])
def test_distance_is_how_far_the_reads_lag_behind(ahead: int, up: int) -> None:
    # reads in front of the write have the last ones, at the clipped end, catch up with it
    assert one(safe_distances(shifted(40, ahead))).up == up


def test_statements_of_one_iteration_are_ordered() -> None:
    # out[i] is stored before x[i + 1] is loaded, which is why a step of two needs no distance either
    assert one(safe_distances(shifted(40, 0, step=2))).up == 0


def test_a_long_loop_is_taken_in_chunks_and_stays_safe() -> None:
    func = shifted(4000, 0)
    assert one(safe_distances(func)).up == 0
    assert one(safe_distances(func, limit=64)).up == 63  # chunks of 63 iterations, reads after writes


def test_a_kernel_that_runs_downward() -> None:
    b = IRBuilder("reverse_copy")
    x, out = b.input("x", (16,), "int8"), b.output("out", (16,), "int8")
    with b.for_("i", 16) as i:
        b.store(out, 15 - i, x[15 - i])
    found = one(safe_distances(optimize(b.finish())))
    assert found == Distance(up=16, down=0)


def test_a_gather_may_not_overlap() -> None:
    b = IRBuilder("gather")
    x, at, out = b.input("x", (16,), "int8"), b.input("at", (16,), "int8"), b.output("out", (16,), "int8")
    with b.for_("i", 16) as i:
        b.store(out, i, x[cast("int32", at[i])])
    found = safe_distances(optimize(b.finish()))
    assert [d.up for (a, _), d in found.items() if a.name == "x"] == [15]  # only the last write comes after the last read
    assert [d.up for (a, _), d in found.items() if a.name == "at"] == [0]


def test_different_wide_types_may_not_overlap() -> None:
    b = IRBuilder("widen")
    x, out = b.input("x", (16,), "int16"), b.output("out", (16,), "int32")
    with b.for_("i", 16) as i:
        b.store(out, i, cast("int32", x[i]))
    assert safe_distances(optimize(b.finish())) == {}  # a C compiler may reorder accesses of different types


def test_padding_is_told_from_reads() -> None:
    """A guarded read outside of the tensor is none, neither at an instant nor in a range."""
    b = IRBuilder("windows")
    x, out = b.input("x", (64,), "int8"), b.output("out", (64,), "int8")
    with b.for_("i", 64) as i:
        total = b.local("total", (1,), "int32", init=0)
        with b.for_("k", 3) as k:
            at = b.let("at", i + k - 1)
            with b.if_(logical_and(at >= 0, at < 64)):
                b.store(total, 0, total[0] + cast("int32", x[at]))
        b.store(out, i, total[0])
    func = optimize(b.finish())
    assert one(safe_distances(func)).up == 1
    log = trace(func, {})
    assert distances(log, func.inputs[0], func.outputs[0])[0] == 1


def row_function() -> PrimFunc:
    b = IRBuilder("row")
    x, out = b.input("x", (8,), "int8"), b.output("out", (8,), "int8")
    with b.for_("i", 8) as i:
        b.store(out, i, x[i])
    return optimize(b.finish())


def test_calls_count_with_the_ranges_of_the_callee() -> None:
    b = IRBuilder("rows")
    x, out = b.input("x", (64,), "int8"), b.output("out", (64,), "int8")
    with b.for_("y", 8) as y:
        b.append(CallPrim("row", (region(x, y * 8), region(out, y * 8))))
    func = optimize(b.finish())
    assert one(safe_distances(func, {"row": row_function()})).up == 8  # a row at a time, in any order within it
    assert one(safe_distances(func)).up == 64  # unknown: all that the operand reaches
