"""Converters of element-wise operators with two or more operands: sums, products, quotients, comparisons, selections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from math import prod

import numpy as np

from aot.frontend.tflite.convert import CLAMPS, EITHER, EVERY, Converter, Operator, converter, is_plain
from aot.frontend.tflite.retyped import LARGEST_HALF, legacy_uint8, rounded_to_half, widens_halves
from aot.ir.op import TypeRuleError
from aot.ir.type import TensorType
from aot.numerics.fixed_point import precision, quantize_multiplier, quotient, real_multiplier, round_half_away
from aot.op.common.layer import FLOAT_ACTIVATIONS
from aot.op.common.tensors import MOVABLE
from aot.op.math.arithmetic import BINARY, COMPARABLE, COMPARISONS, BinaryAttrs, CompareAttrs, Rescale, SelectAttrs
from aot.op.math.unary import BUCKETIZED, COMPLEX_PARTS, BucketizeAttrs, UnaryAttrs
from aot.op.qnn import arithmetic as qnn
from aot.op.qnn.quantize import DequantizeAttrs, QuantizeAttrs
from aot.relay.expr import Call, Constant, Expr, call
from aot.support.dtype import int_range, is_float

_CLAMPED = ("add", "subtract", "multiply", "divide")
"""Operators with a fused activation."""


def convert_plain(op: Operator, name: str) -> Expr:
    """The operator `name` on operands of one type, with the fused activation if the operator has that option."""
    a, b = (op.type(i, BINARY[name].dtypes) for i in range(2))
    activation = op.option("fused_activation_function") if name in _CLAMPED else "NONE"
    if activation not in CLAMPS:
        op.refuse(f"the fused activation {activation} is not supported")
    attrs = BinaryAttrs(*(FLOAT_ACTIVATIONS if is_float(a.dtype) and name in _CLAMPED else CLAMPS)[activation])
    if a.dtype != b.dtype:
        raise TypeRuleError(f"{a} and {b} are not supported")
    return op.call(name, op.operands(0, 1), attrs)


def add_halves(convert: Converter) -> Converter:
    """The converter of ADD or MUL, extended to float16: widened, and kept within the finite float16 numbers.

    The reference rounds before it clamps, which matters for a small negative number: it becomes -0.
    """

    def finite(x: Expr) -> Expr:
        assert isinstance(x, Call)
        assert isinstance(x.attrs, BinaryAttrs)
        assert x.attrs.lo is not None
        assert x.attrs.hi is not None
        low, high = max(x.attrs.lo, -LARGEST_HALF), min(x.attrs.hi, LARGEST_HALF)
        if low:
            return replace(x, attrs=BinaryAttrs(low, high))
        rounded = rounded_to_half(replace(x, attrs=BinaryAttrs()), x.span)
        return call("relu", [rounded], UnaryAttrs(lo=low, hi=high), span=x.span)

    return widens_halves(convert, then=finite)


def _power_by_squares(op: Operator) -> Expr | None:
    """x^n of float32 for one broadcast constant integer n >= 2, in the products of the reference, which rounds each
    (IntegerExponentPow in `optimized_ops.h`); None for everything else, which is powf.
    """
    base, shape, exponent = op.type(0), op.type(1).shape, op.input(1)
    if base.dtype != "float32" or prod(shape) != 1 or shape == base.shape or len(shape) > len(base.shape):
        return None
    n = float(exponent.data.reshape(())) if isinstance(exponent, Constant) else 0.0
    if not 2 <= n < 1 << 31 or n != int(n):
        return None
    x = op.operand(0)
    result = x
    for bit in f"{int(n):b}"[1:]:
        result = op.call("multiply", [result, result], BinaryAttrs())
        result = op.call("multiply", [result, x], BinaryAttrs()) if bit == "1" else result
    return result


def _binary_converter(opcode: str, name: str) -> None:
    halves = name in ("maximum", "minimum", "atan2")

    def convert(op: Operator) -> Expr:
        codes = name in ("maximum", "minimum")  # compared and moved as they are, whatever their scales
        if not codes and not is_plain(op.type(0), op.type(1)):
            op.refuse(f"quantised {op.type(0).dtype} is not supported here", code="E1202")
        a, b = op.type(0), op.type(1)
        if name == "atan2" and a.shape != b.shape:  # the reference compares ranks only, and reads past the smaller one
            op.refuse(f"{a} and {b} differ in shape; broadcast one of them in a separate layer", code="E1207")
        by_squares = _power_by_squares(op) if name == "power" else None
        return by_squares or convert_plain(op, name)

    dtypes, through = (*BINARY[name].dtypes, *["float16"] * halves), f"cast {name}" if halves else name
    converter(opcode, " ".join(dtypes), through)(widens_halves(convert) if halves else convert)


for _opcode, _name in (
    ("FLOOR_DIV", "floor_divide"),
    ("FLOOR_MOD", "floor_mod"),
    ("MAXIMUM", "maximum"),
    ("MINIMUM", "minimum"),
    ("ATAN2", "atan2"),
    ("POW", "power"),
    ("BITWISE_XOR", "bitwise_xor"),
    ("RIGHT_SHIFT", "right_shift"),
    ("LOGICAL_AND", "logical_and"),
    ("LOGICAL_OR", "logical_or"),
):
    _binary_converter(_opcode, _name)


def _rescale(op: Operator, type_: TensorType) -> Rescale:
    scale, zp = op.quant(type_)
    return Rescale(zp, *op.multiplier(type_.dtype, (scale,)))


def _comparison(name: str, opcode: str) -> None:
    @converter(opcode, " ".join((*COMPARABLE, "float16")), f"cast {name}")
    @widens_halves
    @legacy_uint8
    def convert(op: Operator) -> Expr:
        types, rescale = [op.type(i, COMPARABLE) for i in range(2)], None
        # LiteRT compares int16 values without rescaling, except for equality
        as_they_are = types[0].dtype == "int16" and op.oracle == "litert" and opcode not in ("EQUAL", "NOT_EQUAL")
        if not is_plain(*types) and not as_they_are:
            rescale = _rescale(op, types[0]), _rescale(op, types[1])
        return op.call(name, op.operands(0, 1), CompareAttrs(rescale))


for _name, (_, _opcode) in COMPARISONS.items():
    _comparison(_name, _opcode)


@converter("SELECT", EVERY, "select")
@converter("SELECT_V2", EVERY, "select")
def _select(op: Operator) -> Expr:
    """select; the older SELECT's vector of conditions selects along the first dimension."""
    cond, data, condition = op.type(0, ("bool",), what="a condition"), op.type(1, MOVABLE), op.operand(0)
    if op.opcode == "SELECT" and len(cond.shape) == 1 and len(data.shape) > 1:
        condition = op.reshaped(condition, (*cond.shape, *[1] * (len(data.shape) - 1)))
    return op.call("select", [condition, op.operand(1), op.operand(2)], SelectAttrs(op.result_type().quant))


