"""Element-wise operators on two or three tensors of plain numbers: arithmetic, comparisons, select."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import QuantParams, TensorType, Type
from aot.numerics.elementary import ATAN2, FMOD, POW, atan2f, powf
from aot.numerics.fixed_point import multiply_by_quantized_multiplier, named, tir_multiply_by_quantized_multiplier
from aot.op.common.operator import Index, elementwise, operator, register
from aot.op.common.tensors import broadcast_at, broadcast_index, broadcast_type, np_bounded, tensors_of, tir_bounded
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, itemsize
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, clamp, equal, imm, logical_and, minimum, select

# add, subtract, multiply, ...: arithmetic of two tensors of plain numbers (float32, int32, int64 ...) with broadcasting.
#
# Integers wrap around; a division by zero, which the reference reports as an error, gives 0.  Fused activations clamp.
# Oracles: `reference_ops::BroadcastAdd6DSlow`, `BroadcastSubSlow`, `BroadcastMul6DSlow`, `BroadcastDivSlow`,
# `FloorDiv`, `FloorMod`, `MaximumMinimumBroadcastSlow`, `EvalSquaredDifference`, `EvalLogicalOr` ...  (`floor_mod` of
# floats: fmod with the sign of the divisor.)

NUMBERS = ("float32", "int32", "int64")
BITS = ("int8", "uint8", "int16", "uint16", "int32", "uint32")
ANY = (*NUMBERS, "int8", "uint8", "int16", "uint32")


@dataclass(frozen=True, slots=True)
class BinaryAttrs:
    """Bounds of a fused activation, None if there is none."""

    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True, slots=True)
class Binary:
    """One operator: its line in `aot ops`, element types, meaning in numpy on equal types, and the expression of one element.

    `least_divisor`: the smallest meaningful right operand of integers; None if all are meaningful.
    """

    doc: str
    dtypes: tuple[str, ...]
    evaluate: Callable[[Array, Array], Array]
    rule: Callable[[IRBuilder, Expr, Expr], Expr]
    least_divisor: int | None = None


def _wrapping(op: str) -> Callable[[IRBuilder, Expr, Expr], Expr]:
    """+, - or *: signed integers through the unsigned type of the same width, in which overflow wraps."""

    def rule(_b: IRBuilder, x: Expr, y: Expr) -> Expr:
        if is_float(x.dtype):
            return binop(op, x, y)
        wide = "uint64" if x.dtype == "int64" else "uint32"
        return cast(x.dtype, binop(op, cast(wide, x), cast(wide, y)))

    return rule


def _divisor(b: IRBuilder, x: Expr, y: Expr) -> tuple[Expr, Expr, Expr]:
    """(x, y, whether y is a usable divisor), in a type in which no quotient overflows."""
    wide = x.dtype if x.dtype in ("int64", "uint32") else "int64"
    x, y = named(b, "x", cast(wide, x)), named(b, "y", cast(wide, y))
    usable = binop("!=", y, 0)
    return x, y, usable if wide != "int64" or x.dtype != "int64" else logical_and(usable, binop("!=", y, -1))


def _div(b: IRBuilder, x: Expr, y: Expr) -> Expr:
    return x / y if is_float(x.dtype) else _quotient(b, x, y, floor=False)


def _floor_div(b: IRBuilder, x: Expr, y: Expr) -> Expr:
    return _float_floor_div(b, x, y) if is_float(x.dtype) else _quotient(b, x, y, floor=True)


def _quotient(b: IRBuilder, x: Expr, y: Expr, *, floor: bool) -> Expr:
    """The quotient of integers, towards zero or `floor`; 0 if the divisor is 0."""
    dtype = x.dtype
    x, y, usable = _divisor(b, x, y)
    value = x / y
    if floor:
        opposite = binop("!=", x < 0, y < 0)
        value = value - select(logical_and(binop("!=", x % y, 0), opposite), imm(1, x.dtype), imm(0, x.dtype))
    negated = cast(x.dtype, imm(0, "uint64") - cast("uint64", x)) if x.dtype == "int64" else x
    return cast(dtype, select(usable, value, select(equal(y, 0), imm(0, x.dtype), negated)))


def _float_floor_div(b: IRBuilder, x: Expr, y: Expr) -> Expr:
    """floor(x / y), with quotient and floor in double precision, as in `reference/floor_div.h`."""
    quotient = b.let("quotient", cast("float64", x) / cast("float64", y))
    zero, one, large = (imm(v, "float64") for v in (0.0, 1.0, 2.0**52))
    cut = logical_and(logical_and(quotient > zero - large, quotient < large), binop("!=", quotient, zero))
    part = b.let("part", select(cut, quotient, zero))
    whole = b.let("whole", cast("float64", cast("int64", part)))
    return cast("float32", select(cut, select(whole > part, whole - one, whole), quotient))


def _floor_mod(b: IRBuilder, x: Expr, y: Expr) -> Expr:
    if is_float(x.dtype):
        x, y = named(b, "x", x), named(b, "y", y)
        remainder = b.let("rest", FMOD(x, y))
        zero = imm(0.0, x.dtype)
        wrong = logical_and(binop("!=", remainder, zero), binop("!=", y < zero, remainder < zero))
        return select(wrong, remainder + y, remainder)
    dtype = x.dtype
    x, y, usable = _divisor(b, x, y)
    rest = x % y
    wrong = logical_and(binop("!=", rest, 0), binop("!=", y < 0, rest < 0))
    return cast(dtype, select(usable, select(wrong, rest + y, rest), imm(0, x.dtype)))


def _np_div(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    safe = np.where(b == 0, 1, b).astype(np.int64)
    wide = a.astype(np.int64)
    quotient = np.sign(wide) * np.sign(safe) * (np.abs(wide) // np.abs(safe))
    return np.asarray(np.where(b == 0, 0, quotient)).astype(a.dtype)


def _np_floor_div(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.floor(a.astype(np.float64) / b.astype(np.float64)), a.dtype)
    return np.asarray(np.floor_divide(a, b))


def _np_floor_mod(a: Array, b: Array) -> Array:
    remainder = np.fmod(a, b)
    return np.asarray(np.where((remainder != 0) & ((b < 0) != (remainder < 0)), remainder + b, remainder))


def _extreme(op: str) -> Callable[[IRBuilder, Expr, Expr], Expr]:
    def rule(b: IRBuilder, x: Expr, y: Expr) -> Expr:
        x, y = named(b, "x", x), named(b, "y", y)
        return select(binop(op, x, y), x, y)

    return rule


def _squared_difference(b: IRBuilder, x: Expr, y: Expr) -> Expr:
    difference = named(b, "difference", _wrapping("-")(b, x, y))
    return _wrapping("*")(b, difference, difference)


_BEYOND = 1 << 31


def _np_power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return powf(a, b)
    wide = np.power(a.astype(np.float64), b.astype(np.float64))
    inside = np.abs(wide) < _BEYOND
    return np.asarray(np.where(inside, np.trunc(np.where(inside, wide, 0)), -_BEYOND)).astype(np.int32)


def _power(b: IRBuilder, x: Expr, y: Expr) -> Expr:
    """x to the power of y.  Integers: by squaring in 64 bits; what an int32 cannot hold becomes its lowest value."""
    if is_float(x.dtype):
        return POW(x, y)
    exponent = b.let("exponent", y)
    base = b.local("base", (1,), "int64", init=cast("int64", x))
    acc = b.local("power", (1,), "int64", init=imm(1, "int64"))
    limit = imm(_BEYOND, "int64")
    with b.for_("bit", 31) as bit:
        factor = select(equal((exponent >> bit) & 1, 1), base[0], imm(1, "int64"))
        b.store(acc, 0, clamp(acc[0] * factor, -_BEYOND, _BEYOND))
        b.store(base, 0, minimum(base[0] * base[0], limit))
    negative = logical_and(exponent < 0, binop("!=", x, 1))
    inverse = select(equal(x, -1), select(equal(exponent & 1, 1), imm(-1), imm(1)), select(equal(x, 0), imm(-_BEYOND), imm(0)))
    return select(negative, inverse, cast("int32", select(equal(acc[0], limit), imm(-_BEYOND, "int64"), acc[0])))


def _right_shift(b: IRBuilder, x: Expr, y: Expr) -> Expr:
    """Distances outside the type's width are clamped."""
    most = 8 * itemsize(x.dtype) - 1
    wide = x.dtype if itemsize(x.dtype) >= 4 else "int32"
    distance = clamp(cast("int64", y), 0, most)
    return cast(x.dtype, cast(wide, x) >> cast(wide, distance))


