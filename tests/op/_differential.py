"""One model, four ways to run it: TFLite's reference kernels, `evaluate`, the kernels in the TIR interpreter, the kernels as C.

`check(model)` compares all of them byte by byte; tests of operators only supply models.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from aot import op as operators
from aot import topi
from aot.executor.candidates import lower_group
from aot.frontend.tflite import from_tflite
from aot.ir.op import Op
from aot.ir.type import TensorType, TupleType
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, operands, post_order, tensor_type
from aot.relay.interpreter import call_op, evaluate
from aot.relay.transform import pipeline
from aot.support.dtype import numpy_dtype
from aot.target.codegen_c import emit_func, headers
from aot.target.target import find_target
from aot.testing import HAVE_LITERT, HAVE_TFLM, Quant, reference_sets, tflm_reference
from aot.tir.interpreter import run
from aot.topi.strategy import Lowered
from tests.op._drawn_count import count, lacking
from tests.scale import cases

operators.load_all()
topi.load_all()

Array = np.ndarray[Any, Any]
Kernels = Mapping[int, Lowered]
Agree = Callable[[Sequence[Array], Sequence[Array], str], None]
"""(found, wanted, message)"""
CRT = Path(__file__).parents[2] / "crt" / "include"
HOST = find_target("host")
TARGET = find_target("cortex-m4")
GCC = shutil.which("gcc")
WARNINGS = [
    "-std=c99",
    "-pedantic",
    "-Werror",
    *(f"-W{w}" for w in ("all", "extra", "conversion", "sign-conversion", "shadow", "undef", "vla", "cast-align=strict")),
    *(f"-W{w}" for w in ("double-promotion", "strict-prototypes", "missing-prototypes")),
]

COMMON: dict[str, Any] = {"report_multiple_bugs": False, "suppress_health_check": list(HealthCheck)}
FAST = settings(max_examples=8, derandomize=True, **COMMON)
"""Examples of the default test run; the same ones each time."""

FEW = settings(max_examples=4, derandomize=True, **COMMON)
"""For models of which each takes a tenth of a second, as those with a state that run several times."""

SLOW = settings(max_examples=cases(300), **COMMON)
OFTEN = settings(max_examples=cases(345), **COMMON)
"""For operators whose only cases these are: some are drawn twice and count once."""


def check(
    model: bytes, *sets: Sequence[Array], host: bool = False, oracle: str = "litert", seed: int = 0, agree: Agree | None = None
) -> list[list[Array]]:  # fmt: skip
    """Run `model` on each set of inputs (four random ones if none is given) in every way and compare; returns the outputs.

    Where the reference lacks a type it must refuse the model, and is left out.

    `host` also compiles the kernels with gcc, warnings being errors.  `agree` compares with the reference, if not byte by byte.
    """
    func = main_of(model, oracle=oracle)
    chosen = [list(s) for s in sets] or random_sets(func, seed=seed)
    outputs = [evaluate(func, s) for s in chosen]
    compared = oracle == "litert" and not lacking(model)
    if HAVE_LITERT and compared:
        for wanted, found in zip(reference_sets(model, chosen), outputs, strict=True):
            (agree or same)(found, wanted, "evaluate differs from the reference")
    elif HAVE_LITERT and oracle == "litert":
        with pytest.raises((RuntimeError, ValueError)):
            reference_sets(model, chosen)
    check_lowering(func, chosen, outputs, host=host)
    count(model, chosen, compared=compared)
    return outputs


def check_tflm(model: bytes, *sets: Sequence[Array], host: bool = False, seed: int = 0) -> None:
    """`check` with TFLM as the reference, for types that TensorFlow Lite does not have."""
    chosen = [list(s) for s in sets] or random_sets(main_of(model, oracle="tflm"), seed=seed)
    outputs = check(model, *chosen, host=host, oracle="tflm")
    same_as_tflm(model, chosen, outputs)


def same_as_tflm(model: bytes, sets: Sequence[Sequence[Array]], outputs: Sequence[Sequence[Array]]) -> None:
    """TFLM gives these outputs, if it is installed; it has no tensors without dimensions."""
    if HAVE_TFLM:
        for inputs, found in zip(sets, outputs, strict=True):
            wanted = tflm_reference(model, inputs)
            same([f.reshape(w.shape) for f, w in zip(found, wanted, strict=True)], wanted, "evaluate differs from TFLM")
        count(model, sets)


def check_lowering(func: Function, sets: Sequence[Sequence[Array]], outputs: Sequence[Sequence[Array]], *, host: bool) -> None:
    """Pass pipeline, kernels and code generator against `outputs`."""
    from aot.ir.module import IRModule

    fused = pipeline()(IRModule({"main": func}))["main"]
    assert isinstance(fused, Function)
    interpreted = lower_all(fused, TARGET if not host else HOST)
    for inputs, wanted in zip(sets, outputs, strict=True):
        same(run_fused(fused, inputs, interpreted, run_interpreted), wanted, "the interpreted kernels differ from evaluate")
    if not host or GCC is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        library = compile_host(interpreted, Path(folder))

        def run_c(key: int, lowered: Lowered, buffers: Mapping[str, Array]) -> None:
            arrays = [buffers[b.name] for b in lowered.func.buffers]
            getattr(library, f"k{list(interpreted).index(key)}")(*(a.ctypes.data_as(ctypes.c_void_p) for a in arrays))

        for inputs, wanted in zip(sets, outputs, strict=True):
            same(run_fused(fused, inputs, interpreted, run_c), wanted, "the compiled kernels differ from evaluate")


def same(found: Sequence[Array], wanted: Sequence[Array], message: str) -> None:
    """Equal in number, type, shape and every byte."""
    assert len(found) == len(wanted), message
    for a, b in zip(found, wanted, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), message
        assert a.tobytes() == np.ascontiguousarray(b).tobytes(), f"{message}\n{difference(a, b)}"


def difference(a: Array, b: Array) -> str:
    where = np.argwhere(a != b)
    shown = "; ".join(f"{tuple(map(int, i))}: {a[tuple(i)]} for {b[tuple(i)]}" for i in where[:5])
    return f"{len(where)} of {a.size} elements: {shown}"


def main_of(model: bytes, *, oracle: str = "litert") -> Function:
    func = from_tflite(model, oracle=oracle)["main"]
    assert isinstance(func, Function)
    return func


def random_sets(func: Function, *, seed: int = 0, count: int = 4) -> list[list[Array]]:
    """Random inputs; the first set holds many extreme values."""
    rng = np.random.default_rng(seed)
    return [[random_array(rng, v.type.shape, v.type.dtype, extreme=i == 0) for v in func.params] for i in range(count)]


def random_array(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, *, extreme: bool) -> Array:
    if dtype in ("float16", "float32"):
        return np.asarray(rng.normal(size=shape) * (100 if extreme else 3), np.dtype(dtype))
    if dtype == "complex64":
        parts = random_array(rng, (*shape, 2), "float32", extreme=extreme)
        return np.ascontiguousarray(parts).view(np.complex64).reshape(shape)
    if dtype == "bool":
        return np.asarray(rng.random(shape) < (0.9 if extreme else 0.5))
    limits = np.iinfo(dtype)
    values = rng.integers(limits.min, limits.max, shape, np.dtype(dtype), endpoint=True)
    if extreme:
        values = np.where(rng.random(shape) < 0.7, rng.choice(np.array([limits.min, limits.max], dtype), shape), values)
    return np.asarray(values, dtype)


# --- running the fused graph kernel by kernel


def lower_all(func: Function, target: Any) -> dict[int, Lowered]:
    """The kernel of each call of a primitive function, by the call's id."""
    groups = [e for e in post_order(func.body) if isinstance(e, Call) and isinstance(e.op, Function)]
    return {id(e): lower_group(e.op, target, f"k{i}") for i, e in enumerate(groups) if isinstance(e.op, Function)}


