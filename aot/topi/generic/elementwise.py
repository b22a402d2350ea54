"""Element-wise groups whose tensors all have the result's shape: one flat loop, a few elements per iteration.

Bytes are loaded one by one.  With an immediate offset that is one instruction each, no more than extracting them from a word.
"""

from __future__ import annotations

from functools import lru_cache
from math import frexp, prod

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.common.te_rule import TeContext
from aot.op.math.unary import LEFT_OVER, VECTOR, gelu_rule
from aot.op.qnn.quantize import QuantizeAttrs
from aot.relay.expr import Call, Var, post_order, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import is_float
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of, emit_flat
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, Imm, binop, cast, clamp, imm, select
from aot.tir.function import FuncAttrs
from aot.topi.generic.flat import Cost, FlatKernel, compose, is_elementwise, register_flat
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

ANCHORS = ("qnn.add", "qnn.lut", "qnn.quantize", "qnn.dequantize", "qnn.requantize8", "clip")

UNROLL = 4
LONG = 256
"""Fewest elements for which cheap operators are unrolled twice as far."""

CHEAP = frozenset({"qnn.add", "qnn.lut"})

INSTRUCTIONS = {"qnn.add": 3, "qnn.lut": 1, "qnn.quantize": 9, "qnn.dequantize": 4, "qnn.requantize8": 9, "clip": 6}
"""Instructions per element on a core with DSP and FPU, without load and store (counted in disassemblies)."""

SOFTWARE = {"qnn.quantize": 280, "qnn.dequantize": 62}
"""With software floating point (counted in QEMU, like the next)."""

V6M = {"qnn.add": 20, "qnn.lut": 3, "qnn.quantize": 535, "qnn.dequantize": 170, "qnn.requantize8": 5}
"""Instructions per element on Armv6-M."""


def accepts(group: Group, _target: Target) -> bool:
    """Calls of element-wise operators only; every operand has the result's shape."""
    shape = tensor_type(group.result).shape if isinstance(group.result.type, TensorType) else None
    return all(
        isinstance(e.type, TensorType) and e.type.shape == shape and (not isinstance(e, Call) or is_elementwise(e))
        for e in post_order(group.result)
    )


