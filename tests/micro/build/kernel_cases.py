"""Cases of every kernel that is registered, whatever core it is for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from aot.executor.candidates import accepting, group_of, lower_group
from aot.frontend.tflite.convert import SUPPORT, load_all
from aot.ir.module import IRModule
from aot.ir.type import TensorType
from aot.op.tensor import ReshapeAttrs
from aot.relay.expr import Call, Expr, Function, Var, call, post_order
from aot.relay.interpreter import evaluate
from aot.relay.transform import pipeline
from aot.topi.strategy import Lowered
from tests.op._differential import TARGET, main_of, random_array, random_sets, run_fused, run_interpreted
from tests.op._forms import FORMS, LAYERS, OTHER_FORMS
from tests.op._lstm_basic_models import Basic, basic_model
from tests.op.vision.test_detection import case as detection
from tests.topi.drawn import Case
from tests.topi.every_kernel import EVERY
from tests.topi.groups import lowered

load_all()

Array = np.ndarray[Any, Any]
MODELS = Path(__file__).resolve().parents[2] / "models"


def drawn_cases(count: int) -> list[Case]:
    """`count` random layers of every kernel that has a generator of them."""
    return [case for cases in _generators() for case in islice(cases, count)]


def _generators() -> Iterator[Iterator[Case]]:
    yield from (EVERY[name].cases(5) for name in sorted(EVERY))
    pair = Var("x", TensorType((2, 3), "complex64"))
    yield iter([_group("generic.copy_complex", pair, call("reshape", [pair], ReshapeAttrs((3, 2))))])


def _group(kernel: str, var: Var, body: Expr) -> Case:
    low = lowered(kernel, (var,), body)
    assert low is not None, kernel
    inputs = [random_array(np.random.default_rng(5), var.type.shape, var.type.dtype, extreme=False)]
    return Case(kernel, low, inputs, evaluate(Function((var,), body), inputs))


def kernels_of(cases: list[Case]) -> set[str]:
    """The names of the kernels in the cases' texts."""
    return {name for case in cases for name in re.findall(r"\b(?:generic|arm_\w+)\.\w+", case.text)}


def forms() -> Iterator[tuple[str, bytes]]:
    """The smallest model of every operator, with int8, with float32 and with another of its types."""
    for name in sorted({*FORMS, *LAYERS}):
        types = sorted(t for t in SUPPORT[name].types if "float16" not in t)  # those are constants
        for i, dtype in enumerate(types):
            if i == len(name) % len(types) or dtype in ("int8", "float32", "int8*int8") or name == "SOFTMAX":
                yield f"{name} {dtype}", FORMS[name](dtype) if name in FORMS else LAYERS[name](*dtype.split("*"))
    for name, form in OTHER_FORMS.items():
        dtype = "float32" if any(t.startswith("float32") for t in SUPPORT[name].types) else "float16"
        yield f"{name} {dtype}", form(dtype)
    yield "ADD of eights", (MODELS / "add.tflite").read_bytes()
    yield "DETECTION", detection("float32", 5, 1)[0]
    yield "LSTM uint8", basic_model(Basic("uint8"))


@cache
def operator_cases() -> tuple[Case, ...]:
    """Every kernel that accepts a layer of these models."""
    return tuple(c for text, model in forms() for c in _cases_of(text, model))


def _cases_of(text: str, model: bytes) -> Iterator[Case]:
    fused = pipeline()(IRModule({"main": main_of(model)}))["main"]
    assert isinstance(fused, Function)
    calls = {id(e): e for e in post_order(fused.body) if isinstance(e, Call) and isinstance(e.op, Function)}
    kernels = {key: lower_group(call.op, TARGET, "k") for key, call in calls.items() if isinstance(call.op, Function)}
    seen: list[Case] = []

    def record(key: int, lowered: Lowered, buffers: Mapping[str, Array]) -> None:
        func = calls[key].op
        assert isinstance(func, Function)
        taken = zip(lowered.func.inputs, func.params, strict=True)
        inputs = [buffers[b.name].reshape(v.type.shape).copy() for b, v in taken]
        expected = evaluate(func, inputs)
        group = group_of(func)
        for impl in accepting(group, TARGET):
            seen.append(Case(f"{text}: {impl.name}", impl.lower(group, TARGET, "k"), inputs, expected))
        run_interpreted(key, lowered, buffers)

    run_fused(fused, random_sets(main_of(model), seed=1)[1], kernels, record)
    yield from seen
