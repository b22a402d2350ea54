"""Layers with other types than int8 x int8: int16 data, 4-bit weights, legacy uint8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis.strategies as st
import numpy as np

from aot.testing import ModelBuilder, output_size
from tests.op._differential import ACTIVATIONS, SEEDS

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Kind:
    """Element types of data, weights and bias ("" for no bias)."""

    data: str
    weight: str
    bias: str = "int32"

    @property
    def data_range(self) -> tuple[int, int]:
        limits = np.iinfo(self.data)
        return int(limits.min), int(limits.max)

    @property
    def weight_range(self) -> tuple[int, int]:
        """Of symmetric weights, or of all codes of uint8."""
        return {"int8": (-127, 127), "int4": (-7, 7), "uint8": (0, 255)}[self.weight]


INT16 = Kind("int16", "int8", "int64")
INT16_BIAS32 = Kind("int16", "int8", "int32")
INT16_NO_BIAS = Kind("int16", "int8", "")
INT4 = Kind("int8", "int4")
INT16_INT4 = Kind("int16", "int4", "int64")
UINT8 = Kind("uint8", "uint8")
FLOAT = Kind("float32", "float32", "float32")


@dataclass(frozen=True, slots=True)
class LayerModel:
    """One layer; `reach` scales the output so that about that part of its range is used, weights are near their
    limits if `heavy`, scales are powers of two if `ties`; weights are an input of the model if `running`.
    """

    op: str
    kind: Kind
    shape: tuple[int, ...]
    channels: int
    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    padding: str = "SAME"
    activation: str = "NONE"
    per_channel: bool = True
    zero_points: tuple[int, int, int] = (120, 130, 7)
    reach: float = 0.7
    heavy: bool = False
    groups: int = 1
    ties: bool = False
    running: bool = False
    seed: int = 0

    def build(self) -> bytes:
        rng = np.random.default_rng(self.seed)
        b = ModelBuilder()
        zx, zw, zy = self.zero_points if self.kind.data == "uint8" else (0, 0, 0)
        if self.kind.data == "int8":
            zx, zy = self.zero_points[0] - 128, self.zero_points[2] - 128
        scale_x = float(self._scale(rng.uniform(0.001, 0.1)))
        source = b.tensor("x", self.shape, self.kind.data, scale=scale_x, zero_point=zx)
        weights, scale, depth = self._weights(b, rng, zw)
        low, high = self.kind.data_range
        typical = (high - low) / 3.5 * (self.kind.weight_range[1] - self.kind.weight_range[0]) / 3.5 * depth**0.5
        if self.heavy:
            typical *= depth**0.5
        inputs = [source, weights, *self._bias(b, rng, scale_x * scale, typical)]
        scale_y = float(self._scale(scale_x * scale.mean() * typical / (self.reach * (high - low) / 4)))
        result = b.tensor("y", self.out_shape(), self.kind.data, scale=scale_y, zero_point=zy)
        b.op(self.op, inputs, [result], version=self._version(), **self.options())
        return b.build([source, weights] if self.running else [source], [result])

    @property
    def weight_shape(self) -> tuple[int, ...]:
        depth = self.shape[-1]
        if self.op == "DEPTHWISE_CONV_2D":
            return (1, *self.kernel, self.channels * depth)
        return (self.channels, depth) if self.op == "FULLY_CONNECTED" else (self.channels, *self.kernel, depth // self.groups)

    def _scale(self, value: Any) -> Array:
        """In single precision, or the power of two below."""
        return np.asarray(2.0 ** np.floor(np.log2(value)) if self.ties else value, np.float32)

    def _weights(self, b: ModelBuilder, rng: np.random.Generator, zp: int) -> tuple[int, Array, int]:
        shape, axis = self.weight_shape, 3 if self.op == "DEPTHWISE_CONV_2D" else 0
        low, high = self.kind.weight_range
        data = rng.integers(high - 20 if self.heavy else low, high, shape, endpoint=True)
        count = shape[axis] if self.per_channel and self.kind.weight != "uint8" else 1
        scale = self._scale(rng.uniform(0.002, 0.03, count))
        extra: dict[str, Any] = {"axis": axis} if count > 1 else {}
        stored = data.astype(self.kind.weight if self.kind.weight != "int4" else np.int8)
        tensor = b.tensor(
            "w", shape, self.kind.weight, scale=scale, zero_point=[zp] * count, data=None if self.running else stored, **extra
        )
        return tensor, scale, int(np.prod(shape)) // shape[axis]

    def _bias(self, b: ModelBuilder, rng: np.random.Generator, scale: Array, typical: float) -> list[int]:
        if not self.kind.bias:
            return []
        count = self.channels * (self.shape[-1] if self.op == "DEPTHWISE_CONV_2D" else 1)
        data = rng.integers(-int(typical / 3) - 1, int(typical / 3) + 2, count).astype(self.kind.bias)
        return [b.tensor("b", (count,), self.kind.bias, scale=scale, zero_point=[0] * len(scale), data=data)]

    def out_shape(self) -> tuple[int, ...]:
        if self.op == "FULLY_CONNECTED":
            return (self.shape[0], self.channels)
        channels = self.channels * (self.shape[-1] if self.op == "DEPTHWISE_CONV_2D" else 1)
        sizes = [
            output_size(n, k, stride=s, dilation=d, padding=self.padding)  # type: ignore[arg-type]
            for n, k, s, d in zip(self.shape[1:3], self.kernel, self.strides, self.dilation, strict=True)
        ]
        return (self.shape[0], *sizes, channels)

    def _version(self) -> int:
        return {"CONV_2D": 8, "DEPTHWISE_CONV_2D": 6, "FULLY_CONNECTED": 12}[self.op]

    def options(self) -> dict[str, Any]:
        options: dict[str, Any] = {"fused_activation_function": self.activation}
        if self.kind == INT16_BIAS32:
            options["quantized_bias_type"] = "INT32"
        if self.op == "FULLY_CONNECTED":
            return options
        if self.op == "DEPTHWISE_CONV_2D":
            options["depth_multiplier"] = self.channels
        names = ("stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor")
        return options | {"padding": self.padding} | dict(zip(names, (*self.strides, *self.dilation), strict=True))


@st.composite
def windows(draw: st.DrawFn, op: str, kind: Kind) -> LayerModel:
    """Convolutions; VALID windows fit."""
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    kernel = (draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    dilation = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]))
    size = [draw(st.integers(1, 6)) for _ in range(2)]
    if padding == "VALID":
        size = [max(n, (k - 1) * d + 1) for n, k, d in zip(size, kernel, dilation, strict=True)]
    stride = draw(st.integers(1, 2)) if max(dilation) == 1 else 1
    return LayerModel(
        op,
        kind,
        (draw(st.integers(1, 2)), *size, draw(st.integers(1, 5))),
        draw(st.integers(1, 6)),
        kernel,
        (stride, stride),
        dilation,
        padding,
        draw(ACTIVATIONS),
        # the reference asks for one scale a channel where weights are narrow or data is wide
        kind == UINT8 or op == "FULLY_CONNECTED" or draw(st.just(True)),
        draw(zero_points()),
        draw(st.sampled_from([0.02, 0.7, 1.5])),
        seed=draw(SEEDS),
    )


@st.composite
def grouped(draw: st.DrawFn, kind: Kind, fewest: int = 2) -> LayerModel:
    """CONV_2D in at most four groups of one to five channels each."""
    layer, groups = draw(windows("CONV_2D", kind)), draw(st.integers(fewest, 4))
    shape = (*layer.shape[:3], layer.shape[3] * groups)
    return replace(layer, shape=shape, channels=min(layer.channels, 3) * groups, groups=groups)


@st.composite
def rows(draw: st.DrawFn, kind: Kind) -> LayerModel:
    """FULLY_CONNECTED; now and then sums that need 64 bits."""
    heavy = kind in (INT16, Kind("int16", "int8", "")) and draw(st.booleans())
    depth = draw(st.integers(600, 900)) if heavy else draw(st.integers(1, 40))
    return LayerModel(
        "FULLY_CONNECTED",
        kind,
        (draw(st.integers(1, 3)), depth),
        draw(st.integers(1, 9)),
        activation=draw(ACTIVATIONS),
        per_channel=draw(st.booleans()) if kind.weight != "int4" else True,
        zero_points=draw(zero_points()),
        reach=draw(st.sampled_from([0.02, 0.7, 1.5])),
        heavy=heavy,
        ties=draw(st.booleans()),
        seed=draw(SEEDS),
    )


def zero_points() -> st.SearchStrategy[tuple[int, int, int]]:
    """Of data, weights and result, as uint8."""
    one = st.one_of(st.sampled_from([0, 127, 128, 255]), st.integers(0, 255))
    return st.tuples(one, one, one)


def extremes(model: LayerModel) -> Sequence[Array]:
    """Data at one end of its type, for the largest sums."""
    return [np.full(model.shape, model.kind.data_range[1], model.kind.data)]
