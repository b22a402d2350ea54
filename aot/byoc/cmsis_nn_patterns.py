"""Patterns of the canonical graph that CMSIS-NN's int8 functions compute exactly.

Its requantisation rounds twice, as in gemmlowp: so do convolutions of TensorFlow Lite, but fully connected layers only in
TFLM (`--oracle tflm`).  A layer that rounds once, or that the functions do not support, stays ours; `refusal` says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.ir.op import Op
from aot.ir.type import TensorType
from aot.relay.dataflow_pattern import is_constant, is_op, wildcard
from aot.relay.expr import Call, Constant, Expr, Function, post_order
from aot.relay.transform.partition import Entry, register_pattern_table

COMPILER = "cmsis-nn"

SOFTMAX_DEPTH = 1 << 9
"""From this size on a sum of exponentials may have fewer than four leading zeros."""

LAYERS = ("nn.conv2d", "nn.depthwise_conv2d", "nn.dense")


def split(root: Call) -> tuple[Call, Constant | None, Call]:
    """(layer, bias, requantize) of a layer's composite."""
    inner = root.args[0]
    bias = None
    if isinstance(inner, Call) and str(inner.op) == "nn.bias_add":
        assert isinstance(inner.args[1], Constant)
        bias, inner = inner.args[1], inner.args[0]
    assert isinstance(inner, Call)
    return inner, bias, root


def layer_refusal(root: Call) -> str:
    """Why a layer is not CMSIS-NN's; empty if it is."""
    layer, bias, requantize = split(root)
    data, weight = (a.type for a in layer.args)
    assert isinstance(data, TensorType)
    assert isinstance(weight, TensorType)
    kinds = data.dtype, weight.dtype, requantize.attrs.dtype, layer.attrs.acc_dtype
    if kinds != ("int8", "int8", "int8", "int32") or (bias is not None and bias.type.dtype != "int32"):
        return f"{data.dtype} data with {weight.dtype} weights"
    if requantize.attrs.rounding != "double":
        return "its result is rounded once, but CMSIS-NN rounds twice (as does --oracle tflm)"
    if layer.attrs.weight_zp:
        return "its weights have a zero point"
    if str(layer.op) == "nn.dense":
        return "its weights have a scale for each channel" if requantize.attrs.per_channel else ""
    if layer.attrs.input_zp and any(layer.attrs.padding) and layer.attrs.pad_value != layer.attrs.input_zp:
        return "its padding is not the data's zero point"
    if not -128 <= layer.attrs.pad_value <= 127:
        return "its padding is not an int8 value"
    return ""


def _takes_layer(root: Call) -> bool:
    return not layer_refusal(root)


def _takes_pool(root: Call) -> bool:
    data = root.args[0].type
    if not isinstance(data, TensorType) or data.dtype != "int8" or data.shape[0] != 1:
        return False
    return all(p < k for p, k in zip(root.attrs.padding, (*root.attrs.pool_size, *root.attrs.pool_size), strict=True))


def _takes_add(root: Call) -> bool:
    a, b = (x.type for x in root.args)
    same = isinstance(a, TensorType) and isinstance(b, TensorType) and (a.shape, a.dtype, b.dtype) == (b.shape, "int8", "int8")
    constant = any(isinstance(x, Constant) for x in root.args)
    return same and not constant and root.args[0] is not root.args[1] and root.attrs.sign == 1 and root.attrs.left_shift == 20


def _takes_softmax(root: Call) -> bool:
    """Whether the library accepts a softmax: for long int8 rows it shifts by more than 31."""
    data = root.args[0].type
    assert isinstance(data, TensorType)
    return root.attrs.out_dtype == "int16" or data.shape[-1] < SOFTMAX_DEPTH


def _layer(name: str) -> Entry:
    layer = is_op(name)(wildcard(), is_constant())
    biased = layer.optional(lambda x: is_op("nn.bias_add")(x, is_constant()))
    return f"{COMPILER}.{name.removeprefix('nn.')}", is_op("qnn.requantize")(biased), _takes_layer


@register_pattern_table(COMPILER)
def pattern_table() -> Sequence[Entry]:
    """Layers with bias and requantisation, pooling, addition, softmax."""
    return [
        *map(_layer, LAYERS),
        (f"{COMPILER}.avg_pool2d", is_op("nn.avg_pool2d")(wildcard()), _takes_pool),
        (f"{COMPILER}.max_pool2d", is_op("nn.max_pool2d")(wildcard()), _takes_pool),
        (f"{COMPILER}.add", is_op("qnn.add")(wildcard(), wildcard()), _takes_add),
        (f"{COMPILER}.softmax", is_op("qnn.softmax")(wildcard()), _takes_softmax),
    ]


def refusals(main: Function) -> list[str]:
    """A line for each layer of a graph that stays ours, with the reason."""
    lines = []
    for expr in post_order(main.body):
        if isinstance(expr, Call) and expr.op == Op("qnn.requantize") and _is_layer(expr):
            reason = layer_refusal(expr)
            if reason:
                lines.append(f"{expr.span or split(expr)[0].op}: {reason}")
    return lines


def _is_layer(expr: Expr) -> bool:
    return any(entry[1].match(expr) for entry in (_layer(n) for n in LAYERS))
