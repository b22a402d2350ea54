"""CONV_2D, DEPTHWISE_CONV_2D and FULLY_CONNECTED of float32: the very bits of the reference, as sums are added in its order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.frontend.macs import nominal_macs
from aot.relay.analysis.cost import cost
from tests.op._differential import ACTIVATIONS, FAST, SEEDS, SLOW, check, main_of
from tests.op._one_op import Spec, one_op
from tests.writer import output_size

Array = np.ndarray[Any, Any]
VERSION = {"CONV_2D": 6, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 1}


@dataclass(frozen=True, slots=True)
class FloatLayer:
    """One layer; `channels` are the outputs (of each input channel in a depthwise convolution)."""

    op: str
    shape: tuple[int, ...]
    channels: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    dilation: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    activation: str = "NONE"
    groups: int = 1
    bias: bool = True
    seed: int = 0

    def build(self) -> bytes:
        rng = np.random.default_rng(self.seed)
        depth, out = self.shape[-1], self.channels
        weight: tuple[int, ...] = (out, *self.kernel, depth // self.groups)
        if self.op == "DEPTHWISE_CONV_2D":
            out *= depth
            weight = (1, *self.kernel, out)
        elif self.op == "FULLY_CONNECTED":
            weight = (out, depth)
        inputs = [Spec(self.shape, "float32"), self._constant(rng, weight)]
        if self.bias:
            inputs.append(self._constant(rng, (out,)))
        result = Spec((*self._rows(), out), "float32")
        return one_op(self.op, inputs, [result], version=VERSION[self.op], **self._options())

    def _constant(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Spec:
        return Spec(shape, "float32", None, rng.normal(size=shape).astype(np.float32))

    def _rows(self) -> tuple[int, ...]:
        if self.op == "FULLY_CONNECTED":
            return self.shape[:1]
        sizes = [
            output_size(n, k, stride=self.stride, dilation=d, padding=self.padding)  # type: ignore[arg-type]
            for n, k, d in zip(self.shape[1:3], self.kernel, self.dilation, strict=True)
        ]
        return (self.shape[0], *sizes)

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"fused_activation_function": self.activation}
        if self.op == "FULLY_CONNECTED":
            return options
        if self.op == "DEPTHWISE_CONV_2D":
            options["depth_multiplier"] = self.channels
        names = ("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor")
        return options | {"padding": self.padding} | dict(zip(names, (self.stride, self.stride, *self.dilation), strict=True))


@st.composite
def layers(draw: st.DrawFn, op: str) -> FloatLayer:
    """Layers of a few hundred products at most; VALID windows fit."""
    if op == "FULLY_CONNECTED":
        shape = (draw(st.integers(1, 3)), draw(st.integers(1, 40)))
        return FloatLayer(
            op, shape, draw(st.integers(1, 9)), activation=draw(ACTIVATIONS), bias=draw(st.booleans()), seed=draw(SEEDS)
        )
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]))
    size = [draw(st.integers(1, 6)) for _ in range(2)]
    if padding == "VALID":
        size = [max(n, (k - 1) * d + 1) for n, k, d in zip(size, kernel, dilation, strict=True)]
    groups = draw(st.integers(1, 3)) if op == "CONV_2D" else 1
    return FloatLayer(
        op,
        (draw(st.integers(1, 2)), *size, groups * draw(st.integers(1, 4))),
        groups * draw(st.integers(1, 3)),
        kernel,
        draw(st.integers(1, 2)) if max(dilation) == 1 else 1,
        dilation,
        padding,
        draw(ACTIVATIONS),
        groups,
        bias=True,  # the reference insists
        seed=draw(SEEDS),
    )


def run_layers(op: str, examples: Any) -> None:
    @given(layers(op))
    @examples
    def test(layer: FloatLayer) -> None:
        check(layer.build())

    test()


@pytest.mark.parametrize("op", VERSION)
def test_layers(op: str) -> None:
    run_layers(op, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("op", VERSION)
def test_layers_often(op: str) -> None:
    run_layers(op, SLOW)


def test_on_host() -> None:
    """As C: padding, dilation, groups, and a layer whose sums are quantised next."""
    for layer in (
        FloatLayer("CONV_2D", (1, 5, 4, 6), 4, (3, 2), activation="RELU6", groups=2),
        FloatLayer("DEPTHWISE_CONV_2D", (1, 5, 4, 3), 2, (3, 3), dilation=(2, 1), activation="RELU"),
        FloatLayer("FULLY_CONNECTED", (2, 33), 5),
    ):
        check(layer.build(), host=True)


def test_work_is_counted() -> None:
    """As from the shapes in the file."""
    for op, shape in (("CONV_2D", (1, 5, 4, 6)), ("DEPTHWISE_CONV_2D", (1, 5, 4, 3)), ("FULLY_CONNECTED", (2, 33))):
        model = FloatLayer(op, shape, 4, (3, 2), groups=2 if op == "CONV_2D" else 1).build()
        assert cost(main_of(model)).macs == nominal_macs(model) > 0


def test_refused() -> None:
    with pytest.raises(AotError, match="E1121"):
        main_of(FloatLayer("CONV_2D", (1, 4, 4, 6), 4, groups=4).build())
