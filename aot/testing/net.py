"""Whole networks, quantised after training: every layer is evaluated in floating point on calibration inputs when it is
added, and `build` writes the int8 model with the observed ranges.

Weights are OHWI (convolution), 1HWC (depthwise), OI (dense); activations NHWC.  Per-channel symmetric weights for
convolutions, per-tensor for dense layers, int32 biases: TensorFlow Lite's int8 scheme.
Sums are rounded to six digits before they are stored, so that another machine's order of summation gives the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict, Unpack

import numpy as np

from aot.testing.builder import ModelBuilder, Quant, quant_of_range, quantize_bias, quantize_weights
from aot.testing.ops import UNIT, Activation, Padding, output_size

CLAMP: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}


def stable(x: np.ndarray | float) -> np.ndarray:
    """`x` rounded to six significant digits."""
    a = np.asarray(x, np.float64)
    digits = 10.0 ** (5 - np.floor(np.log10(np.where(a == 0, 1.0, np.abs(a)))))
    return np.asarray(np.rint(a * digits) / digits)


def same_padding(n: int, k: int, *, stride: int, dilation: int) -> tuple[int, int]:
    """Rows before and after, as TensorFlow pads: the odd one goes after."""
    out = output_size(n, k, stride=stride, dilation=dilation, padding="SAME")
    total = max((out - 1) * stride + (k - 1) * dilation + 1 - n, 0)
    return total // 2, total - total // 2


def windows(x: np.ndarray, kernel: Sequence[int], *, strides: Sequence[int], padding: Padding, fill: float = 0.0) -> np.ndarray:
    """Sliding windows of NHWC `x`: a view of shape (n, oh, ow, c, kh, kw)."""
    if padding == "SAME":
        pads = [same_padding(x.shape[i + 1], kernel[i], stride=strides[i], dilation=1) for i in (0, 1)]
        x = np.pad(x, ((0, 0), *pads, (0, 0)), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(1, 2))
    return np.asarray(view[:, :: strides[0], :: strides[1]])


def conv2d(x: np.ndarray, w: np.ndarray, *, strides: Sequence[int], padding: Padding) -> np.ndarray:
    """Float convolution, without bias."""
    patches = windows(x, w.shape[1:3], strides=strides, padding=padding)
    return np.asarray(np.tensordot(patches, w, ((3, 4, 5), (3, 1, 2))))


def depthwise(x: np.ndarray, w: np.ndarray, *, strides: Sequence[int], padding: Padding) -> np.ndarray:
    """Float depthwise convolution, any multiplier, without bias."""
    patches = windows(x, w.shape[1:3], strides=strides, padding=padding)
    channels = x.shape[3]
    split = w[0].reshape(*w.shape[1:3], channels, -1)
    out = np.einsum("nhwcij,ijcm->nhwcm", patches, split)
    return np.asarray(out.reshape(*out.shape[:3], -1))


@dataclass(frozen=True, slots=True)
class Layer:
    """One tensor of the network: its operator, and its values on the calibration inputs (float64)."""

    op: str
    inputs: tuple[Layer, ...]
    values: np.ndarray
    weights: np.ndarray | None = None
    bias: np.ndarray | None = None
    options: dict[str, Any] = field(default_factory=dict)
    name: str = ""

    def range(self) -> Quant:
        """Parameters that cover every observed value."""
        return quant_of_range(float(stable(self.values.min())), float(stable(self.values.max())))


class WindowOptions(TypedDict, total=False):
    """The keyword arguments of `Net.conv2d` and `Net.depthwise`, by default (1, 1), SAME and NONE."""

    strides: Sequence[int]
    padding: Padding
    activation: Activation


def _clamp(x: np.ndarray, activation: Activation) -> np.ndarray:
    low, high = CLAMP[activation]
    return np.clip(x, low, high) if activation != "NONE" else x


class Net:
    """A network under construction on a batch of calibration inputs; `random` layers draw from `seed`."""

    def __init__(self, calibration: np.ndarray, *, input_quant: Quant | None = None, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.input = Layer("INPUT", (), np.asarray(calibration, np.float64), name="input")
        self.input_quant = input_quant or self.input.range()
        self.layers: list[Layer] = [self.input]

    def _add(self, op: str, inputs: tuple[Layer, ...], values: np.ndarray, **more: Any) -> Layer:
        name = more.pop("name", "") or f"{op.lower()}_{len(self.layers)}"
        self.layers.append(Layer(op, inputs, values, name=name, **more))
        return self.layers[-1]

    def conv2d(self, x: Layer, w: np.ndarray, b: np.ndarray, **window: Unpack[WindowOptions]) -> Layer:
        """CONV_2D with weights OHWI and one bias per filter."""
        return self._window("CONV_2D", x, w, b, **window)

    def depthwise(self, x: Layer, w: np.ndarray, b: np.ndarray, **window: Unpack[WindowOptions]) -> Layer:
        """DEPTHWISE_CONV_2D with weights 1HWC; C is a multiple of the input's channels."""
        return self._window("DEPTHWISE_CONV_2D", x, w, b, **window)

    def _window(
        self, op: str, x: Layer, w: np.ndarray, b: np.ndarray, *, strides: Sequence[int] = (1, 1), padding: Padding = "SAME",
        activation: Activation = "NONE",
    ) -> Layer:  # fmt: skip
        evaluate = conv2d if op == "CONV_2D" else depthwise
        values = _clamp(evaluate(x.values, w, strides=strides, padding=padding) + b, activation)
        options = _window_options(strides, padding, activation)
        if op == "DEPTHWISE_CONV_2D":
            options["depth_multiplier"] = w.shape[3] // x.values.shape[3]
        return self._add(op, (x,), values, weights=w, bias=b, options=options)

    def dense(self, x: Layer, w: np.ndarray, b: np.ndarray, *, activation: Activation = "NONE") -> Layer:
        """FULLY_CONNECTED with weights OI on a two-dimensional input."""
        values = _clamp(x.values @ w.T + b, activation)
        options = {"fused_activation_function": activation}
        return self._add("FULLY_CONNECTED", (x,), values, weights=w, bias=b, options=options)

    def pool(self, kind: str, x: Layer, *, kernel: Sequence[int], strides: Sequence[int], padding: Padding = "VALID") -> Layer:
        """AVERAGE_POOL_2D (VALID only) or MAX_POOL_2D."""
        if kind == "AVERAGE_POOL_2D" and padding != "VALID":
            raise ValueError("average pooling is evaluated without padding only")
        view = windows(x.values, kernel, strides=strides, padding=padding, fill=-np.inf)
        values = view.mean(axis=(4, 5)) if kind == "AVERAGE_POOL_2D" else view.max(axis=(4, 5))
        options = _window_options(strides, padding, "NONE")
        for key in ("dilation_h_factor", "dilation_w_factor"):
            del options[key]
        options |= {"filter_height": kernel[0], "filter_width": kernel[1]}
        return self._add(kind, (x,), values, options=options)

    def add(self, a: Layer, b: Layer, *, activation: Activation = "NONE") -> Layer:
        """ADD of two layers of one shape."""
        values = _clamp(a.values + b.values, activation)
        return self._add("ADD", (a, b), values, options={"fused_activation_function": activation})

    def flatten(self, x: Layer) -> Layer:
        """RESHAPE to (1, elements)."""
        return self._add("RESHAPE", (x,), x.values.reshape(len(x.values), -1))

    def softmax(self, x: Layer) -> Layer:
        """SOFTMAX over the last dimension, beta 1."""
        e = np.exp(x.values - x.values.max(axis=-1, keepdims=True))
        return self._add("SOFTMAX", (x,), e / e.sum(axis=-1, keepdims=True), options={"beta": 1.0})

    def random(self, kind: str, x: Layer, shape: Sequence[int], *, spread: float = 1.0, **options: Any) -> Layer:
        """A layer ("conv2d", "depthwise", "dense") with random weights of `shape`.

        Each output channel is scaled and shifted like a trained and folded batch normalisation, so that its values
        before the activation have a random mean and a random spread around `spread` on the calibration inputs.
        """
        depthwise_ = kind == "depthwise"
        w = self.rng.standard_normal(shape)
        channels = shape[-1] if depthwise_ else shape[0]
        gamma = spread * self.rng.uniform(0.6, 1.6, channels)
        beta = spread * self.rng.uniform(-0.6, 0.9, channels)
        make: Callable[..., Layer] = getattr(self, kind)
        raw = make(x, w, np.zeros(channels), **{**options, "activation": "NONE"}).values
        self.layers.pop()
        axes = tuple(range(raw.ndim - 1))
        mean, std = stable(raw.mean(axis=axes)), stable(raw.std(axis=axes))
        factor = gamma / np.maximum(std, 1e-6)
        w = w * (factor if depthwise_ else factor.reshape(-1, *[1] * (w.ndim - 1)))
        return make(x, w, beta - mean * factor, **options)

    def build(self, outputs: Sequence[Layer] | None = None, *, float_io: bool = False) -> bytes:
        """Write the int8 model; `float_io` adds QUANTIZE before and DEQUANTIZE after."""
        return _Writer(self, float_io=float_io).write(outputs or [self.layers[-1]])