def lower(group: Group, target: Target, name: str) -> Lowered:
    b = IRBuilder(name)
    ctx = TeContext(b)
    result = tensor_type(group.result)
    size = prod(result.shape)
    tensors: dict[int, TensorFn] = {id(v): elements_of(b.input("data", (size,), v.type.dtype)) for v in group.params}
    out = b.output("out", (size,), result.dtype)
    value = compose(ctx, group.result, tensors, size)
    calls = [e for e in post_order(group.result) if isinstance(e, Call)]
    floats = any(is_float(tensor_type(e).dtype) for e in post_order(group.result))
    cheap = len(calls) == 1 and str(calls[0].op) in CHEAP and size >= LONG
    unroll = 2 if floats else 2 * UNROLL if cheap else UNROLL
    emit_flat(b, out, value, unroll=unroll)
    words = [str(c.op).rpartition(".")[2] for c in calls]
    kernel = f"generic.elementwise_{'_'.join(words)}(unroll={unroll})"
    each = sum(_instructions(str(c.op), target) for c in calls) + len(group.params) + 2
    func = b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span))
    return Lowered(func, dict(ctx.constants), size * each + 4 * size // unroll + 12, 4 * each * unroll + 24)


def _instructions(op: str, target: Target) -> int:
    """Instructions per element."""
    instructions = INSTRUCTIONS if target.has("fpu") else INSTRUCTIONS | (V6M if target.has("v6m") else SOFTWARE)
    return instructions.get(op, 12)


for _anchor in ANCHORS:
    register_impl(OpImplementation("generic.elementwise", _anchor, accepts, lower, plevel=12))


@register_flat("gelu_uneven")
def lower_gelu(kernel: FlatKernel) -> None:
    """One loop over vectors of four, and one over the remaining one to three elements."""
    b, (data,), out = kernel.b, kernel.args, kernel.out
    whole = out.size - out.size % VECTOR
    for start, stop, library in ((0, whole, "eigen_"), (whole, out.size, LEFT_OVER)):
        if start < stop:
            with b.for_("i", stop, start=start) as i:
                b.store(out, i, gelu_rule(b.let("x", data[i]), approximate=False, library=library))


# QUANTIZE from and DEQUANTIZE to float32 on cores without an FPU: integers and tables instead of software floating point.
#
# A quantised value is the zero point plus or minus a magnitude.  Positive floats, read as integers (their "images"), are in the
# same order as their values, so magnitudes rise with images: `steps[k]` is the image at which magnitude k + 1 begins.  A float
# with mantissa m and biased exponent e is m * 2^(e - 150), so with the upper 16 bits of m
#
#     |x / scale|  is about  (m >> 8) * ratio / 2^n,   n = base - e.
#
# Its integer part is the magnitude or one below it; a comparison with steps[integer part] decides.
#
# DEQUANTIZE looks bytes up in a table of 256 floats.


RATIO_BITS = 15
MAGNITUDES = 256
"""Larger magnitudes are beyond the limits of bytes, whatever the zero point."""
NEAR = 4
"""Distance, in floats, within which a step is from a half-integer times the scale."""
MOST_SHIFT = 31
INFINITY = 0x7F800000
LEAST = 256
"""Fewest elements for which a table of floats pays off in size."""

EACH, EACH_V6M = 26, 48
"""Instructions per quantised number, with Thumb-2 and without (counted in QEMU)."""


@dataclass(frozen=True, slots=True)
class Quantizer:
    """The numbers defined above."""

    ratio: int
    base: int
    steps: tuple[int, ...]

    def whole(self, images: Array) -> Array:
        """The integer part, for int64 images."""
        mantissa = (images & 0x7FFFFF | 0x800000) >> 8
        whole: Array = (mantissa * self.ratio) >> (self.base - (images >> 23))
        return whole


@lru_cache(maxsize=64)
def quantizer(scale: float) -> Quantizer | None:
    """The numbers for a float32 scale; None if they are not exact, or for scales far from one."""
    if not 2.0**-60 < scale < 2.0**60:
        return None
    fraction, exponent = frexp(scale)
    k = RATIO_BITS - 1 + exponent - (fraction == 0.5)  # 1 / scale is ratio / 2^k
    numbers = Quantizer(int(2.0**k / scale), k + 142, _steps(scale))
    steps = np.array(numbers.steps, np.int64)
    if numbers.base - (steps[0] >> 23) > MOST_SHIFT:
        return None
    # the integer part is monotone: it is k - 1 or k for all floats of magnitude k if it is for the first and the last one
    code = np.arange(1, MAGNITUDES)
    exact = (numbers.whole(steps[:-1]) >= code - 1).all() and (numbers.whole(steps[1:] - 1) <= code).all()
    return numbers if exact else None


def _steps(scale: float) -> tuple[int, ...]:
    """Image of the smallest positive float of each magnitude from 1 on, by the operator's definition."""
    halves = ((np.arange(MAGNITUDES) + 0.5) * scale).astype(np.float32).view(np.uint32).astype(np.int64)
    tried = halves[:, None] + np.arange(-NEAR, NEAR + 1)
    attrs = QuantizeAttrs(scale, 0, 0, 2 * MAGNITUDES, "int16")
    floats = tried.astype(np.uint32).view(np.float32)
    there = attrs.evaluate(floats, out_type=TensorType(tried.shape, "int16")) > np.arange(MAGNITUDES)[:, None]
    if there[:, 0].any() or not there[:, -1].all():
        raise AssertionError("a step between quantised values is not near its estimate")
    return tuple(int(v) for v in tried[np.arange(MAGNITUDES), there.argmax(axis=1)])


def _alone(group: Group, target: Target) -> bool:
    anchor = group.anchor
    return not target.has("fpu") and not group.followers and anchor is group.result and isinstance(anchor.args[0], Var)


def accepts_quantize(group: Group, target: Target) -> bool:
    """A single call to bytes, with enough elements that the table is worth its size."""
    attrs: QuantizeAttrs = group.anchor.attrs
    many = prod(tensor_type(group.result).shape) >= LEAST
    return many and _alone(group, target) and attrs.dtype in ("int8", "uint8") and quantizer(attrs.scale) is not None


@register_flat("qnn.quantize", name="quantize_steps", accepts=accepts_quantize, plevel=15)
def lower_quantize(kernel: FlatKernel) -> Cost:
    attrs: QuantizeAttrs = kernel.attrs
    numbers = quantizer(attrs.scale)
    assert numbers is not None
    b, (data,), out = kernel.b, kernel.args, kernel.out
    steps = kernel.table("steps", np.array(numbers.steps, np.uint32))
    with b.for_("i", out.size) as i:
        bits = b.let("bits", data.load("uint32", i))
        b.store(out, i, cast(attrs.dtype, _code(b, bits, numbers, steps, attrs)))
    each = EACH if kernel.on("thumb2") else EACH_V6M
    return Cost(instructions=out.size * each + 20, code=100 + 2 * each)


def _code(b: IRBuilder, bits: Expr, numbers: Quantizer, steps: Buffer, attrs: QuantizeAttrs) -> Expr:
    """The quantised value of a float's image, as int32."""

    def word(value: int) -> Imm:
        return imm(value, "uint32")

    image = b.let("image", binop("&", bits, word(0x7FFFFFFF)))
    sign = b.let("sign", cast("int32", bits) >> 31)
    zero = min(max(attrs.zero_point, attrs.lo), attrs.hi)
    code = b.local("code", (1,), "int32", init=zero)
    with b.if_(image < word(numbers.steps[-1])), b.if_(image >= word(numbers.steps[0])):
        n = numbers.base - cast("int32", image >> word(23))
        mantissa = binop("|", binop("&", image >> word(8), word(0x7FFF)), word(0x8000))
        whole = b.let("whole", cast("int32", (mantissa * word(numbers.ratio)) >> cast("uint32", n)))
        magnitude = b.let("magnitude", whole + select(image >= steps[whole], imm(1), imm(0)))
        b.store(code, 0, clamp(binop("^", magnitude, sign) - sign + attrs.zero_point, attrs.lo, attrs.hi))
    with b.else_(), b.if_(image <= word(INFINITY)):  # not a NaN
        b.store(code, 0, select(sign < 0, imm(attrs.lo), imm(attrs.hi)))
    return code[0]


def accepts_dequantize(group: Group, target: Target) -> bool:
    """A single call from bytes, with enough elements that the table is worth its size."""
    data = tensor_type(group.anchor.args[0])
    return _alone(group, target) and data.dtype in ("int8", "uint8") and prod(data.shape) >= LEAST


@register_flat("qnn.dequantize", name="dequantize_table", accepts=accepts_dequantize, plevel=15)
def lower_dequantize(kernel: FlatKernel) -> Cost:
    b, (data,), out, attrs = kernel.b, kernel.args, kernel.out, kernel.attrs
    codes = np.arange(256, dtype=np.uint8).view(data.dtype)
    floats = attrs.evaluate(codes, out_type=TensorType((256,), "float32"))
    table = kernel.table("floats", floats)
    unroll = next(u for u in (4, 2, 1) if out.size % u == 0)
    with b.for_("i", out.size, step=unroll) as i:
        for u in range(unroll):
            b.store(out, i + u, table[cast("int32", cast("uint8", data[i + u]))])
    return Cost(instructions=out.size * 5 + 20, code=80)
