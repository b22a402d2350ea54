"""aot.build and aot.lower: what they take, and that wrong use of the programming interface always has a code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aot
from aot import te
from aot.errors import AotError, UsageError
from aot.executor.artifact import Artifact
from aot.ir.module import IRModule
from aot.runtime import GraphModule, Module
from aot.target import Target
from tests.scale import cases

MODEL = Path(__file__).parent / "models" / "dense.tflite"

X = te.placeholder((4,), "int8", "x")
Y = te.compute((4,), lambda i: X[i] + 1, "y")
S = te.create_schedule(Y.op)
FUNC: Any = aot.lower(S, [X, Y], name="f")["f"]


def test_the_code_of_the_documentation() -> None:
    A = te.placeholder((8, 16), "int8", name="A")  # noqa: N806
    B = te.placeholder((4, 16), "int8", name="B")  # noqa: N806
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute((8, 4), lambda i, j: te.sum(A[i, k].astype("int32") * B[j, k].astype("int32"), axis=k), name="C")  # noqa: N806
    s = te.create_schedule(C.op)
    i, j = s[C].op.axis
    io, ii = s[C].split(i, 4)
    s[C].reorder(io, j, ii)
    s[C].unroll(ii)
    m = aot.build(s, [A, B, C], target="host", name="mm")
    c = np.zeros((8, 4), "int32")
    m["mm"](np.ones((8, 16), "int8"), np.ones((4, 16), "int8"), c)
    assert (c == 16).all()
    assert str(Target("c -mcpu=cortex-m4")) == "c -keys=arm_cpu,cpu -mcpu=cortex-m4"


@pytest.mark.parametrize("form", [str, Path, lambda p: p.read_bytes(), lambda p: bytearray(p.read_bytes())])
def test_a_model_in_every_form(form: Any) -> None:
    artifact = aot.build(form(MODEL), name="dense")
    assert isinstance(artifact, Artifact)
    row = artifact.metadata["inputs"][0]
    g = GraphModule(artifact)
    g.set_input(0, np.zeros(row["shape"], row["dtype"]))
    g.run()
    assert list(g.get_output(0).shape) == artifact.metadata["outputs"][0]["shape"]


def test_loop_nests() -> None:
    for inputs in (FUNC, IRModule({"f": FUNC})):
        m = aot.build(inputs, target="host")
        assert isinstance(m, Module)
        y = np.zeros(4, np.int8)
        m["f"](np.arange(4, dtype=np.int8), y)
        assert y.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("code", "call"),
    [
        ("E5074", lambda: aot.build(3)),
        ("E5074", lambda: aot.build(None)),
        ("E5074", lambda: aot.build("")),
        ("E5074", lambda: aot.build([X, Y])),
        ("E5073", lambda: aot.build(FUNC, [X])),
        ("E5074", lambda: aot.build(str(MODEL), [X])),
        ("E5074", lambda: aot.build(FUNC, options=aot.Options())),
        ("E5074", lambda: aot.build(FUNC, options="speed")),
        ("E5074", lambda: aot.build(FUNC, name="")),
        ("E5074", lambda: aot.build(FUNC, name=3)),
        ("E5074", lambda: aot.build(IRModule({}))),
        ("E5074", lambda: aot.build(IRModule({"f": FUNC, "g": 3}))),
        ("E5074", lambda: aot.lower(FUNC, [X])),
        ("E5074", lambda: aot.lower("x")),
        ("E5074", lambda: aot.lower(S, [X, Y], name="\n")),
        ("E5073", lambda: aot.build(S)),
        ("E5073", lambda: aot.build(S, [Y])),
        ("E5010", lambda: aot.build(S, [X, Y], target="cortex-a9")),
        ("E5010", lambda: aot.build(S, [X, Y], target=None)),
        ("E5001", lambda: aot.build("absent.tflite")),
        ("E1002", lambda: aot.build(b"not a model, which is longer")),
    ],
)
def test_wrong_use(code: str, call: Any) -> None:
    with pytest.raises(AotError, match=code):
        call()


ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 9), st.floats(allow_nan=True), st.text(max_size=4), st.binary(max_size=4),
    st.lists(st.integers(-2, 5), max_size=3), st.tuples(st.integers(-2, 5), st.integers(-2, 5)), st.just(X), st.just(Y),
    st.just(S), st.just(FUNC), st.sampled_from(["int8", "float32", "local", "x", "f"]), st.just(np.zeros(4, np.int8)),
    st.sampled_from(Y.op.axis), st.just(object()), st.just(len), st.just({"a": 1}),
)  # fmt: skip

BUILT = aot.build(FUNC, target="host")

CALLS: dict[str, Any] = {
    "placeholder": te.placeholder,
    "compute": te.compute,
    "reduce_axis": te.reduce_axis,
    "sum": te.sum,
    "if_then_else": te.if_then_else,
    "const": te.const,
    "all": te.all,
    "min_value": te.min_value,
    "create_schedule": te.create_schedule,
    "index of a schedule": lambda *a: S[a[0] if a else None],
    "index of a tensor": lambda *a: X[a],
    "split": lambda *a: te.create_schedule(Y.op)[Y].split(*a[:3]),
    "fuse": lambda *a: te.create_schedule(Y.op)[Y].fuse(*a),
    "reorder": lambda *a: te.create_schedule(Y.op)[Y].reorder(*a),
    "unroll": lambda *a: te.create_schedule(Y.op)[Y].unroll(a[0] if a else None),
    "vectorize": lambda *a: te.create_schedule(Y.op)[Y].vectorize(a[0] if a else None),
    "compute_at": lambda *a: te.create_schedule(Y.op)[Y].compute_at(*(*a, 0, 0)[:2]),
    "tensorize": lambda *a: te.create_schedule(Y.op)[Y].tensorize(*(*a, 0, 0)[:2]),
    "set_scope": lambda *a: te.create_schedule(Y.op)[Y].set_scope(a[0] if a else None),
    "pragma": lambda *a: te.create_schedule(Y.op)[Y].pragma(*(*a, 0, 0, 0)[:3]),
    "cache_read": lambda *a: te.create_schedule(Y.op).cache_read(*(*a, 0, 0, 0)[:3]),
    "cache_write": lambda *a: te.create_schedule(Y.op).cache_write(*(*a, 0, 0)[:2]),
    "rfactor": lambda *a: te.create_schedule(Y.op).rfactor(*(*a, 0, 0, 0)[:3]),
    "lower": lambda *a: aot.lower(*(*a, 0)[:2]),
    "build": lambda *a: aot.build(*(*a, 0)[:2]),
    "target": lambda *a: Target(a[0] if a else None),
    "register_func": lambda *a: aot.register_func(*(*a, 0)[:2]) and aot.remove_global_func(a[0]),
    "get_global_func": lambda *a: aot.get_global_func(a[0] if a else None),
    "options": lambda *a: aot.Options(
        **dict(zip(("ram_budget", "choice", "pooling", "feed_rows"), a, strict=False)), opt=a[0], io=a[-1], oracle=a[0]
    ),
    "budgets": lambda *a: aot.Options(flash_budget=a[0], share_workspace=a[-1], byoc=a[0], byoc_path=a[-1]),
    "call": lambda *a: BUILT["f"](*a),
    "get_function": lambda *a: BUILT[a[0] if a else None],
    "import_module": lambda *a: BUILT.import_module(a[0] if a else None),
    "graph": lambda *a: GraphModule(a[0] if a else None),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_wrong_use_always_has_a_code(name: str) -> None:
    """Whatever is given: a result, or an AotError with a code."""

    @settings(max_examples=max(10, cases(300)), database=None, derandomize=True)
    @given(st.lists(ODD, min_size=1, max_size=4))
    def check(args: list[Any]) -> None:
        try:
            CALLS[name](*args)
        except AotError:
            pass
        except TypeError as error:  # the number of arguments is Python's own business
            if "positional argument" not in str(error):
                raise

    check()


def test_modules_that_are_no_models() -> None:
    with pytest.raises(UsageError, match="E5074"):
        aot.build(IRModule({"f": FUNC}), options=aot.Options())
