"""Element-wise operators on one tensor: elementary functions, activations, complex numbers, buckets, changes of type."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.numerics.elementary import MATH, apply
from aot.numerics.fixed_point import named
from aot.op.common.operator import Index, elementwise, operator, register
from aot.op.common.te_rule import TeContext
from aot.op.common.tensors import MOVABLE, np_bounded, tensors_of
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, itemsize, numpy_dtype
from aot.te.tensor import TensorFn, reduce_axis, tensor_fn
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, select


# abs, negative, sqrt, exp, ...: functions of one tensor of plain numbers (float32; some on integers, logical_not on bool).
#
# Elementary functions have the bits of the C library that the reference runs with (`elementary`).  Oracles: `elementwise.cc`,
# `neg.cc`, `reference_ops::Floor`, `Ceil`, `Round` (halves to even), `Elu`, `HardSwish`, `Gelu`, `LeakyRelu`, `Logistic`.
@dataclass(frozen=True, slots=True)
class UnaryAttrs:
    """`alpha` of leaky_relu; [lo, hi] of relu (None: no bound)."""

    alpha: float = 0.0
    lo: float | None = None
    hi: float | None = None


@dataclass(frozen=True, slots=True)
class Unary:
    """The line in `aot ops`, meaning, the expression of one element (x is a name), and element types."""

    doc: str
    evaluate: Callable[[Array, UnaryAttrs], Array]
    rule: Callable[[IRBuilder, Expr, UnaryAttrs], Expr]
    dtypes: tuple[str, ...] = ("float32",)


def f32(value: float) -> Expr:
    return imm(float(np.float32(value)), "float32")


def _zero(x: Expr) -> Expr:
    return imm(0.0 if is_float(x.dtype) else 0, x.dtype)


def _library(name: str) -> Unary:
    opcode = {"exp": "EXP", "log": "LOG"}.get(name, name.upper())
    return Unary(f"{opcode}; float32", lambda x, _a: apply(name, x), lambda _b, x, _a: MATH[name](x))


def _gelu(doc: str, *, approximate: bool) -> Unary:
    return Unary(
        doc,
        lambda x, _a: gelu(x, approximate=approximate, library="eigen_"),
        lambda _b, x, _a: gelu_rule(x, approximate=approximate),
    )


def _gelu_half(how: str, *, approximate: bool) -> Unary:
    return Unary(
        f"GELU of float16{how}, widened: every step is rounded to float16",
        lambda x, _a: _np_gelu_half(x, approximate=approximate),
        lambda b, x, _a: _gelu_half_rule(b, x, approximate=approximate),
    )


def _np_rounded(x: Array, _attrs: UnaryAttrs) -> Array:
    nearest = apply("rint", x)
    return np.where(x < 0, nearest + np.float32(0), nearest)


def _rounded(_b: IRBuilder, x: Expr, _attrs: UnaryAttrs) -> Expr:
    """The reference adds 1 to the floor: small negative numbers round to +0, not to rint's -0."""
    return select(x < f32(0), MATH["rint"](x) + f32(0), MATH["rint"](x))


def _negated(x: Expr) -> Expr:
    if is_float(x.dtype):
        return x * imm(-1.0, x.dtype)
    wide = "uint64" if x.dtype == "int64" else "uint32"
    return cast(x.dtype, imm(0, wide) - cast(wide, x))


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), in the float32 steps of the reference's tables."""
    one = np.float32(1)
    return np.asarray(one / (one + apply("exp", -x)), np.float32)


_SIGMOID_LOW, _SIGMOID_HIGH = -9.0, 16.619047164916992188
"""Below the first limit the reference's LOGISTIC is e^x, above the second 1."""


def _np_logistic(x: Array, _attrs: UnaryAttrs) -> Array:
    return np.where(x > np.float32(_SIGMOID_HIGH), np.float32(1), np.where(x < _SIGMOID_LOW, apply("exp", x), sigmoid(x)))