def _np_right_shift(a: Array, b: Array) -> Array:
    most = 8 * a.dtype.itemsize - 1
    return np.asarray(a.astype(np.int64) >> np.clip(b.astype(np.int64), 0, most)).astype(a.dtype)


def _left_shift(b: IRBuilder, x: Expr, y: Expr) -> Expr:
    """Distances outside 32 bits are clamped."""
    distance = clamp(cast("int32", y), 0, 31)
    return cast(x.dtype, cast("uint32", x) << cast("uint32", distance))


def _np_left_shift(a: Array, b: Array) -> Array:
    return np.asarray(a.astype(np.int64) << np.clip(b.astype(np.int64), 0, 31)).astype(a.dtype)


def _bitwise(op: str) -> Callable[[IRBuilder, Expr, Expr], Expr]:
    def rule(_b: IRBuilder, x: Expr, y: Expr) -> Expr:
        wide = "uint64" if itemsize(x.dtype) == 8 else "uint32"
        return cast(x.dtype, binop(op, cast(wide, x), cast(wide, y)))

    return rule


BINARY: dict[str, Binary] = {
    "add": Binary("ADD; float32, int32, int64", (*NUMBERS, "int16"), lambda a, b: a + b, _wrapping("+")),
    "subtract": Binary("SUB; float32, int32, int64", (*NUMBERS, "int16"), lambda a, b: a - b, _wrapping("-")),
    "multiply": Binary("MUL; float32, int32, int64, uint32", (*NUMBERS, "int16", "uint32"), lambda a, b: a * b, _wrapping("*")),
    "divide": Binary("DIV; float32, int32", ("float32", "int32"), _np_div, _div, 1),
    "floor_divide": Binary(
        "FLOOR_DIV; float32, int32, int16, int8", ("float32", "int32", "int16", "int8"), _np_floor_div, _floor_div, 1
    ),
    "floor_mod": Binary(
        "FLOOR_MOD; float32, int64, int32, int16, int8",
        ("float32", "int32", "int64", "int16", "int8"),
        _np_floor_mod,
        _floor_mod,
        1,
    ),
    "maximum": Binary(
        "MAXIMUM; all numbers, or quantised values of one quantisation", ANY, lambda a, b: np.where(a > b, a, b), _extreme(">")
    ),
    "minimum": Binary(
        "MINIMUM; all numbers, or quantised values of one quantisation", ANY, lambda a, b: np.where(a < b, a, b), _extreme("<")
    ),
    "squared_difference": Binary(
        "SQUARED_DIFFERENCE; float32, int32", ("float32", "int32"), lambda a, b: (a - b) * (a - b), _squared_difference
    ),
    "atan2": Binary("ATAN2; float32", ("float32",), atan2f, lambda _b, x, y: ATAN2(x, y)),
    "power": Binary("POW; float32, int32", ("float32", "int32"), _np_power, _power, 0),
    "bitwise_xor": Binary("BITWISE_XOR; all integers", BITS, np.bitwise_xor, _bitwise("^")),
    "bitwise_and": Binary("STABLEHLO_AND; all integers", (*BITS, "int64"), np.bitwise_and, _bitwise("&")),
    "left_shift": Binary("STABLEHLO_SHIFT_LEFT; int8, int16, int32", ("int8", "int16", "int32"), _np_left_shift, _left_shift),
    "right_shift": Binary("RIGHT_SHIFT; all integers", BITS, _np_right_shift, _right_shift),
    "logical_and": Binary("LOGICAL_AND; bool", ("bool",), np.logical_and, lambda _b, x, y: logical_and(x, y)),
    "logical_or": Binary("LOGICAL_OR; bool", ("bool",), np.logical_or, lambda _b, x, y: binop("||", x, y)),
}
"""By name."""


