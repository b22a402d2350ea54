"""Constructors: networks written in Python, and everything that can be said wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aot import relay
from aot.errors import AotError, UsageError
from aot.ir import IRModule
from aot.ir.op import Op, op_info
from aot.relay.construct import names
from aot.relay.expr import Expr, tensor_type

X = relay.var("x", shape=(1, 8, 8, 4), dtype="int8")
RNG = np.random.default_rng(7)
WEIGHT = RNG.integers(-127, 128, (6, 3, 3, 4)).astype(np.int8)


def network() -> Expr:
    """Convolution, depthwise, pooling, a residual addition, a fully connected layer, softmax."""
    y = relay.nn.conv2d(X, WEIGHT, RNG.integers(-999, 999, 6).astype(np.int32), strides=2, padding=1)
    y = relay.clip(relay.qnn.requantize(y, [0.001 * (i + 1) for i in range(6)], zero_point=-3), -3, 127)
    z = relay.nn.depthwise_conv2d(y, RNG.integers(-127, 128, (1, 3, 3, 6)).astype(np.int8), padding=1, input_zp=-3)
    z = relay.qnn.requantize(z, 0.004, zero_point=5)
    y = relay.qnn.add(y, z, scales=(0.1, 0.2, 0.25), zero_points=(-3, 5, 0))
    y = relay.nn.avg_pool2d(relay.nn.max_pool2d(y, 2), (2, 2))
    y = relay.nn.dense(relay.reshape(y, (1, -1)), RNG.integers(-127, 128, (5, 6)).astype(np.int8))
    return relay.qnn.softmax(relay.qnn.requantize(y, 0.01), 0.1)


def test_the_issues_example_prints() -> None:
    x = relay.var("x", shape=(1, 8, 8, 4), dtype="int8")
    assert str(IRModule.from_expr(relay.nn.relu(x))).startswith("def @main(%x: int8[1, 8, 8, 4]) -> int8[1, 8, 8, 4] {\n")


def test_convolution_is_numpys() -> None:
    y = relay.nn.conv2d(X, WEIGHT, strides=2, padding=(1, 0), input_zp=3)
    data = RNG.integers(-128, 128, (1, 8, 8, 4)).astype(np.int8)
    (found,) = relay.evaluate(IRModule.from_expr(y)["main"], [data])
    wide = np.pad(data.astype(np.int64) - 3, ((0, 0), (1, 1), (0, 0), (0, 0)))
    expected = np.zeros((1, 4, 3, 6), np.int64)
    for ky in range(3):
        for kx in range(3):
            expected += wide[:, ky : ky + 7 : 2, kx : kx + 5 : 2] @ WEIGHT[:, ky, kx].astype(np.int64).T
    assert (found == expected).all()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cortex-m0", "cortex-m4"])
def test_a_network_compiles_to_c_that_gives_the_same_bytes(target: str) -> None:
    import aot
    from aot.runtime.module import load

    module = IRModule.from_expr(network(), name="python_net")
    artifact = aot.build(module, name="python_net", target=target)
    assert "python_net.c" in artifact.files
    data = RNG.integers(-128, 128, (1, 8, 8, 4)).astype(np.int8)
    (expected,) = relay.evaluate(module["main"], [data])
    (found,) = load(artifact).run([data])
    assert found.tobytes() == expected.tobytes()


def test_float_network_in_numpy() -> None:
    x = relay.var("x", shape=(2, 5))
    w, b = RNG.standard_normal((3, 5)).astype(np.float32), RNG.standard_normal(3).astype(np.float32)
    module = IRModule.from_expr(relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, w, b))))
    data = RNG.standard_normal((2, 5)).astype(np.float32)
    hidden = np.maximum(data @ w.T + b, 0)
    expected = np.exp(hidden - hidden.max(1, keepdims=True))
    (found,) = relay.evaluate(module["main"], [data])
    np.testing.assert_allclose(found, expected / expected.sum(1, keepdims=True), rtol=1e-5)


def test_shapes_of_the_moving_operators() -> None:
    assert tensor_type(relay.transpose(X)).shape == (4, 8, 8, 1)
    assert tensor_type(relay.concatenate([X, X], axis=1)).shape == (1, 16, 8, 4)
    assert tensor_type(relay.strided_slice(X, [0, -2, 0, 3], [1, 8, 8, 0], [1, 1, 2, -1])).shape == (1, 2, 4, 3)
    assert tensor_type(relay.nn.pad(X, [(0, 0), (1, 2), (0, 0), (0, 0)], -3)).shape == (1, 11, 8, 4)
    assert tensor_type(relay.cast(X, "int32")) == tensor_type(relay.cast(X, dtype="int32"))
    assert tensor_type(relay.sum(relay.cast(X, "int32"), axis=(1, -1))).shape == (1, 8)


def test_numbers_become_constants() -> None:
    y = relay.add(relay.cast(X, "int32"), 3)
    (found,) = relay.evaluate(IRModule.from_expr(y)["main"], [np.zeros((1, 8, 8, 4), np.int8)])
    assert (found == 3).all()


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: relay.nn.conv2d(X), "E5100"),
    (lambda: relay.nn.conv2d(X, 3, strides="a"), "E5100"),
    (lambda: relay.nn.conv2d(X, WEIGHT, strides=0), "E5100"),
    (lambda: relay.nn.conv2d(X, WEIGHT, padding=(1, 2, 3)), "E5100"),
    (lambda: relay.nn.conv2d(X, WEIGHT[:, :, :, :3]), "E5100"),
    (lambda: relay.nn.conv2d(X, np.zeros((1, 99, 99, 4), np.int8)), "E5100"),
    (lambda: relay.nn.depthwise_conv2d(X, relay.var("w", (4,))), "E5100"),
    (lambda: relay.nn.dense(X, WEIGHT), "E5100"),
    (lambda: relay.nn.max_pool2d(X, 0), "E5100"),
    (lambda: relay.nn.max_pool2d(X, 99), "E5100"),
    (lambda: relay.nn.cov2d(X, WEIGHT), "E5101"),
    (lambda: relay.no_such_operator(X), "E5101"),
    (lambda: relay.cast(X), "E5100"),
    (lambda: relay.cast(X, dtyp="int8"), "E5100"),
    (lambda: relay.cast(X, dtype=3), "E5100"),
    (lambda: relay.cast(X, "int8", dtype="int8"), "E5100"),
    (lambda: relay.cast(X, "int8", 1, 2), "E5100"),
    (lambda: relay.nn.bias_add(X, X, 1), "E5100"),
    (lambda: relay.add(X, 3), "E5100"),
    (lambda: relay.add(3, 4), "E5100"),
    (lambda: relay.add(X, "x"), "E5100"),
    (lambda: relay.transpose(X, (0, 9, 1, 2)), "E5100"),
    (lambda: relay.reshape(X, (3, -1)), "E5100"),
    (lambda: relay.reshape("x", 3), "E5100"),
    (lambda: relay.concatenate([]), "E5100"),
    (lambda: relay.concatenate([X, 3]), "E5100"),
    (lambda: relay.clip(X, 3, 1), "E5100"),
    (lambda: relay.strided_slice(X, [0], [1]), "E5100"),
    (lambda: relay.qnn.requantize(X, -1), "E5100"),
    (lambda: relay.qnn.requantize(relay.cast(X, "int32"), [0.1, 0.2]), "E5100"),
    (lambda: relay.qnn.lut(X, table=(1, 2)), "E5100"),
    (lambda: relay.qnn.add(X, X, scales=(1, 2)), "E5100"),
    (lambda: relay.call("nn.dense", [X], None), "E5100"),
    (lambda: relay.call("nn.dense", [X, X], None), "E5100"),
    (lambda: relay.call("nn.bias_add", [X, 3]), "E5100"),
    (lambda: relay.call("nope", [X]), "E5101"),
    (lambda: relay.var("x", shape=3), "E5104"),  # type: ignore[arg-type]
    (lambda: relay.var("x", shape=(0,)), "E5104"),
    (lambda: relay.var("", shape=(1,)), "E5104"),
    (lambda: relay.var("x", shape=(1,), dtype="int9"), "E5104"),
    (lambda: relay.const([300], dtype="int8"), "E5104"),
    (lambda: relay.const([0.5], dtype="int8"), "E5104"),
    (lambda: relay.const("a"), "E5104"),
    (lambda: relay.const([[1], [1, 2]]), "E5104"),
    (lambda: IRModule.from_expr(3), "E5104"),
    (lambda: IRModule.from_expr(X)["other"], "E5105"),
    (lambda: Op.get("nope"), "E5101"),
    (lambda: Op("nn.conv2d").get_attr("nope"), "E5103"),
    (lambda: Op("nn.bias_add").get_attr("FIsView"), "E5103"),
    (lambda: relay.ExprVisitor().visit(3), "E5104"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("index", range(len(REFUSED)))
def test_wrong_use_is_refused_with_its_place(index: int) -> None:
    wrong, code = REFUSED[index]
    with pytest.raises(UsageError) as caught:
        wrong()
    (problem,) = caught.value.problems
    assert problem.code == code
    assert "test_construct.py:" in problem.where


_VALUES = st.one_of(
    st.none(), st.integers(-3, 300), st.floats(), st.text(max_size=2), st.just(X), st.just(WEIGHT), st.booleans(),
    st.lists(st.integers(-2, 9), max_size=4), st.lists(st.just(X), max_size=2), st.just(relay.var("f", (2, 3))),
    st.just(relay.var("i", (2, 3), dtype="int32")), st.just({}), st.just(object()),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, derandomize=True)
@given(st.sampled_from(names()), st.lists(_VALUES, max_size=4), st.dictionaries(st.sampled_from(["axis", "axes", "lo"]), _VALUES))
def test_any_arguments_give_a_call_or_a_coded_error(name: str, args: list[Any], attrs: dict[str, Any]) -> None:
    from aot.relay.construct import constructor

    try:
        made = constructor(name)(*args, **attrs)
    except AotError as error:
        codes = {p.code for p in error.problems}
    else:
        codes = set() if isinstance(made, Expr) else {"no expression"}
    assert codes <= {"E5100", "E5104"}


WITHOUT_ATTRIBUTES = {
    *("complex_abs", "imag", "nn.bias_add", "nn.dense_lanes", "qnn.dynamic_range", "real"),
    *("signal.scale_bits", "signal.scale_up", "signal.square_root"),
}


def test_every_operator_describes_itself() -> None:
    for name in Op.list_op_names():
        if name.startswith("t."):  # of the tests
            continue
        info = op_info(name)
        assert info.arguments, name
        assert info.doc, name
        assert all(a.name and a.type and a.doc for a in info.arguments), name
        assert info.attrs_type is not None or name in WITHOUT_ATTRIBUTES
        assert relay.construct.constructor(name).__doc__
    assert "conv2d" in dir(relay.nn)
    assert not hasattr(relay.nn, "no_such")