RunKernel = Callable[[int, Lowered, Mapping[str, Array]], None]


def run_interpreted(_key: int, lowered: Lowered, buffers: Mapping[str, Array]) -> None:
    run(lowered.func, buffers)


def run_fused(func: Function, inputs: Sequence[Array], kernels: Kernels, runner: RunKernel) -> list[Array]:
    values: dict[int, Any] = {id(v): a for v, a in zip(func.params, inputs, strict=True)}
    for expr in post_order(func.body):
        values[id(expr)] = _value(expr, [values[id(o)] for o in operands(expr)], kernels, runner, values.get(id(expr)))
    result = values[id(func.body)]
    return list(result) if isinstance(result, tuple) else [result]


def _value(expr: Expr, args: list[Any], kernels: Kernels, runner: RunKernel, given: Any) -> Any:
    match expr:
        case Var():
            return given
        case Constant():
            return expr.data
        case Tuple():
            return tuple(args)
        case TupleGetItem():
            return args[0][expr.index]
        case Call(op=Op()):
            return call_op(expr, args)
        case Call():
            return _run_kernel(expr, args, kernels[id(expr)], runner)


def _run_kernel(expr: Call, args: Sequence[Array], lowered: Lowered, runner: RunKernel) -> Array | tuple[Array, ...]:
    func = lowered.func
    types = expr.type.fields if isinstance(expr.type, TupleType) else (tensor_type(expr),)
    results = tuple(_unwritten(t) for t in types if isinstance(t, TensorType))
    buffers = {name: np.ascontiguousarray(a) for name, a in lowered.constants.items()}
    buffers |= {b.name: np.full(b.nbytes, 0xA5, np.uint8) for b in func.scratch}
    for buffer, value in zip(func.inputs, args, strict=True):
        buffers[buffer.name] = np.ascontiguousarray(value)
    buffers |= {buffer.name: out for buffer, out in zip(func.outputs, results, strict=True)}
    runner(id(expr), lowered, buffers)
    return results if isinstance(expr.type, TupleType) else results[0]


