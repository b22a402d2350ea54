"""qnn.steps: chains of float functions that end in QUANTIZE, against the reference at the steps and between them."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.ir.module import IRModule
from aot.ir.op import TypeRuleError
from aot.ir.type import TensorType
from aot.op import load_all
from aot.op.qnn.lut import StepsAttrs, cell_of, cells_of
from aot.relay.expr import Call, Function, Var, call, post_order
from aot.relay.interpreter import evaluate
from aot.relay.transform import graph_pipeline
from aot.testing import ModelBuilder
from tests.op._differential import FEW, SLOW, check, main_of
from tests.op.qnn._chains import CHAINS, SHAPE, SIZE

load_all()

SCALES = st.floats(2.0**-13, 2.0, width=32)
ZERO_POINTS = st.integers(-128, 127)
VALUES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-45, -9.0, 20.0]


def quantized(name: str, scale: float, zero_point: int) -> bytes:
    b = ModelBuilder()
    x = b.tensor("x", SHAPE, "float32")
    y = b.tensor("y", SHAPE, scale=scale, zero_point=zero_point)
    b.op("QUANTIZE", [CHAINS[name](b, x)], [y])
    return b.build([x], [y])


def steps_of(model: bytes) -> StepsAttrs | None:
    """None where the chain stays, as one does that is right between two codes for half of all floats."""
    main = graph_pipeline()(IRModule({"main": main_of(model)}))["main"]
    assert isinstance(main, Function)
    calls = [e for e in post_order(main.body) if isinstance(e, Call)]
    attrs = calls[0].attrs
    if not isinstance(attrs, StepsAttrs):
        return None
    assert len(calls) == 1
    return attrs


def around(attrs: StepsAttrs, seed: int) -> np.ndarray:
    """Floats on both sides of the steps, and any."""
    rng = np.random.default_rng(seed)
    starts = rng.permutation(np.asarray(attrs.starts, np.float32))[: SIZE // 3]
    found = [starts, np.nextafter(starts, np.float32(-np.inf)), np.nextafter(starts, np.float32(np.inf))]
    rest = SIZE - 3 * starts.size
    return np.concatenate([*found, (rng.normal(size=rest) * 10.0 ** rng.integers(-3, 3, rest)).astype(np.float32)]).reshape(SHAPE)


def try_chain(name: str, scale: float, zero_point: int, *, host: bool = False) -> None:
    model = quantized(name, scale, zero_point)
    attrs = steps_of(model)
    assert attrs is not None or not host
    if attrs is not None:
        check(model, [around(attrs, zero_point + 128)], host=host)


@given(st.sampled_from(list(CHAINS)), SCALES, ZERO_POINTS)
@FEW
def test_drawn(name: str, scale: float, zero_point: int) -> None:
    try_chain(name, scale, zero_point)


@pytest.mark.slow
@given(st.sampled_from(list(CHAINS)), SCALES, ZERO_POINTS)
@SLOW
def test_drawn_often(name: str, scale: float, zero_point: int) -> None:
    try_chain(name, scale, zero_point)


@pytest.mark.parametrize("name", CHAINS)
def test_on_host(name: str) -> None:
    try_chain(name, 0.02, -100, host=True)


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_no_number_and_the_ends(name: str) -> None:
    """The reference's conversion of NaN is undefined; the chain's own operators say what it is here."""
    model = quantized(name, 0.004, 17)
    attrs = steps_of(model)
    assert attrs is not None
    data = np.resize(np.asarray(VALUES, np.float32), SHAPE)
    (wanted,) = evaluate(main_of(model), [data])
    x = Var("x", TensorType(SHAPE, "float32"))
    (found,) = evaluate(Function((x,), call("qnn.steps", [x], attrs)), [data])
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("starts", [[1.0], [-3e38, 3e38], [1e-45, 2e-45], [0.1, 0.2, 0.3, 1e9], list(np.linspace(-1, 1, 300))])
def test_cells_lead_to_all_steps(starts: list[float]) -> None:
    numbers = np.unique(np.asarray(starts, np.float32))
    cells = cells_of(numbers)
    x = np.concatenate([numbers, np.nextafter(numbers, np.float32(-np.inf)), np.linspace(-2, 2, 999, dtype=np.float32)])
    inside = np.minimum(np.maximum(x, cells.origin), numbers[-1])
    before = cells.before[cell_of(inside, cells.origin, cells.factor)]
    left = np.searchsorted(numbers, x, side="right") - before
    assert left.min() >= 0
    assert left.max() < 1 << cells.levels


def test_attributes_are_checked() -> None:
    x = Var("x", TensorType((4,), "float32"))
    with pytest.raises(TypeRuleError, match="float32"):
        call("qnn.steps", [Var("x", TensorType((4,), "int8"))], StepsAttrs((1.0,), (0, 1), 0))
    with pytest.raises(TypeRuleError, match="ascending"):
        call("qnn.steps", [x], StepsAttrs((2.0, 1.0), (0, 1, 2), 0))
    with pytest.raises(TypeRuleError, match="int8 values"):
        call("qnn.steps", [x], StepsAttrs((1.0,), (0, 128), 0))