def _window_options(strides: Sequence[int], padding: Padding, activation: Activation) -> dict[str, Any]:
    return {
        "padding": padding,
        "stride_h": strides[0],
        "stride_w": strides[1],
        "dilation_h_factor": 1,
        "dilation_w_factor": 1,
        "fused_activation_function": activation,
    }


class _Writer:
    """One pass over the layers of a Net in the order in which they were added."""

    def __init__(self, net: Net, *, float_io: bool) -> None:
        self.net = net
        self.float_io = float_io
        self.b = ModelBuilder()
        self.index: dict[int, int] = {}
        self.quant: dict[int, Quant] = {}

    def write(self, outputs: Sequence[Layer]) -> bytes:
        source = self._tensor(self.net.input, self.net.input_quant)
        first = source
        if self.float_io:
            first = self.b.tensor("input_float", (1, *self.net.input.values.shape[1:]), "float32")
            self.b.op("QUANTIZE", [first], [source])
        for layer in self.net.layers[1:]:
            self._layer(layer)
        results = [self.index[id(layer)] for layer in outputs]
        if self.float_io:
            results = [self._dequantize(layer) for layer in outputs]
        return self.b.build([first], results)

    def _tensor(self, layer: Layer, quant: Quant) -> int:
        shape = (1, *layer.values.shape[1:])
        tensor = self.b.tensor(layer.name, shape, "int8", scale=quant.scale, zero_point=quant.zero_point)
        self.index[id(layer)], self.quant[id(layer)] = tensor, quant
        return tensor

    def _dequantize(self, layer: Layer) -> int:
        result = self.b.tensor(f"{layer.name}_float", (1, *layer.values.shape[1:]), "float32")
        self.b.op("DEQUANTIZE", [self.index[id(layer)]], [result])
        return result

    def _result_quant(self, layer: Layer) -> Quant:
        if layer.op in ("RESHAPE", "AVERAGE_POOL_2D", "MAX_POOL_2D"):
            return self.quant[id(layer.inputs[0])]
        return UNIT if layer.op == "SOFTMAX" else layer.range()

    def _layer(self, layer: Layer) -> None:
        inputs = [self.index[id(x)] for x in layer.inputs]
        options = dict(layer.options)
        if layer.weights is not None and layer.bias is not None:
            inputs += self._parameters(layer, layer.weights, layer.bias)
        if layer.op == "RESHAPE":
            shape = np.array([-1, *layer.values.shape[1:]], np.int32)
            inputs.append(self.b.tensor(f"{layer.name}/shape", shape.shape, "int32", data=shape))
            options["new_shape"] = shape
        result = self._tensor(layer, self._result_quant(layer))
        self.b.op(layer.op, inputs, [result], **options)

    def _parameters(self, layer: Layer, w: np.ndarray, b: np.ndarray) -> list[int]:
        axis = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": None}[layer.op]
        data, scale = quantize_weights(w, axis)
        bias, bias_scale = quantize_bias(b, self.quant[id(layer.inputs[0])].scale, scale)
        weights = self.b.tensor(f"{layer.name}/weights", w.shape, "int8", scale=scale, axis=axis or 0, data=data)
        return [
            weights,
            self.b.tensor(f"{layer.name}/bias", bias.shape, "int32", scale=bias_scale, data=bias),
        ]
