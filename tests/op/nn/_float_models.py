"""Layers of float32 as models."""

from __future__ import annotations

import numpy as np

from tests.op._layer_models import LayerModel
from tests.op._one_op import Spec, one_op

VERSION = {"CONV_2D": 6, "DEPTHWISE_CONV_2D": 2, "FULLY_CONNECTED": 1}


def build(layer: LayerModel) -> bytes:
    rng = np.random.default_rng(layer.seed)
    operands = [rng.normal(size=layer.weight_shape).astype(np.float32)]
    if layer.kind.bias:
        operands.append(rng.normal(size=layer.out_shape()[-1:]).astype(np.float32))
    inputs = [Spec(layer.shape, "float32"), *(Spec(a.shape, "float32", None, a) for a in operands)]
    return one_op(layer.op, inputs, [Spec(layer.out_shape(), "float32")], version=VERSION[layer.op], **layer.options())