def _logistic_rule(b: IRBuilder, x: Expr, _attrs: UnaryAttrs) -> Expr:
    low = x < f32(_SIGMOID_LOW)
    e = b.let("e", MATH["exp"](select(low, x, _negated(x))))
    return select(x > f32(_SIGMOID_HIGH), f32(1), select(low, e, f32(1) / (f32(1) + e)))


_SQRT_HALF, _SQRT_2_PI = math.sqrt(0.5), math.sqrt(2 / math.pi)


def gelu(x: Array, *, approximate: bool, library: str = "") -> Array:
    """x/2 * erfc(-x / sqrt 2), or the form with the hyperbolic tangent; float32 steps.

    `library`: the source of erfc and tanh: the C library, "eigen_" or (erfc only) "eigen_scalar_".  The reference makes tables
    with the first, and computes floats with the others, where it computes the cube first."""
    half, x = np.float32(0.5), x.astype(np.float32)
    if not approximate:
        return np.asarray(half * x * apply(f"{library}erfc", x * np.float32(-_SQRT_HALF)), np.float32)
    c = np.float32(0.044715)
    cube = c * (x * x * x) if library else c * x * x * x
    return np.asarray(half * x * (np.float32(1) + apply(f"{library}tanh", np.float32(_SQRT_2_PI) * (x + cube))), np.float32)


def gelu_rule(x: Expr, *, approximate: bool, library: str = "eigen_") -> Expr:
    """`gelu` as an expression of the name x."""
    if not approximate:
        return f32(0.5) * x * MATH[f"{library}erfc"](x * f32(-_SQRT_HALF))
    cube = f32(0.044715) * (x * x * x)
    return f32(0.5) * x * (f32(1) + MATH["eigen_tanh"](f32(_SQRT_2_PI) * (x + cube)))


_IN_HALF = tuple(float(np.float16(np.float32(v))) for v in (-_SQRT_HALF, _SQRT_2_PI, 0.044715))
"""GELU's constants in float16."""


def _np_half(x: Array) -> Array:
    return np.asarray(x.astype(np.float16).astype(np.float32))


def _np_gelu_half(x: Array, *, approximate: bool) -> Array:
    """GELU as the reference computes it for float16: steps in float32, each rounded to float16, except the last one here."""
    half, h = np.float32(0.5), _np_half
    if not approximate:
        return np.asarray(h(half * x) * h(apply("eigen_erfc", h(x * np.float32(_IN_HALF[0])))))
    cube = h(h(x * x) * x)
    inner = h(np.float32(_IN_HALF[1]) * h(x + h(np.float32(_IN_HALF[2]) * cube)))
    return np.asarray(h(half * x) * h(np.float32(1) + h(apply("eigen_tanh", inner))))


def _gelu_half_rule(b: IRBuilder, x: Expr, *, approximate: bool) -> Expr:
    def h(value: Expr) -> Expr:
        return b.let("step", cast("float32", cast("float16", value)))

    part = h(f32(0.5) * x)
    if not approximate:
        return part * h(MATH["eigen_erfc"](h(x * f32(_IN_HALF[0]))))
    inner = h(f32(_IN_HALF[1]) * h(x + h(f32(_IN_HALF[2]) * h(h(x * x) * x))))
    return part * h(f32(1) + h(MATH["eigen_tanh"](inner)))


def hard_swish(x: Array) -> Array:
    """x * min(6, max(0, x + 3)) / 6."""
    return np.asarray(x * np.clip(x + np.float32(3), 0, 6).astype(np.float32) / np.float32(6), np.float32)


def _abs(_b: IRBuilder, x: Expr, _attrs: UnaryAttrs) -> Expr:
    # 0 - x turns -0 into 0
    return select(x > _zero(x), x, _zero(x) - x) if is_float(x.dtype) else select(x < _zero(x), _negated(x), x)