def _register_binary(name: str, binary: Binary) -> None:
    def infer_type(types: Sequence[Type], _attrs: BinaryAttrs) -> Type:
        a, b = tensors_of(types, 2)
        return broadcast_type(a, b, name=name, dtypes=binary.dtypes, quant=a.quant)

    def evaluate(a: Array, b: Array, *, attrs: BinaryAttrs, out_type: TensorType) -> Array:
        with np.errstate(all="ignore"):
            result = np.asarray(binary.evaluate(a, b))
        return np_bounded(result, attrs.lo, attrs.hi).astype(a.dtype).reshape(out_type.shape)

    def element(attrs: BinaryAttrs, b: IRBuilder, i: Index, *tensors: TensorFn, out_type: TensorType) -> Expr:
        return tir_bounded(b, binary.rule(b, *(broadcast_at(b, t, i) for t in tensors)), attrs.lo, attrs.hi)

    def domain(types: Sequence[Type], _attrs: object) -> dict[int, tuple[float, float]]:
        _, divisor = tensors_of(types, 2)
        least = binary.least_divisor
        return {} if least is None or is_float(divisor.dtype) else {1: (least, int_range(divisor.dtype)[1])}

    register(
        name,
        binary.doc,
        [("a", "numbers", "the left operand"), ("b", "as a", "the right operand; shapes broadcast")],
        OpPattern.BROADCAST,
        attrs=BinaryAttrs,
        infer_type=infer_type,
        evaluate=evaluate,
        te=elementwise(element),
        domain=None if binary.least_divisor is None else domain,
    )


