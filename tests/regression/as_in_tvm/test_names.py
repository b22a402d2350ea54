"""What TVM's documents write: it works, or is refused with what to write instead."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import aot
from aot import relay, te
from aot.errors import UsageError
from aot.ir import IRModule, parse
from aot.ir.transform import PassContext


def plus_one() -> tuple[te.Schedule, list[te.Tensor]]:
    a = te.placeholder((8,), "int32", name="a")
    b = te.compute((8,), lambda i: a[i] + 1, name="b")
    return te.create_schedule(b.op), [a, b]


def test_build_of_what_was_lowered_with_its_arguments() -> None:
    s, args = plus_one()
    lowered = aot.lower(s, args, name="f")
    for given in (lowered, lowered["f"]):
        module: Any = aot.build(given, args, target="host", name="f")
        out = np.zeros(8, "int32")
        module["f"](np.zeros(8, "int32"), out)
        assert out.tolist() == [1] * 8
        with pytest.raises(UsageError, match=r"E5073 the function has the parameters int32\[8\], int32\[8\], not int32\[8\]"):
            aot.build(given, args[:1], target="host")
    with pytest.raises(UsageError, match="E5074"):
        aot.build("model.tflite", args)  # type: ignore[call-overload]


def dense() -> IRModule:
    x, w = relay.var("x", shape=(1, 4)), relay.var("w", shape=(3, 4))
    return IRModule.from_expr(relay.Function((x, w), relay.nn.dense(x, w)))


def test_params_are_bound_by_name() -> None:
    w = np.arange(12, dtype="float32").reshape(3, 4)
    bound: Any = aot.build(dense(), params={"w": w}, name="d")
    assert [t["name"] for t in bound.metadata["inputs"]] == ["x"]
    assert aot.load(bound)(np.ones((1, 4), "float32")).tolist() == [w.sum(axis=1).tolist()]
    for wrong in ({"v": w}, {"w": w[:2]}, {"w": w.astype("float64")}):
        with pytest.raises(UsageError, match="E5104"):
            aot.build(dense(), params=wrong)
    for other in ("model.tflite", aot.lower(*plus_one())):
        with pytest.raises(UsageError, match="E5074 params"):
            aot.build(other, params={"w": w})  # type: ignore[call-overload]


def test_from_expr_with_more_functions() -> None:
    x = relay.var("x", shape=(4,))
    module = IRModule.from_expr(relay.nn.relu(x), {"half": relay.multiply(x, 0.5)})
    assert list(module.functions) == ["main", "half"]
    with pytest.raises(UsageError, match="E5074 module model: nothing calls half"):
        aot.build(module)
    with pytest.raises(UsageError, match="E5091"):
        IRModule.from_expr(x, type_defs={"List": 1})
    for wrong in ({"main": x}, {"f": 3}, [x], {3: x}):
        with pytest.raises(UsageError, match="E5104"):
            IRModule.from_expr(x, wrong)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("axis", [1, 3, -1])
@pytest.mark.parametrize("flags", [{}, {"center": False}, {"scale": False}])
def test_batch_norm(axis: int, flags: dict[str, bool]) -> None:
    rng = np.random.default_rng(1)
    data = relay.var("x", shape=(1, 3, 5, 4))
    channels = data.type.shape[axis]
    gamma, beta, mean, spread = (rng.uniform(0.5, 2, channels).astype("float32") for _ in range(4))
    result = relay.nn.batch_norm(data, gamma, beta, mean, spread, axis=axis, epsilon=1e-3, **flags)
    assert len(result) == 3
    module = IRModule.from_expr(result[0])
    x = rng.standard_normal((1, 3, 5, 4)).astype("float32")
    along = [-1 if i == axis % 4 else 1 for i in range(4)]
    g, b, m, v = (a.reshape(along).astype(float) for a in (gamma, beta, mean, spread))
    expected = (x - m) / np.sqrt(v + 1e-3) * (g if flags.get("scale", True) else 1) + (b if flags.get("center", True) else 0)
    found = aot.load(aot.build(module, name="bn"))(x)  # type: ignore[arg-type]
    assert np.allclose(found, expected, rtol=1e-5, atol=1e-5)
    (evaluated,) = relay.evaluate(module["main"], [x])
    assert np.array_equal(found, evaluated)


def test_batch_norm_of_other_shapes_is_refused() -> None:
    x = relay.var("x", shape=(1, 3, 5, 4))
    with pytest.raises(UsageError, match=r"E5100.*gamma is"):
        relay.nn.batch_norm(x, *(np.ones(4, "float32") for _ in range(4)))


FUNCTIONS: dict[str, Callable[..., float]] = {
    "exp": math.exp, "sqrt": math.sqrt, "log": math.log, "sin": math.sin, "cos": math.cos, "tanh": math.tanh,
    "floor": math.floor, "ceil": math.ceil, "trunc": lambda v: math.trunc(float(v)), "nearbyint": round,
    "rsqrt": lambda v: 1 / math.sqrt(v),
    "sigmoid": lambda v: 1 / (1 + math.exp(-v)), "abs": abs,
}  # fmt: skip
OF_TWO: dict[str, Callable[..., float]] = {"power": math.pow, "fmod": math.fmod, "atan2": math.atan2}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*FUNCTIONS, *OF_TWO])
def test_elementary_functions(name: str) -> None:
    a, b = (te.placeholder((6,), "float32", name=n) for n in "ab")
    func = getattr(te, name)
    c = te.compute((6,), lambda i: func(a[i], b[i]) if name in OF_TWO else func(a[i]) + b[i] * 0.0, name="c")
    module: Any = aot.build(te.create_schedule(c.op), [a, b, c], target="host")
    x, y = np.array([0.25, 0.5, 1.5, 2.5, 3.75, 9], "float32"), np.array([1, 2, 0.5, 3, 1.25, 2], "float32")
    out = np.zeros(6, "float32")
    module(x, y, out)
    expected = [OF_TWO[name](p, q) for p, q in zip(x, y, strict=True)] if name in OF_TWO else [FUNCTIONS[name](p) for p in x]
    assert np.allclose(out, np.array(expected, "float32"), rtol=1e-6, atol=1e-7)


def test_elementary_functions_of_other_types_are_refused() -> None:
    a = te.placeholder((6,), "int32", name="a")
    with pytest.raises(UsageError, match=r"E5070.*te.exp of int32"):
        te.compute((6,), lambda i: te.exp(a[i]))


@pytest.mark.parametrize(
    ("key", "hint"),
    [("tir.usmp.algorithm", "keeps the smallest plan"), ("relay.FuseOps.max_depth", "fuse.max_depth"), ("tir.no", "options are")],
)
def test_options_of_passes_are_refused_with_what_there_is(key: str, hint: str) -> None:
    with pytest.raises(UsageError, match=rf"E5032 .*{hint}"), PassContext(config={key: True}):
        pass


def test_text_with_meta_data() -> None:
    module = IRModule.from_expr(relay.nn.relu(relay.var("x", shape=(4,))))
    text = module.astext(show_meta_data=True)
    assert parse(text).astext(show_meta_data=True) == text