def _sign(_b: IRBuilder, x: Expr, _attrs: UnaryAttrs) -> Expr:
    sign = cast(x.dtype, cast("int32", x > _zero(x)) - cast("int32", x < _zero(x)))
    return select(binop("!=", x, x), x, sign) if is_float(x.dtype) else sign


def _hard_swish_rule(b: IRBuilder, x: Expr, _attrs: UnaryAttrs) -> Expr:
    shifted = b.let("shifted", x + f32(3))
    bounded = b.let("bounded", select(shifted < f32(0), f32(0), select(shifted > f32(6), f32(6), shifted)))
    return x * bounded / f32(6)


def _relu_rule(_b: IRBuilder, x: Expr, attrs: UnaryAttrs) -> Expr:
    value = x if attrs.hi is None else select(x > f32(attrs.hi), f32(attrs.hi), x)
    return value if attrs.lo is None else select(x < f32(attrs.lo), f32(attrs.lo), value)


UNARY: dict[str, Unary] = {
    "abs": Unary("ABS; float32, int32, int16", lambda x, _a: np.abs(x), _abs, ("float32", "int32", "int16")),
    "negative": Unary(
        "NEG; float32, int64, int32, int16, int8, quantised values as plain numbers",
        lambda x, _a: -x,
        lambda _b, x, _a: _negated(x),
        ("float32", "int8", "int16", "int32", "int64"),
    ),
    "sign": Unary(
        "SIGN; float32, int32", lambda x, _a: np.where(x != x, x, (x > 0).astype(np.int32) - (x < 0)), _sign, ("float32", "int32")
    ),
    "square": Unary("SQUARE; float32", lambda x, _a: x * x, lambda _b, x, _a: x * x),
    "rsqrt": Unary("RSQRT; float32", lambda x, _a: np.float32(1) / apply("sqrt", x), lambda _b, x, _a: f32(1) / MATH["sqrt"](x)),
    "logical_not": Unary("LOGICAL_NOT; bool", lambda x, _a: ~x, lambda _b, x, _a: binop("==", cast("int32", x), 0), ("bool",)),
    "elu": Unary(
        "ELU; float32",
        lambda x, _a: np.where(x < 0, apply("expm1", x), x),
        lambda _b, x, _a: select(x < f32(0), MATH["expm1"](x), x),
    ),
    "sigmoid": Unary("LOGISTIC; float32", _np_logistic, _logistic_rule),
    "gelu": _gelu("GELU; float32", approximate=False),
    "gelu_tanh": _gelu("GELU by the hyperbolic tangent; float32", approximate=True),
    "gelu_half": _gelu_half("", approximate=False),
    "gelu_half_tanh": _gelu_half(" by the hyperbolic tangent", approximate=True),
    "hard_swish": Unary("HARD_SWISH; float32", lambda x, _a: hard_swish(x), _hard_swish_rule),
    "rint": Unary("ROUND; float32", _np_rounded, _rounded),
    "relu": Unary("RELU, RELU6, RELU_N1_TO_1, RELU_0_TO_1; float32", lambda x, a: np_bounded(x, a.lo, a.hi), _relu_rule),
    "leaky_relu": Unary(
        "LEAKY_RELU; float32",
        lambda x, a: np.where(x > 0, x, x * np.float32(a.alpha)),
        lambda _b, x, a: select(x > f32(0), x, x * f32(a.alpha)),
    ),
} | {name: _library(name) for name in ("sqrt", "exp", "log", "sin", "cos", "floor", "ceil", "tanh")}
"""By name."""


