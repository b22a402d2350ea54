"""ADD: every pair of codes, broadcasting, the 32-bit form and the exact one."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from aot.errors import UnsupportedError
from aot.op.qnn.arithmetic import AddAttrs, LinearForm, linear_form
from aot.relay.expr import Call
from aot.testing import Quant, add_model, reference
from tests.op._differential import ACTIVATIONS, EVERY_PAIR, FAST, SEEDS, SLOW, check, main_of, quants

SHAPES = [
    ((1, 5, 4, 3), (3,)),
    ((1, 5, 4, 3), (1, 5, 4, 1)),
    ((1, 1, 1, 3), (2, 3, 4, 3)),
    ((3,), (3,)),
    ((1, 3, 2, 3), ()),
    ((2, 3, 2, 3, 2), (3, 1)),
]


@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    check(add_model(shape_a=a, shape_b=b))


def test_constant_operand() -> None:
    check(add_model(constant_b=True), host=True)


def every_pair(a: Quant, b: Quant, y: Quant, activation: str) -> None:
    """`AddAttrs.evaluate` is the reference's function, and so is the 32-bit form wherever one is found."""
    model = add_model(shape_a=EVERY_PAIR[0].shape, a=a, b=b, y=y, activation=activation)  # type: ignore[arg-type]
    func = main_of(model)
    (wanted,) = reference(model, EVERY_PAIR)
    assert isinstance(func.body, Call)
    attrs = func.body.attrs
    assert isinstance(attrs, AddAttrs)
    found = attrs.evaluate(*EVERY_PAIR, out_type=func.body.type)
    np.testing.assert_array_equal(found, wanted)
    form = linear_form(attrs)
    if form is not None:
        np.testing.assert_array_equal(linear(form, attrs), wanted)


def linear(form: LinearForm, attrs: AddAttrs) -> np.ndarray:
    """The 32-bit form with every intermediate result checked."""
    a, b = (x.astype(np.int64) for x in EVERY_PAIR)
    steps = [a * form.a_factor, a * form.a_factor + form.bias, a * form.a_factor + form.bias + b * form.b_factor]
    assert all(np.abs(s).max() < 1 << 31 for s in steps)
    return np.clip(steps[-1] >> form.shift, attrs.lo, attrs.hi).astype(np.int8)


def representable(a: Quant, b: Quant, y: Quant) -> bool:
    return 2 * max(a.scale, b.scale) / (1 << 20) / y.scale < 1


@given(quants(), quants(), quants(), ACTIVATIONS)
@FAST
def test_every_pair(a: Quant, b: Quant, y: Quant, activation: str) -> None:
    assume(representable(a, b, y))
    every_pair(a, b, y, activation)


@pytest.mark.slow
@given(quants(), quants(), quants(), ACTIVATIONS)
@SLOW
def test_every_pair_often(a: Quant, b: Quant, y: Quant, activation: str) -> None:
    assume(representable(a, b, y))
    every_pair(a, b, y, activation)


@given(quants(), quants(), quants(), ACTIVATIONS, SEEDS)
@FAST
def test_kernel(a: Quant, b: Quant, y: Quant, activation: str, seed: int) -> None:
    check(add_model(a=a, b=b, y=y, activation=activation), seed=seed)  # type: ignore[arg-type]


@pytest.mark.parametrize("wanted", [True, False])
def test_both_forms_of_the_kernel(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not wanted:
        monkeypatch.setattr("aot.op.qnn.arithmetic.linear_form", lambda _attrs: None)
    for y in (Quant(0.081, 4), Quant(0.05, -128)):
        check(add_model(y=y), host=True)


def test_the_usual_case_has_a_linear_form() -> None:
    func = main_of(add_model())
    assert isinstance(func.body, Call)
    assert linear_form(func.body.attrs) is not None


@pytest.mark.parametrize("scale", [1e-8, 1e-7])
def test_output_scale_too_small(scale: float) -> None:
    """The reference aborts on these."""
    with pytest.raises(UnsupportedError, match="E1226"):
        main_of(add_model(a=Quant(0.1), b=Quant(0.1), y=Quant(scale)))


@given(st.integers(-128, 127), st.integers(-128, 127))
@FAST
def test_clipped_composes(lo: int, hi: int) -> None:
    lo, hi = min(lo, hi), max(lo, hi)
    func = main_of(add_model(y=Quant(0.05, 3)))
    assert isinstance(func.body, Call)
    plain = func.body.attrs.evaluate(*EVERY_PAIR, out_type=func.body.type)
    once = func.body.attrs.clipped(-20, 60).clipped(lo, hi).evaluate(*EVERY_PAIR, out_type=func.body.type)
    np.testing.assert_array_equal(once, np.clip(np.clip(plain, -20, 60), lo, hi))