@converter("BUCKETIZE", "int32 int64 float32", "bucketize")
def _bucketize(op: Operator) -> Expr:
    op.require_dtype(op.type(0), BUCKETIZED)
    boundaries = tuple(float(v) for v in op.option("boundaries"))
    if not boundaries or not np.isfinite(boundaries).all() or list(boundaries) != sorted(boundaries):
        op.refuse("its boundaries must be sorted numbers, at least one", code="E1122")
    return op.call("bucketize", [op.operand(0)], BucketizeAttrs(boundaries))


@converter("COMPLEX_ABS", "complex64", "complex_abs")
@converter("REAL", "complex64", "real")
@converter("IMAG", "complex64", "imag")
def _complex(op: Operator) -> Expr:
    """The operator of the same name."""
    op.require_dtype(op.type(0), {"complex64"})
    return op.call(COMPLEX_PARTS[op.opcode], [op.operand(0)], None)


def _through_float(op: Operator) -> Expr:
    """The sum of quantised values and numbers as float32, quantised again if the result is quantised.

    Files with such an ADD exist; the reference has no kernel for it: it adds quantised values of one scale.
    """
    out = op.result_type()
    sides: list[Expr] = []
    for i in range(2):
        type_, x = op.type(i, ("float32", "int8")), op.operand(i)
        if type_.dtype != "float32":
            x = op.call("qnn.dequantize", [x], DequantizeAttrs(*op.quant(type_)))
        sides.append(x)
    total = op.call("add", sides, BinaryAttrs())
    if out.dtype == "float32":
        return total
    scale, zp = op.quant(out, what="the result")
    return op.call("qnn.quantize", [total], QuantizeAttrs(scale, zp, *int_range(out.dtype), out.dtype))


