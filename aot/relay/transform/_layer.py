"""Rewriting a convolution or fully connected layer: cut weights, and constants that move into the bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.ir.op import Array
from aot.ir.type import QuantParams, TensorType
from aot.relay.analysis.interval import Int64
from aot.relay.expr import Call, Constant, Expr, call, const, tensor_type
from aot.relay.stored import inheriting
from aot.relay.transform._uses import Uses
from aot.relay.transform.canonicalize import merge_biases


def cut(value: Constant, index: Sequence[Array]) -> Constant:
    """The constant at the positions `index[i]` of each axis i, with the quantisation parameters that remain."""
    data = np.ascontiguousarray(np.asarray(value.data)[np.ix_(*index)])
    quant = value.type.quant
    if quant is not None and quant.axis is not None and len(quant.scale) > 1:
        kept = [int(i) for i in index[quant.axis]]
        quant = QuantParams(tuple(quant.scale[i] for i in kept), tuple(quant.zero_point[i] for i in kept), quant.axis)
    return inheriting(Constant(data, TensorType(data.shape, value.type.dtype, quant), value.span), [value])


def with_bias(layer: Call, bias: Int64) -> Call:
    """`layer` + bias for each output channel; without a node where the bias is zero."""
    if not bias.any():
        return layer
    data = bias.astype(np.dtype(tensor_type(layer).dtype))
    return call("nn.bias_add", [layer, const(data, span=layer.span)], span=layer.span)


def merged_bias(expr: Call, uses: Uses) -> Call:
    """An nn.bias_add over the one that `with_bias` has put under it: one of both, where no sum can overflow."""
    merged: Expr | None = merge_biases(expr, uses)
    assert merged is None or isinstance(merged, Call)
    return expr if merged is None else replace(merged, span=expr.span)