for _name, _binary in BINARY.items():
    _register_binary(_name, _binary)


# equal, less, ...: comparisons of two tensors with broadcasting; bool.
#
# Quantised values of different quantisations are brought to one scale first: rescale((x - zp) << 8) by their own scale, double
# rounding; int16 only for EQUAL and NOT_EQUAL (and in TFLM for GREATER): LiteRT's LESS and similar compare int16 values without
# rescaling.  Oracles: `reference_ops::BroadcastComparison4DSlowImpl`, `ComparisonWithScaling` with the parameters of
# `comparisons.cc`.

COMPARABLE = ("float32", "int32", "int64", "int16", "int8", "uint8", "bool")
LEFT_SHIFT = 8


@dataclass(frozen=True, slots=True)
class Rescale:
    """(x - zero_point) << 8, times the scale."""

    zero_point: int
    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class CompareAttrs:
    """How the operands' quantised values are brought to one scale; None for plain numbers."""

    rescale: tuple[Rescale, Rescale] | None = None


def _scaled(x: Array, rescale: Rescale) -> Array:
    shifted = (x.astype(np.int64) - rescale.zero_point) << LEFT_SHIFT
    return np.asarray(multiply_by_quantized_multiplier(shifted, rescale.multiplier, rescale.shift))


def _tir_scaled(b: IRBuilder, x: Expr, rescale: Rescale) -> Expr:
    shifted = named(b, "x", (cast("int32", x) - rescale.zero_point) * (1 << LEFT_SHIFT))
    return named(b, "scaled", tir_multiply_by_quantized_multiplier(b, shifted, rescale.multiplier, rescale.shift))