@converter("ADD", "int8 uint8 int16 int32 int64 float16 float32", "add cast qnn.add relu")
@add_halves
@legacy_uint8
def _add(op: Operator) -> Expr:
    """add of numbers, qnn.add of quantised values."""
    dtypes = {t.dtype for t in (op.type(0), op.type(1), op.result_type())}
    if dtypes == {"int8", "float32"}:
        return _through_float(op)
    if is_plain(op.type(0), op.type(1)):
        return convert_plain(op, "add")
    return op.call("qnn.add", op.operands(0, 1), _add_attrs(op, sign=1))


@converter("SUB", "int8 uint8 int16 int32 int64 float32", "qnn.add subtract")
@legacy_uint8
def _sub(op: Operator) -> Expr:
    """subtract of numbers, qnn.add with a negative second operand of quantised values."""
    if is_plain(op.type(0), op.type(1)):
        return convert_plain(op, "subtract")
    return op.call("qnn.add", op.operands(0, 1), _add_attrs(op, sign=-1))


def _exponent(scale: float) -> int | None:
    """log2 of a scale that is a power of two (CheckedLog2: to within a thousandth)."""
    exact = math.log2(np.float32(scale))
    nearest = round_half_away(exact)
    return nearest if abs(exact - nearest) < 1e-3 else None


def _pot_shifts(op: Operator, types: Sequence[TensorType]) -> tuple[int, int] | None:
    """Right shifts of int16 operands that are added by shifting; None for the general method."""
    if types[0].dtype != "int16" or not op.option("pot_scale_int16"):
        return None
    logs = [_exponent(op.quant(t)[0]) for t in types]
    if logs[0] is None or logs[1] is None or logs[2] is None:
        return None
    shifts = logs[2] - logs[0], logs[2] - logs[1]
    if min(shifts) != 0:
        op.refuse("power-of-two scales are not supported unless one equals the result's (TFLite rejects them too)", code="E1226")
    return shifts


def _add_attrs(op: Operator, *, sign: int) -> qnn.AddAttrs:
    """The multipliers as AddPrepare and PrepareGeneralSubOp compute them."""
    types = (op.type(0), op.type(1), op.result_type())
    (scale_a, zp_a), (scale_b, zp_b), (scale, zp) = op.quants(types, qnn.ADD_LEFT_SHIFT)
    limits, quant, pot = op.fused_range(types[2]), types[2].quant, _pot_shifts(op, types)
    if pot is not None:
        half = 1 << 30
        return qnn.AddAttrs((0, 0), (half, half), (-pot[0], -pot[1]), half, 1, 0, *limits, quant, 1, sign)
    attrs = qnn.add_attrs(types[0].dtype, (scale_a, scale_b, scale), (zp_a, zp_b, zp), limits=limits, sign=sign, quant=quant)
    if attrs is None:
        op.refuse("the output's scale is too small for the inputs' scales", code="E1226")
    return attrs


