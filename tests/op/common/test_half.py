"""float16 data: widened, computed with as float32 and rounded once, or moved as bits, as the reference's kernels do."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from aot.testing import HAVE_LITERT, reference_sets
from tests.op._differential import FEW, SEEDS, SLOW, check, check_drawn, dims, evaluate, main_of, same
from tests.op._forms import FORMS
from tests.op._one_op import Spec, draw_array, one_op

EVERY_HALF = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(1, -1)
FUNCTIONS = ("COS", "FLOOR", "GELU", "GELU_TANH", "LOGISTIC", "NEG", "SIN", "TANH")
ARITHMETIC = ("ADD", "MUL", "MAXIMUM", "MINIMUM", "ATAN2")
COMPARISONS = ("EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL")
ALIKE = ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")
MOVED = ("DILATE", "PAD", "PADV2", "STABLEHLO_PAD")

Case = tuple[bytes, list[np.ndarray]]


def unary(name: str, shape: tuple[int, ...] = EVERY_HALF.shape) -> bytes:
    """GELU_TANH: GELU by the hyperbolic tangent."""
    options = {"SOFTMAX": {"beta": 1.0}, "GELU": {"approximate": False}, "GELU_TANH": {"approximate": True}}.get(name, {})
    return one_op(name.removesuffix("_TANH"), [Spec(shape, "float16")], [Spec(shape, "float16")], **options)


def halves(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers of all sizes, some of them infinite; no NaN, as which operand's NaN comes out is not said."""
    bits = np.random.default_rng(seed).integers(0, 1 << 16, shape, np.uint16).view(np.float16)
    plain = draw_array(seed, shape, "float16")
    return np.where(np.isnan(bits) | (np.random.default_rng(seed + 1).random(shape) < 0.6), plain, bits)


@pytest.mark.skipif(not HAVE_LITERT, reason="ai-edge-litert is not installed")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_number(name: str) -> None:
    model = unary(name)
    (wanted,) = reference_sets(model, [[EVERY_HALF]])
    found = evaluate(main_of(model), [EVERY_HALF])
    same(*([np.where(np.isnan(x), np.float16(np.nan), x) for x in each] for each in (found, wanted)), name)


@st.composite
def functions(draw: st.DrawFn, name: str) -> Case:
    shape = draw(dims(2))
    return unary(name, shape), [draw_array(draw(SEEDS), shape, "float16")]


@st.composite
def binaries(draw: st.DrawFn, name: str) -> Case:
    """With broadcasting and a fused activation where the operator has them."""
    shape, seed = draw(dims(3)), draw(SEEDS)
    second = shape if name in (*ALIKE, "ATAN2") else tuple(n if draw(st.booleans()) else 1 for n in shape)
    activation = draw(st.sampled_from(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"]))
    options = {"fused_activation_function": activation} if name in ("ADD", "MUL") else {}
    result = Spec(shape, "bool" if name in COMPARISONS else "float16")
    model = one_op(name, [Spec(shape, "float16"), Spec(second, "float16")], [result], **options)
    inputs = [halves(seed, shape), halves(seed + 2, second)]
    if name in ("ADD", "MUL", "STABLEHLO_ADD", "STABLEHLO_MULTIPLY"):  # no NaN as a result either
        inputs = [np.where(np.isinf(x), np.float16(60000), x) for x in inputs]
    return model, inputs


@st.composite
def moved(draw: st.DrawFn, name: str) -> Case:
    model = FORMS[name]("float16")
    view = main_of(model)
    return model, [halves(draw(SEEDS), tuple(v.type.shape)) for v in view.params]


STRATEGIES = {
    **{name: functions(name) for name in (*FUNCTIONS, "SOFTMAX")},
    **{name: binaries(name) for name in (*ARITHMETIC, *COMPARISONS, *ALIKE)},
    **{name: moved(name) for name in MOVED},
}


@pytest.mark.parametrize("name", ["ADD", "GREATER", "SOFTMAX", "PAD"])
def test_some(name: str) -> None:
    check_drawn(STRATEGIES[name], FEW, lambda model, inputs: check(model, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_random(name: str) -> None:
    check_drawn(STRATEGIES[name], SLOW, lambda model, inputs: check(model, inputs))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["MUL", "TANH", "GELU", "SOFTMAX", "DILATE", "CONCATENATION"])
def test_on_host(name: str) -> None:
    check(FORMS[name]("float16"), host=True)


def test_too_large_sums_are_the_largest_number() -> None:
    model = one_op("ADD", [Spec((4,), "float16")] * 2, [Spec((4,), "float16")], fused_activation_function="NONE")
    a = np.array([65504, -65504, 1, np.inf], np.float16)
    check(model, [a, a])
    (found,) = evaluate(main_of(model), [a, a])
    assert found.tolist() == [65504, -65504, 2, 65504]


def test_small_numbers_are_rounded_before_they_are_clamped() -> None:
    model = one_op("MUL", [Spec((2,), "float16")] * 2, [Spec((2,), "float16")], fused_activation_function="RELU")
    a, b = np.array([2e-4, 2], np.float16), np.array([-5e-5, -3], np.float16)
    check(model, [a, b])
    (found,) = evaluate(main_of(model), [a, b])
    assert np.signbit(found).tolist() == [True, False]


def test_other_operators_refuse_it() -> None:
    with pytest.raises(AotError) as error:
        from_tflite(unary("EXP"))
    assert [p.code for p in error.value.problems] == ["E1202"]