COMPARISONS = {
    "equal": ("==", "EQUAL"),
    "not_equal": ("!=", "NOT_EQUAL"),
    "less": ("<", "LESS"),
    "less_equal": ("<=", "LESS_EQUAL"),
    "greater": (">", "GREATER"),
    "greater_equal": (">=", "GREATER_EQUAL"),
}
"""Operator -> (in C, in TFLite)."""


def _register_comparison(name: str, symbol: str, opcode: str) -> None:
    function = getattr(np, name)

    def evaluate(a: Array, b: Array, *, attrs: CompareAttrs, out_type: TensorType) -> Array:
        if attrs.rescale is not None:
            a, b = _scaled(a, attrs.rescale[0]), _scaled(b, attrs.rescale[1])
        return np.asarray(function(a, b)).reshape(out_type.shape)

    def element(attrs: CompareAttrs, b: IRBuilder, i: Index, *tensors: TensorFn, out_type: TensorType) -> Expr:
        x, y = (broadcast_at(b, t, i) for t in tensors)
        if attrs.rescale is not None:
            x, y = _tir_scaled(b, x, attrs.rescale[0]), _tir_scaled(b, y, attrs.rescale[1])
        elif x.dtype == "bool":
            x, y = cast("int32", x), cast("int32", y)
        return binop(symbol, x, y)

    register(
        name,
        f"{opcode}; all types",
        [("a", "numbers, int8", "the left operand"), ("b", "as a", "the right operand; shapes broadcast")],
        OpPattern.BROADCAST,
        attrs=CompareAttrs,
        infer_type=lambda types, _: broadcast_type(*tensors_of(types, 2), name="a comparison", dtypes=COMPARABLE, dtype="bool"),
        evaluate=evaluate,
        te=elementwise(element),
    )


for _name, (_symbol, _opcode) in COMPARISONS.items():
    _register_comparison(_name, _symbol, _opcode)


# select: SELECT and SELECT_V2 of TFLite: out = cond ? a : b, with broadcasting.
#
# Oracles: `reference_ops::Select`, `RankOneSelect`, `BroadcastSelect5DSlow`; data of any type are moved, never rescaled.
@operator(
    "select",
    "SELECT, SELECT_V2; with broadcasting",
    [("cond", "bool", "which"), ("a", "any", "the values where it is true"), ("b", "as a", "the values where it is false")],
    OpPattern.BROADCAST,
)
class SelectAttrs:
    """The result's parameters."""

    quant: QuantParams | None = None

    def infer_type(self, cond: TensorType, a: TensorType, b: TensorType) -> Type:
        """bool, T, T whose shapes broadcast -> T."""
        if cond.dtype != "bool" or a.dtype != b.dtype:
            raise TypeRuleError(f"select by {cond} of {a} and {b} is not valid")
        try:
            shape = np.broadcast_shapes(cond.shape, a.shape, b.shape)
        except ValueError:
            raise TypeRuleError(f"shapes of {cond}, {a} and {b} do not broadcast") from None
        return TensorType(tuple(map(int, shape)), a.dtype, self.quant)

    def evaluate(self, cond: Array, a: Array, b: Array, *, out_type: TensorType) -> Array:
        return np.where(cond, a, b)

    def element(self, b: IRBuilder, i: Index, cond: TensorFn, x: TensorFn, y: TensorFn, *, out_type: TensorType) -> Expr:
        # branches instead of a select: only the chosen operand is computed
        value = b.local("value", (1,), out_type.dtype)
        with b.if_(cond.at(b, broadcast_index(cond, i))):
            b.store(value, 0, x.at(b, broadcast_index(x, i)))
        with b.else_():
            b.store(value, 0, y.at(b, broadcast_index(y, i)))
        return value[0]
