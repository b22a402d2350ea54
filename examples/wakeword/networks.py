"""The two networks as int8 models, from trained numbers: features of one step in, the probabilities of the words out.

`spotter` keeps the features of the last steps in a variable and looks at all of them, in two dense layers.
`recurrent` is an LSTM with a dense layer, which keeps its state by itself.  `smooth` is for the answers of either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.testing import ModelBuilder, Quant, quant_of_range, quantize_bias, quantize_weights
from aot.testing.builder import Subgraph, assign, handle, initialize, read
from examples.wakeword.frontend import FEATURE_SCALE, FEATURES
from examples.wakeword.training import CELLS, WINDOW, Array, Params

SOFTMAX = Quant(1 / 256, -128)
SMOOTHED = 3
"""Steps that `smooth` takes the mean of."""
OUTPUT = Quant(1 / 128, 0)
"""Of the LSTM's results, which lie between -1 and 1."""
CELL_SCALE = 2.0**-12
UNIT = 1 / (255 * FEATURE_SCALE)
"""Training sees features from 0 to 1: real value times this."""


def real(codes: Array) -> Array:
    """int8 features as training sees them."""
    return (codes.astype(np.float64) + 128) / 255


def _quant(q: Quant) -> dict[str, Any]:
    return {"scale": q.scale, "zero_point": q.zero_point}


class _Net:
    """A main graph that grows."""

    def __init__(self, description: str) -> None:
        self.b = ModelBuilder(description)
        self.main: Subgraph = self.b.subgraphs[0]
        self.number = 0

    def tensor(self, shape: tuple[int, ...], dtype: str = "int8", **rest: Any) -> int:
        self.number += 1
        return self.b.tensor(f"t{self.number}", shape, dtype, **rest)

    def ints(self, *values: int) -> int:
        return self.tensor((len(values),), "int32", data=np.array(values, np.int32))

    def weights(self, w: Array) -> tuple[int, Array]:
        """(tensor, scale), one scale for all."""
        codes, scale = quantize_weights(w, None)
        return self.tensor(w.shape, data=codes, scale=scale, zero_point=0), scale

    def dense(self, x: int, input_scale: float, w: Array, bias: Array, *, out: Quant, activation: str = "NONE") -> int:
        weight, scale = self.weights(w)
        codes, bias_scale = quantize_bias(bias, input_scale, scale)
        b = self.tensor(bias.shape, "int32", data=codes, scale=bias_scale, zero_point=0)
        y = self.tensor((1, len(bias)), **_quant(out))
        self.b.op("FULLY_CONNECTED", [x, weight, b], [y], fused_activation_function=activation)
        return y

    def finish(self, x: int, logits: int, classes: int) -> bytes:
        scores = self.b.tensor("scores", (1, classes), **_quant(SOFTMAX))
        self.b.op("SOFTMAX", [logits], [scores], beta=1.0)
        return self.b.build([x], [scores])


def spotter_model(p: Params, hidden: Array, logits: Array) -> bytes:
    """The streaming network; `hidden` and `logits` are values on training data, for their ranges."""
    bands = p["w1"].shape[1] // WINDOW
    net = _Net("wake word spotter")
    initialize(net.b, {"past": np.full((1, WINDOW - 1, bands), -128, np.int8)}, past=FEATURES)
    x = net.b.tensor("features", (1, 1, bands), **FEATURES)
    past = handle(net.main, "past")
    both = net.tensor((1, WINDOW, bands), **FEATURES)
    net.b.op("CONCATENATION", [read(net.main, past, (1, WINDOW - 1, bands), "int8", **FEATURES), x], [both], axis=1)
    rest = net.tensor((1, WINDOW - 1, bands), **FEATURES)
    net.b.op("SLICE", [both, net.ints(0, 1, 0), net.ints(1, WINDOW - 1, bands)], [rest])
    assign(net.main, past, rest)
    flat = net.tensor((1, WINDOW * bands), **FEATURES)
    net.b.op("RESHAPE", [both, net.ints(1, WINDOW * bands)], [flat])
    between, result = quant_of_range(0, hidden.max()), quant_of_range(logits.min(), logits.max())
    h = net.dense(flat, FEATURE_SCALE, p["w1"] * UNIT, p["b1"], out=between, activation="RELU")
    return net.finish(x, net.dense(h, between.scale, p["w2"], p["b2"], out=result), len(p["b2"]))


def smooth_model(classes: int) -> bytes:
    """The mean of the probabilities of the last steps, rounded; a window that moves by one step a run."""
    net = _Net("wake word smoothing")
    x = net.b.tensor("scores", (1, SMOOTHED, classes), **_quant(SOFTMAX))
    y = net.b.tensor("smooth", (1, classes), **_quant(SOFTMAX))
    net.b.op("MEAN", [x, net.ints(1)], [y], keep_dims=False)
    return net.b.build([x], [y])


def recurrent_model(p: Params, logits: Array) -> bytes:
    """The LSTM with 8-bit weights and data and 16 bits inside."""
    bands = p["w"].shape[2]
    net = _Net("wake word LSTM")
    x = net.b.tensor("features", (1, 1, bands), **FEATURES)
    inputs = [net.weights(w * UNIT) for w in p["w"]]
    recurrent = [net.weights(r)[0] for r in p["r"]]
    biases = []
    for bias, (_, scale) in zip(p["b"], inputs, strict=True):
        codes, bias_scale = quantize_bias(bias, FEATURE_SCALE, scale)
        biases.append(net.tensor(bias.shape, "int32", data=codes, scale=bias_scale, zero_point=0))
    h = net.tensor((1, CELLS), is_variable=True, **_quant(OUTPUT))
    c = net.tensor((1, CELLS), "int16", is_variable=True, scale=CELL_SCALE, zero_point=0)
    gates = [net.tensor((0,), "int16", scale=2.0**-12, zero_point=0) for _ in range(4)]
    hidden = net.tensor((0,), **_quant(OUTPUT))
    y = net.tensor((1, 1, CELLS), **_quant(OUTPUT))
    operands = [x, *(w for w, _ in inputs), *recurrent, -1, -1, -1, *biases, -1, -1, h, c, -1, -1, -1, -1]
    net.b.op("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [y], version=3, intermediates=[*gates, hidden],
             fused_activation_function="TANH", time_major=False)  # fmt: skip
    flat = net.tensor((1, CELLS), **_quant(OUTPUT))
    net.b.op("RESHAPE", [y, net.ints(1, CELLS)], [flat])
    result = quant_of_range(logits.min(), logits.max())
    return net.finish(x, net.dense(flat, OUTPUT.scale, p["w2"], p["b2"], out=result), len(p["b2"]))