def _unwritten(type_: TensorType) -> Array:
    return np.full(type_.nbytes, 0x55, np.uint8).view(numpy_dtype(type_.dtype)).reshape(type_.shape)


def compile_host(kernels: Kernels, folder: Path) -> ctypes.CDLL:
    """All kernels as one shared library, functions k0, k1, ..."""
    text = [f'#include "{h}"' for h in sorted({h for k in kernels.values() for h in headers(k.func)})]
    for i, lowered in enumerate(kernels.values()):
        body = emit_func(lowered.func, name=f"k{i}", target=HOST, linkage="extern")
        head = body[body.index("void k") : body.index(" {")]
        text += [f"{head};", body]
    if not kernels:
        text.append("extern int no_kernels;")  # everything was folded away, and C wants at least one declaration
    (folder / "k.c").write_text("\n".join(text), encoding="utf-8")
    command = [str(GCC), "-O1", "-shared", "-fPIC", *WARNINGS, f"-I{CRT}", "k.c", "-o", "k.so"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr + "\n".join(text)
    return ctypes.CDLL(str(folder / "k.so"))


# --- hypothesis

Case = tuple[bytes, list[Array]]
"""A model and its inputs."""


def check_drawn(strategy: st.SearchStrategy[Any], examples: Any, run: Callable[..., object] = check) -> None:
    """`run` for as many draws as `examples` (FAST, FEW, SLOW, OFTEN) says: models, or arguments of `run` as a `Case` is."""

    @given(strategy)
    @examples
    def test(drawn: Any) -> None:
        run(*(drawn if isinstance(drawn, tuple) else (drawn,)))

    test()


def scales() -> st.SearchStrategy[float]:
    """Powers of two (ties), round numbers, and anything in between."""
    odd = st.one_of(st.sampled_from([0.05, 0.1, 0.031]), st.floats(0.001, 1.0)).map(lambda x: float(np.float32(x)))
    return st.one_of(st.sampled_from([0.0625, 0.125, 0.25, 0.5, 1.0]), odd)


def quants() -> st.SearchStrategy[Quant]:
    """Per-tensor parameters with the edges of zero points."""
    zero_points = st.one_of(st.sampled_from([-128, 127, 0, -1]), st.integers(-128, 127))
    return st.builds(Quant, scales(), zero_points)


def dims(rank: int, *, largest: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(1, largest)] * rank)


ACTIVATIONS = st.sampled_from(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
SEEDS = st.integers(0, 10_000)
EVERY_CODE = np.arange(-128, 128, dtype=np.int8).reshape(1, 256)
EVERY_PAIR = (
    np.repeat(EVERY_CODE.ravel(), 256).reshape(1, 256, 256, 1),
    np.tile(EVERY_CODE.ravel(), 256).reshape(1, 256, 256, 1),
)
