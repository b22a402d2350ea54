"""Drawn element-wise groups: sums, products, tables and changes of quantisation."""

from __future__ import annotations

import numpy as np

from aot.ir.type import TensorType
from aot.numerics.fixed_point import quantize_multiplier, softmax_scaling
from aot.op.qnn.arithmetic import AddAttrs, MultiplyAttrs
from aot.op.qnn.lut import LutAttrs
from aot.op.qnn.quantize import ClipAttrs, DequantizeAttrs, QuantizeAttrs, Requantize8Attrs
from aot.op.qnn.softmax import SoftmaxAttrs
from aot.relay.expr import Expr, Var, call, const
from aot.support.dtype import int_range
from tests.topi.drawn import pick
from tests.topi.groups import data_of

Group = tuple[tuple[Var, ...], Expr]
VECTORS = ("add", "multiply", "dequantize", "lut", "requantize8", "quantize", "softmax")
"""Kinds for which there are kernels of MVE."""
FLAT = ("add", "tables", "lut", "clip", "requantize8", "quantize", "dequantize")
"""Kinds that `generic.elementwise` takes."""


def draw_elementwise(kind: str, rng: np.random.Generator) -> Group:
    """A group of one kind on a tensor of any small size."""
    if kind in ("add", "multiply"):
        return _binary(kind, rng)
    if kind == "softmax":
        return _softmax(rng)
    shape = _shape(rng)
    scale, zp = float(np.float32(10.0 ** rng.uniform(-4, 1))), pick(rng, -128, 0, 127, 7)
    dtype = ("int8", "uint8")[pick(rng, 0, 1)]
    x = Var("x", TensorType(shape, "float32" if kind == "quantize" else "int8"))
    match kind:
        case "quantize":
            dtype = "int16" if rng.random() < 0.3 else dtype
            scale = 2.0 ** pick(rng, -8, -7, -3, 0, 1) if rng.random() < 0.2 else scale
            zp += 128 * (dtype == "uint8")
            low, high = int_range(dtype)
            limits = (low, high) if rng.random() < 0.7 else (max(zp - 30, low), min(zp + 40, high))
            return (x,), call("qnn.quantize", [x], QuantizeAttrs(scale, zp, *limits, dtype))
        case "dequantize":
            x = Var("x", TensorType(shape, dtype))
            return (x,), call("qnn.dequantize", [x], DequantizeAttrs(scale, zp))
        case "clip":
            low = int(rng.integers(-128, 128))
            return (x,), call("clip", [x], ClipAttrs(low, int(rng.integers(low, 128))))
        case "requantize8":
            multiplier, shift = (1 << 30, 1) if rng.random() < 0.2 else quantize_multiplier(float(rng.uniform(0.05, 3)))
            out_dtype = ("int8", "uint8")[pick(rng, 0, 0, 1)]
            input_zp = pick(rng, -128, 0, -4, 127) + 128 * (dtype == "uint8")
            zp += 128 * (out_dtype == "uint8")
            low, high = int_range(out_dtype)
            numbers = Requantize8Attrs(input_zp, multiplier, shift, zp, low if rng.random() < 0.7 else zp, high, out_dtype)
            x = Var("x", TensorType(shape, dtype))
            return (x,), call("qnn.requantize8", [x], numbers)
        case "tables":
            y = Var("y", TensorType(shape, "int8"))
            attrs = _sum(rng, (pick(rng, -128, 0, 127), 3), zp)
            return (x, y), call("qnn.add", [call("qnn.lut", [v], _table(rng)) for v in (x, y)], attrs)
        case _:
            return (x,), call("qnn.lut", [x], _table(rng))


def _softmax(rng: np.random.Generator) -> Group:
    """Rows of any length: of two results, of some vectors, of so many that equal elements have a sum of 512 and more."""
    depth = pick(rng, 1, 2, 3, 4, 5, 8, 10, 12, 15, 16, 17, 31, 33, 65, 100, 600)
    x = Var("x", TensorType((1 if depth > 65 else pick(rng, 1, 1, 2, 5), depth), "int8"))
    attrs = SoftmaxAttrs(*softmax_scaling(float(np.float32(10.0 ** rng.uniform(-5, 0.5)))), ("int8", "int16")[pick(rng, 0, 0, 1)])
    return (x,), call("qnn.softmax", [x], attrs)


def _table(rng: np.random.Generator) -> LutAttrs:
    return LutAttrs(tuple(map(int, rng.integers(-128, 128, 256))))


def _shape(rng: np.random.Generator) -> tuple[int, ...]:
    """Any small size, those around words and vectors more often."""
    channels = pick(rng, 1, 3, 4, 7, 8, 15, 16, 17, 19, 24, 31, 32, 33, 40, 65)
    return (1, pick(rng, 1, 1, 2, 3, 5), pick(rng, 1, 1, 3, 4), channels)


def _binary(kind: str, rng: np.random.Generator) -> Group:
    """ADD and MUL; the second operand may be constant, the first one again, or repeated along the outer axes."""
    whole = _shape(rng)
    other = whole if rng.random() < 0.6 else (1, 1, 1, whole[3])
    zps = (pick(rng, -128, 0, 127, -7), pick(rng, -128, 0, 127, 9))
    zp = pick(rng, -128, 0, 127, 5)
    x, y = Var("x", TensorType(whole, "int8")), Var("y", TensorType(other, "int8"))
    what = rng.random()
    second: Expr = y if what < 0.7 else x if what < 0.75 else const(data_of(y, pick(rng, *range(9))))
    params = (x, y) if second is y else (x,)
    operands: list[Expr] = [x, second] if rng.random() < 0.5 else [second, x]
    if kind == "multiply":
        clip = (-128, 127) if rng.random() < 0.6 else (min(zp, -100), max(zp, 90)) if rng.random() < 0.5 else (zp, 127)
        multiplier, shift = int(rng.integers(1 << 30, 1 << 31)), pick(rng, 0, -3, -7, -8, -9, -15)
        return params, call("qnn.multiply", operands, MultiplyAttrs(zps, multiplier, shift, zp, *clip))
    return params, call("qnn.add", operands, _sum(rng, zps, zp))


def _sum(rng: np.random.Generator, zps: tuple[int, int], zp: int) -> AddAttrs:
    """Scales as a converter has them: the larger operand's is half the range, so that its multiplier is 2^30."""
    own, other, result = (float(v) for v in rng.uniform(0.01, 0.2, 3))
    if rng.random() < 0.3:
        other = own
    twice = 2 * max(own, other)
    numbers = [quantize_multiplier(v) for v in (own / twice, other / twice, twice / ((1 << 20) * result))]
    (first, by), (second, less), (last, shift) = numbers
    clip = (-128, 127) if rng.random() < 0.8 else (zp, 127)
    return AddAttrs(zps, (first, second), (by, less), last, shift, zp, *clip)