def register_unary(name: str, unary: Unary) -> None:
    """Register a function of one element as an operator."""

    def infer_type(types: Sequence[Type], _attrs: UnaryAttrs) -> Type:
        (data,) = tensors_of(types, 1)
        if data.dtype not in unary.dtypes:
            raise TypeRuleError(f"{name} needs a tensor of {', '.join(unary.dtypes)}, not {data}")
        return data

    def evaluate(data: Array, *, attrs: UnaryAttrs, out_type: TensorType) -> Array:
        with np.errstate(all="ignore"):
            return np.asarray(unary.evaluate(data, attrs)).astype(out_type.dtype)

    def element(attrs: UnaryAttrs, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        return unary.rule(b, named(b, "x", data.at(b, i)), attrs)

    register(
        name,
        unary.doc,
        [("data", "numbers", "the operand")],
        OpPattern.ELEMWISE,
        attrs=UnaryAttrs,
        infer_type=infer_type,
        evaluate=evaluate,
        te=elementwise(element),
    )


for _name, _unary in UNARY.items():
    register_unary(_name, _unary)


# gelu_uneven: GELU of float32 tensors whose size is not a multiple of four.  No quantisation.
#
# The reference computes float32 with Eigen, in vectors of four elements of the flat tensor; the one to three left-over elements
# are computed one by one, and their erfc sometimes differs in the last bit.  `gelu` is the form for vectors only, where an
# element's position does not matter; this one is not element-wise, and is not fused with anything.
# There is no te rule: `aot.topi.generic.elementwise` lowers it.  Oracle: `reference_ops::Gelu`.

VECTOR = 4
"""float32 elements per vector in the reference."""

LEFT_OVER = "eigen_scalar_"
"""The erfc of left-over elements."""


def infer_gelu(types: Sequence[Type], _attrs: UnaryAttrs) -> Type:
    (data,) = types
    if not isinstance(data, TensorType) or data.dtype != "float32":
        raise TypeRuleError(f"gelu_uneven needs a tensor of float32, not {data}")
    return data


def evaluate_gelu(data: Array, *, attrs: UnaryAttrs, out_type: TensorType) -> Array:
    flat = data.reshape(-1)
    whole = flat.size - flat.size % VECTOR
    with np.errstate(all="ignore"):
        first = gelu(flat[:whole], approximate=False, library="eigen_")
        left_over = gelu(flat[whole:], approximate=False, library=LEFT_OVER)
    return np.concatenate([first, left_over]).reshape(out_type.shape)


register(
    "gelu_uneven",
    "GELU; float32, a size that is not a multiple of four",
    [("data", "float32", "the operand")],
    attrs=UnaryAttrs,
    infer_type=infer_gelu,
    evaluate=evaluate_gelu,
)


# complex_abs, real and imag: parts of complex64 numbers.
#
# The absolute value is the root of the sum of the squares in double precision, rounded once; infinite if a part is, even
# with a NaN.  Oracle: `kernels/complex_support.cc`; its `std::abs` is glibc's hypotf.
def infer_complex(types: Sequence[Type], _attrs: None) -> Type:
    """complex64 -> float32 of the same shape."""
    (data,) = tensors_of(types, 1)
    if data.dtype != "complex64":
        raise TypeRuleError(f"parts of {data}, which is not complex")
    return TensorType(data.shape, "float32")


def _magnitude(data: Array) -> Array:
    real, imaginary = data.real.astype(np.float64), data.imag.astype(np.float64)
    with np.errstate(all="ignore"):
        magnitude = np.sqrt(real * real + imaginary * imaginary).astype(np.float32)
    return np.where(np.isinf(real) | np.isinf(imaginary), np.float32(np.inf), magnitude)


COMPLEX_PARTS = {"COMPLEX_ABS": "complex_abs", "REAL": "real", "IMAG": "imag"}

for _opcode, _part in zip(COMPLEX_PARTS, (_magnitude, np.real, np.imag), strict=True):
    register(
        COMPLEX_PARTS[_opcode],
        f"{_opcode}; complex64 to float32",
        [("data", "complex64", "the operand")],
        infer_type=infer_complex,
        evaluate=lambda data, *, attrs, out_type, part=_part: np.ascontiguousarray(part(data)),
    )


# bucketize: BUCKETIZE of TFLite: the interval between sorted boundaries that contains a number.
#
# out = the number of boundaries <= x, compared in float32; NaN comes after all.  Oracle: `kernels/bucketize.cc`.

BUCKETIZED = ("int32", "int64", "float32")


@operator("bucketize", "BUCKETIZE; int32, int64, float32", [("data", "int32, int64, float32", "numbers")])
class BucketizeAttrs:
    """float32 numbers, sorted."""

    boundaries: tuple[float, ...]

    def infer_type(self, data: TensorType) -> Type:
        """Numbers -> int32 of the same shape."""
        if data.dtype not in BUCKETIZED or not self.boundaries or list(self.boundaries) != sorted(self.boundaries):
            raise TypeRuleError(f"bucketize of {data} by {self.boundaries} is not valid")
        return TensorType(data.shape, "int32")

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        below = data.astype(np.float32)[..., None] < np.array(self.boundaries, np.float32)
        return np.asarray((~below).sum(axis=-1), np.int32)

    def te_rule(self, ctx: TeContext, args: Sequence[TensorFn], out_type: TensorType) -> TensorFn:
        (data,) = args
        table = ctx.constant("boundaries", np.array(self.boundaries, np.float32))

        def rule(b: IRBuilder, *i: Expr) -> Expr:
            x = b.let("x", cast("float32", data.at(b, i)))
            axis = reduce_axis(len(self.boundaries), name="k")
            return te_sum(b, [axis], lambda k: select(x < table.at(b, (k,)), imm(0), imm(1)))

        return tensor_fn(out_type.shape, out_type.dtype, rule)


# cast: CAST of TFLite between element types.
#
# Integers keep their low bits, a float is truncated towards zero and saturates (NaN gives the upper bound), non-zero is true.
# Conversions from and to float16 go through float32.
# Oracle: `kernels/cast.cc`.

CASTABLE = MOVABLE


@operator("cast", "CAST; all plain types and float16", [("data", "numbers", "the operand")], OpPattern.ELEMWISE)
class CastAttrs:
    """The result's type."""

    dtype: str

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> the same shape in another type."""
        if data.dtype not in CASTABLE or self.dtype not in CASTABLE:
            raise TypeRuleError(f"cast of {data} to {self.dtype} is not valid")
        return data.with_dtype(self.dtype)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        if "float16" in (self.dtype, str(data.dtype)):
            data = data.astype(np.float32)
        if self.dtype == "float16":
            with np.errstate(all="ignore"):
                return data.astype(np.float16)
        dtype = numpy_dtype(self.dtype)
        if not is_float(str(data.dtype)) or is_float(self.dtype) or self.dtype == "bool":
            return data.astype(dtype)
        (low, high), (smallest, largest) = _float_limits(self.dtype), int_range(self.dtype)
        inside = (data > low - 1) & (data < high)
        whole = np.where(inside, np.trunc(data), 0).astype(np.float64)
        result = whole.astype(np.uint64 if low == 0 else np.int64).astype(dtype)
        result = np.where(data <= low, dtype.type(smallest), result)
        return np.where((data >= high) | np.isnan(data), dtype.type(largest), result).astype(dtype)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        value = data.at(b, i)
        if self.dtype == "float16":
            return cast("float16", cast("float32", value))
        value = cast("float32", value) if data.dtype == "float16" else value
        if is_float(self.dtype) or not is_float(value.dtype):
            return cast(self.dtype, value)
        if self.dtype == "bool":
            return binop("!=", value, imm(0.0, value.dtype))
        value = named(b, "value", value)
        (low, high), (smallest, largest) = _float_limits(self.dtype), int_range(self.dtype)
        inside = select(value < imm(high, value.dtype), cast(self.dtype, value), imm(largest, self.dtype))
        return select(value <= imm(low, value.dtype), imm(smallest, self.dtype), inside)


def _float_limits(dtype: str) -> tuple[float, float]:
    """(low, high): a float is in range after truncation if low <= x < high; both are powers of two."""
    low, high = int_range(dtype)
    return float(low), float(high + 1)


# bitcast: BITCAST of TFLite: the same bytes as elements of another type, at no cost at run time.
#
# If the sizes differ, the last dimension is split or joined: int16[3] is int8[3, 2].
# Oracle: `bitcast.cc`, which copies the bytes.

BITCASTABLE = tuple(d for d in MOVABLE if d != "bool")
BETWEEN = (*BITCASTABLE, "uint64")
"""Types that the graph's operator accepts; other operators are built with it."""


@operator("bitcast", "BITCAST; no instruction at run time", [("data", "any", "the operand")], is_view=True)
class BitcastAttrs:
    """Type and dimensions of the result."""

    shape: tuple[int, ...]
    dtype: str

    def infer_type(self, data: TensorType) -> Type:
        """A tensor -> as many bytes of another type."""
        if data.dtype not in BETWEEN or self.dtype not in BETWEEN:
            raise TypeRuleError(f"bitcast of {data} to {self.dtype} is not valid")
        if self.shape != bitcast_shape(data, self.dtype):
            raise TypeRuleError(f"bitcast of {data} to {self.dtype}{list(self.shape)} is not valid")
        return TensorType(self.shape, self.dtype)

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        return np.frombuffer(np.ascontiguousarray(data).tobytes(), numpy_dtype(self.dtype)).reshape(self.shape)


def bitcast_shape(data: TensorType, dtype: str) -> tuple[int, ...]:
    """The result's shape: larger elements absorb the last dimension, smaller ones add one.  TypeRuleError if they do not fit."""
    before, after = itemsize(data.dtype), itemsize(dtype)
    if before == after:
        return data.shape
    if before > after:
        return (*data.shape, before // after)
    if data.shape[-1:] != (after // before,):
        raise TypeRuleError(f"bitcast of {data} to {dtype} is not valid")
    return data.shape[:-1]


# fake_quant: FAKE_QUANT of TFLite: float32 to the nearest of 2^bits equally spaced numbers, one of them zero.
#
# out = round((clamp(x) - low) * (1 / scale)) * scale + low, halves up, in float32; NaN becomes the lowest number.
# Oracle: `reference_ops::FakeQuant`.
@operator("fake_quant", "FAKE_QUANT; float32", [("data", "float32", "numbers")], OpPattern.ELEMWISE)
class FakeQuantAttrs:
    """float32 numbers: the lowest and the highest result, and the spacing."""

    low: float
    high: float
    scale: float

    def infer_type(self, data: TensorType) -> Type:
        """float32 -> float32."""
        if data.dtype != "float32" or not self.low <= self.high or self.scale <= 0:
            raise TypeRuleError(f"fake_quant of {data} by {self} is not valid")
        return data

    def evaluate(self, data: Array, *, out_type: TensorType) -> Array:
        low, high, scale = (np.float32(v) for v in (self.low, self.high, self.scale))
        above = np.where(low < data, data, low)
        bounded = np.where(above < high, above, high)
        steps = (bounded - low) * (np.float32(1) / scale)
        return np.asarray(np.floor(steps.astype(np.float64) + 0.5).astype(np.float32) * scale + low, np.float32)

    def element(self, b: IRBuilder, i: Index, data: TensorFn, *, out_type: TensorType) -> Expr:
        low, high, scale = (imm(float(np.float32(v)), "float32") for v in (self.low, self.high, self.scale))
        inverse = imm(float(np.float32(1) / np.float32(self.scale)), "float32")
        x = b.let("x", data.at(b, i))
        above = b.let("above", select(low < x, x, low))
        steps = b.let("steps", (select(above < high, above, high) - low) * inverse)
        whole = b.let("whole", cast("int32", steps))
        nearest = whole + select(steps - cast("float32", whole) < imm(0.5, "float32"), imm(0), imm(1))
        return cast("float32", nearest) * scale + low
