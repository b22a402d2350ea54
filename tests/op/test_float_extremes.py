"""Every float32 operator on infinities, NaN, zeros of both signs, the largest and the smallest numbers: the reference's bits.

A NaN is equal to every NaN.  Left out: QUANTIZE of numbers beyond int32, which C leaves undefined and which x86 and Arm convert
in different ways.
"""

from __future__ import annotations

import ctypes
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.ir.module import IRModule
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate
from aot.relay.transform import pipeline
from aot.testing import HAVE_LITERT, reference_sets
from tests.op._differential import HOST, compile_host, lower_all, main_of, random_array, run_fused
from tests.op._forms import FORMS, IMAGE, LAYERS, SHAPE, codes, move, one_op
from tests.op._one_op import Spec, const
from tests.scale import cases

Array = np.ndarray[Any, Any]
ODD = (7e4, 2.0**23 + 0.5, 2.0**31, 6, 3, 1e19, 1e-20)
EXTREMES = np.array(
    [
        np.inf,
        np.nan,
        0,
        np.finfo(np.float32).max,
        1e-45,
        1e-40,
        np.finfo(np.float32).tiny,
        3e38,
        1,
        0.5,
        2.5,
        88.7,
        104,
        1e10,
        *ODD,
    ],
    np.float32,
)
OTHER = {"QUANTIZE", "ARG_MAX", "ARG_MIN"}
STEPS = {"stride_h": 1, "stride_w": 1, "padding": "SAME", "filter_height": 2, "filter_width": 2}


def fused(name: str, activation: str) -> Callable[[str], bytes]:
    """An operator with a fused activation."""
    if name.endswith("POOL_2D"):
        return move(name, IMAGE, IMAGE, **STEPS, fused_activation_function=activation)
    return lambda d: one_op(name, [codes(SHAPE, d)] * 2, [codes(SHAPE, d)], fused_activation_function=activation)


ACTIVATED = ("ADD", "SUB", "MUL", "DIV", "AVERAGE_POOL_2D", "MAX_POOL_2D")


def positions(name: str) -> bytes:
    """Along the first axis: along the last one the reference passes over NaN in rows of three at most (tests of argmax)."""
    return one_op(name, [Spec((5, 4), "float32"), const(0)], [Spec((4,), "int32")], output_type="INT32")


MODELS: dict[str, Callable[[], bytes]] = {
    **{name: lambda name=name: positions(name) for name in ("ARG_MAX", "ARG_MIN")},  # type: ignore[misc]
    **{name: lambda form=form: form("float32") for name, form in FORMS.items() if name not in OTHER},  # type: ignore[misc]
    **{name: lambda form=form: form("float32", "float32") for name, form in LAYERS.items()},  # type: ignore[misc]
    **{
        f"{name} {a}": lambda name=name, a=a: fused(name, a)("float32")  # type: ignore[misc]
        for name in ACTIVATED
        for a in ("RELU", "RELU6", "RELU_N1_TO_1")
    },
    "ADD_N of three": lambda: one_op("ADD_N", [codes(SHAPE, "float32")] * 3, [codes(SHAPE, "float32")]),
}


def taken(name: str) -> Function | None:
    """The graph of an operator that takes float32 and no positions, which would have to be valid ones."""
    try:
        func = main_of(MODELS[name]())
    except Exception:  # an operator without float32
        return None
    types = {v.type.dtype for v in func.params}
    return func if "float32" in types and types <= {"float32", "bool"} else None


NAMES = [name for name in MODELS if taken(name) is not None]
LONG = {"CUSTOM:PosenetDecoderOp"}
"""Which take seconds a case, as each extreme value is a person, and have no reference here: three cases of `test_kernels`."""


def draw(func: Function, seed: int) -> list[Array]:
    """Inputs of which a tenth up to all are extreme."""
    rng = np.random.default_rng(seed)
    share = (0.1, 0.3, 0.7, 1.0)[seed % 4]
    sets = []
    for var in func.params:
        usual = random_array(rng, var.type.shape, var.type.dtype, extreme=False)
        if var.type.dtype == "float32":
            odd = rng.choice(EXTREMES, var.type.shape) * rng.choice(np.array([1, -1], np.float32), var.type.shape)
            usual = np.where(rng.random(var.type.shape) < share, odd, usual).astype(np.float32)
        sets.append(usual)
    return sets


def agree(found: Sequence[Array], wanted: Sequence[Array], inputs: Sequence[Array], who: str) -> None:
    for a, b in zip(found, wanted, strict=True):
        a = np.ascontiguousarray(a).reshape(b.shape)
        raw = np.dtype(f"u{b.dtype.itemsize}")
        off = a.view(raw) != np.ascontiguousarray(b).view(raw)
        off &= ~(np.isnan(a) & np.isnan(b)) if b.dtype.kind == "f" else True
        assert not off.any(), f"{who}: {a[off][:4]} for {b[off][:4]} of {[x[off][:4] for x in inputs if x.shape == off.shape]}"


def wanted_of(model: bytes, func: Function, inputs: list[Array]) -> tuple[list[Array], list[Array]]:
    """(what `evaluate` gives, what the reference gives: the same where it lacks the operator or refuses the inputs)."""
    with np.errstate(all="ignore"):
        found = evaluate(func, inputs)
    try:
        return found, reference_sets(model, [inputs])[0]
    except (RuntimeError, ValueError):
        return found, found


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in LONG])
def test_graph(name: str) -> None:
    model, func = MODELS[name](), taken(name)
    assert func is not None
    for seed in range(4):
        inputs = draw(func, seed)
        found, wanted = wanted_of(model, func, inputs)
        agree(found, wanted, inputs, "evaluate")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("name", NAMES if cases(2) == 2 else NAMES[::4])
def test_kernels(name: str) -> None:
    model, func = MODELS[name](), taken(name)
    assert func is not None
    main = pipeline()(IRModule({"main": func}))["main"]
    assert isinstance(main, Function)
    kernels = lower_all(main, HOST)
    with tempfile.TemporaryDirectory() as folder:
        library = compile_host(kernels, Path(folder))

        def run_c(key: int, lowered: Any, buffers: Any) -> None:
            arrays = [buffers[b.name] for b in lowered.func.buffers]
            getattr(library, f"k{list(kernels).index(key)}")(*(a.ctypes.data_as(ctypes.c_void_p) for a in arrays))

        for seed in range(3 if name in LONG else cases(200)):
            inputs = draw(func, seed)
            found, wanted = wanted_of(model, func, inputs)
            agree(found, wanted, inputs, "evaluate")
            agree(run_fused(main, inputs, kernels, run_c), wanted, inputs, "C")


@pytest.mark.qemu
@pytest.mark.parametrize(
    "name", ["CONV_2D", "ADD", "DIV RELU6", "AVERAGE_POOL_2D", "ABS", "PRELU", "SIGN", "FLOOR_DIV", "RSQRT", "EXP"]
)
def test_on_a_cortex_m4(name: str) -> None:
    model, func = MODELS[name](), taken(name)
    assert func is not None
    project = prepare(build(model, target="cortex-m4", name="extreme"), load_board("mps2-an386"))
    sets = [draw(func, seed) for seed in range(8)]
    for inputs, found in zip(sets, run(project, [tuple(s) for s in sets]).outputs, strict=True):
        agree(found, wanted_of(model, func, inputs)[1], inputs, "Cortex-M4")