def sum_attrs(op: Operator) -> qnn.AddNAttrs:
    """The parameters of a sum of quantised values with the type of operand 0, in double precision as TFLM computes them."""
    out = op.result_type(0, {"int8"})
    (scale_in, zp_in), (scale, zp) = op.quant(op.type(0)), op.quant(out, what="the result")
    real = real_multiplier("ADD_N", "int8", (2.0, scale_in), (2.0 ** (qnn.SUM_SHIFT + 1), scale), oracle="tflm")
    multiplier, shift = quantize_multiplier(real)
    if shift > 0:
        op.refuse("the output's scale is too small for the inputs' scale", code="E1226")
    return qnn.AddNAttrs(zp_in, multiplier, shift, zp, out.quant)


@converter("ADD_N", "int8 int32 float32", "add qnn.add_n", oracle="LiteRT; TFLM for int8")
def _add_n(op: Operator) -> Expr:
    """add of add of ... of numbers, qnn.add_n of quantised values."""
    types, operands = op.types(*range(len(op.inputs))), op.operands(*range(len(op.inputs)))
    for type_ in types:
        op.require_dtype(type_, ("float32", "int32", "int8"))
        if (type_.shape, type_.dtype) != (types[0].shape, types[0].dtype):
            raise TypeRuleError(f"a sum of {types[0]} and {type_} is not supported")
        op.require_same_quant(types[0], type_)
    if types[0].dtype == "int8":
        return op.call("qnn.add_n", operands, sum_attrs(op))
    attrs = BinaryAttrs(*FLOAT_ACTIVATIONS["NONE"]) if types[0].dtype == "float32" else BinaryAttrs()
    return reduce(lambda total, x: op.call("add", [total, x], attrs), operands)


@converter("MUL", "int8 uint8 int16 int32 uint32 int64 float16 float32", "cast multiply qnn.multiply relu", oracle=EITHER)
@add_halves
@legacy_uint8
def _multiply(op: Operator) -> Expr:
    """multiply of numbers, qnn.multiply of quantised values."""
    types = (op.type(0), op.type(1), op.result_type())
    if is_plain(*types[:2]):
        return convert_plain(op, "multiply")
    (scale_a, zp_a), (scale_b, zp_b), (scale, zp) = op.quants(types, qnn.CODES, may_be_zero=True)
    multiplier = op.multiplier(types[0].dtype, (scale_a, scale_b), (scale,))
    attrs = qnn.MultiplyAttrs((zp_a, zp_b), *multiplier, zp, *op.fused_range(types[2]), types[2].quant)
    return op.call("qnn.multiply", op.operands(0, 1), attrs)


@converter("DIV", "int8 uint8 int16 int32 float32", "divide qnn.divide", oracle=EITHER)
@legacy_uint8
def _divide(op: Operator) -> Expr:
    """divide of numbers, qnn.divide of quantised values."""
    types = (op.type(0), op.type(1), op.result_type())
    if is_plain(*types[:2]):
        return convert_plain(op, "divide")
    (scale_a, zp_a), (scale_b, zp_b), (scale, zp) = op.quants(types, qnn.BITS, may_be_zero=True)
    real = op.real_multiplier(types[0].dtype, (scale_a,), (scale_b, scale))
    multiplier, shift = quantize_multiplier(min(real, 2.0**31))
    if shift > 31:
        op.refuse("the output's scale is too small for the inputs' scales", code="E1226")
    limits = op.fused_range(types[2])
    attrs = qnn.DivideAttrs((zp_a, zp_b), multiplier, shift, zp, *limits, types[2].quant, op.oracle == "tflm")
    return op.call("qnn.divide", op.operands(0, 1), attrs)


@converter(
    "SQUARED_DIFFERENCE", "int8 int16 int32 float32", "qnn.squared_difference squared_difference", oracle="LiteRT; TFLM for int16"
)
def _squared_difference(op: Operator) -> Expr:
    """squared_difference of numbers, qnn.squared_difference of quantised values."""
    types = (op.type(0), op.type(1), op.result_type())
    if is_plain(*types[:2]):
        return convert_plain(op, "squared_difference")
    (scale_a, zp_a), (scale_b, zp_b), (scale, zp) = op.quants(types, qnn.DIFFERENCE_LEFT_SHIFT)
    twice_max = 2.0 * max(scale_a, scale_b)
    op.require_symmetric(types[0].dtype, zp_a, zp_b, zp, by="TFLM")
    how = precision(op.opcode, types[0].dtype, oracle=op.oracle)
    m, s = quantize_multiplier(quotient((twice_max, twice_max), (4.0 ** qnn.DIFFERENCE_LEFT_SHIFT[types[0].dtype], scale), how))
    if s > (0 if types[0].dtype == "int8" and op.oracle == "litert" else 30):
        op.refuse("the output's scale is too small for the inputs' scales", code="E1226")
    (m_a, s_a), (m_b, s_b) = (quantize_multiplier(quotient((x,), (twice_max,), how)) for x in (scale_a, scale_b))
    attrs = qnn.SquaredDifferenceAttrs((zp_a, zp_b), (m_a, m_b), (s_a, s_b), m, s, zp, types[2].quant)
    return op.call("qnn.squared_difference", op.operands(0, 1), attrs)


# STABLEHLO_ADD, _MULTIPLY, _MAXIMUM, _MINIMUM, _AND and _SHIFT_LEFT of TFLite: plain numbers of one shape.
#
# Integers wrap.  A shift distance is 0 to 31, whatever the width of the type; values outside are clamped (the reference is
# undefined there).  Of a NaN and a number, maximum and minimum are the first operand, unlike in MAXIMUM and MINIMUM.
# Oracles: `kernels/stablehlo_elementwise.h`, `stablehlo_shift_left.cc`; the last two operators are only in LiteRT's full set of
# kernels.


@converter("STABLEHLO_ADD", "int32 int64 float16 float32", "add cast")
@converter("STABLEHLO_MULTIPLY", "int32 int64 float16 float32", "cast multiply")
@converter("STABLEHLO_MAXIMUM", "int32 int64 float16 float32", "cast less select")
@converter("STABLEHLO_MINIMUM", "int32 int64 float16 float32", "cast less select")
@widens_halves
def _stablehlo(op: Operator) -> Expr:
    """The arithmetic operator, or a choice by a comparison."""
    a, b = op.type(0, ("int32", "int64", "float32")), op.type(1)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        op.refuse(f"{a} and {b} differ", code="E1207")
    x, y = op.operands(0, 1)
    if op.opcode in ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY"):
        return op.call("add" if op.opcode == "STABLEHLO_ADD" else "multiply", [x, y], BinaryAttrs())
    first, second = (x, y) if op.opcode == "STABLEHLO_MAXIMUM" else (y, x)
    return op.call("select", [op.call("less", [first, second], CompareAttrs()), y, x], SelectAttrs())


@converter("STABLEHLO_AND", "bool int8 uint8 int16 uint16 int32 uint32 int64", "bitwise_and logical_and")
@converter("STABLEHLO_SHIFT_LEFT", "int8 int16 int32", "left_shift")
def _stablehlo_bits(op: Operator) -> Expr:
    """Bit by bit."""
    a, b = op.type(0), op.type(1)
    name = "left_shift" if op.opcode == "STABLEHLO_SHIFT_LEFT" else "logical_and" if a.dtype == "bool" else "bitwise_and"
    op.require_dtype(a, ("bool",) if name == "logical_and" else BINARY[name].dtypes)
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        op.refuse(f"{a} and {b} differ", code="E1207")
    return op.call(name, op.operands(0, 1), BinaryAttrs())
