"""random.bits, random.advance: blocks of random bits from a counter and a key, and the counter after them.

Oracles: `PhiloxRandom` of TensorFlow's library, which the operators of `distributions.py` draw from, and, for
STABLEHLO_RNG_BIT_GENERATOR, `kernels/rng_bit_generator.cc` with `rng_util.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from aot.frontend.view import OperatorView
from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.random import WORDS, advanced, random_bits
from aot.op.common.check import require_dtype
from aot.op.common.move import reshaped, tensors_of
from aot.op.convert import ConvertContext, from_tflite, operand, unsupported
from aot.op.tensor.bitcast import BitcastAttrs
from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.op.tensor.strided_slice import slice_of
from aot.relay.expr import Expr, call
from aot.support.dataclass import dataclass

ORACLES = ("litert",)
LARGEST = 1 << 24
"""Words that are drawn at a time."""


@dataclass(frozen=True, slots=True)
class BitsAttrs:
    """The generator (philox, threefry), how many words it gives, and how many words of its counter count as one number."""

    algorithm: str
    count: int
    words: int


@dataclass(frozen=True, slots=True)
class AdvanceAttrs:
    """By how many blocks, and how many words of the counter count as one number."""

    blocks: int
    words: int


def infer_bits(types: Sequence[Type], attrs: BitsAttrs) -> Type:
    """uint32 counter [4 or 2] and key [2] -> uint32 [count]."""
    counter, key = tensors_of(types, 2)
    size = WORDS.get(attrs.algorithm, 0)
    if (counter.dtype, key.dtype, counter.shape, key.shape) != ("uint32", "uint32", (size,), (2,)):
        raise TypeRuleError(f"{attrs.algorithm} of {counter} by {key}")
    if not 1 <= attrs.count <= LARGEST or not 1 <= attrs.words <= size:
        raise TypeRuleError(f"random bits by {attrs}")
    return TensorType((attrs.count,), "uint32")


def evaluate_bits(counter: Array, key: Array, *, attrs: BitsAttrs, out_type: TensorType) -> Array:
    return random_bits(attrs.algorithm, counter, key, attrs.count, attrs.words)


def infer_advance(types: Sequence[Type], attrs: AdvanceAttrs) -> Type:
    """uint32 [n] -> uint32 [n]."""
    (counter,) = tensors_of(types, 1)
    if counter.dtype != "uint32" or len(counter.shape) != 1 or not 1 <= attrs.words <= counter.size or attrs.blocks < 0:
        raise TypeRuleError(f"{counter} advanced by {attrs}")
    return counter


def evaluate_advance(counter: Array, *, attrs: AdvanceAttrs, out_type: TensorType) -> Array:
    return advanced(counter, attrs.blocks, attrs.words)


_WORDS_OF = {"int32": 1, "uint32": 1, "int64": 2, "uint64": 2}


@from_tflite("STABLEHLO_RNG_BIT_GENERATOR", "uint64", "bitcast concatenate random.advance random.bits strided_slice")
def convert(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """(the state after, bits in the result's declared shape); the state is key, counter, and of three numbers two words more."""
    state, out, shape, span = ctx.input_type(op, 0), ctx.output_type(op, 1), ctx.output_shape(op, 1), ctx.span(op)
    require_dtype(ctx, op, state, ("uint64",), what="a state")
    require_dtype(ctx, op, out, tuple(_WORDS_OF), what="a result")
    algorithm = "threefry" if op.option("algorithm") == "THREEFRY" else "philox"
    sizes = ((2,),) if algorithm == "threefry" else ((2,), (3,))
    if state.shape not in sizes or shape is None or not 1 <= prod(shape) <= LARGEST // 2:
        unsupported(ctx, op, f"{algorithm} by a state of {state} for {out.dtype}{list(shape or ())}", code="E1207")
    number = 2 * state.size
    flat = reshaped(call("bitcast", [operand(ctx, op, 0)], BitcastAttrs((state.size, 2), "uint32"), span=span), (number,), span)
    key, low, rest = (slice_of(ctx, op, flat, [range(a, z)]) for a, z in ((0, 2), (2, 4), (4, 6) if number == 6 else (0, 2)))
    counter = low if algorithm == "threefry" else call("concatenate", (low, rest), ConcatenateAttrs(0), span=span)
    per_element = _WORDS_OF[out.dtype]
    count = prod(shape) * per_element
    bits: Expr = call("random.bits", [counter, key], BitsAttrs(algorithm, count, 2), span=span)
    if per_element == 2:
        bits = reshaped(bits, (*shape, 2), span)
    if out.dtype != "uint32":
        bits = call("bitcast", [bits], BitcastAttrs(shape if per_element == 2 else (count,), out.dtype), span=span)
    blocks = -(-count // WORDS[algorithm])
    after = call("random.advance", [low], AdvanceAttrs(blocks, 2), span=span)
    parts = (key, after, rest) if number == 6 else (key, after)
    whole = reshaped(call("concatenate", parts, ConcatenateAttrs(0), span=span), (state.size, 2), span)
    return [call("bitcast", [whole], BitcastAttrs(state.shape, "uint64"), span=span), reshaped(bits, shape, span)]


register_op(
    "random.bits",
    2,
    arguments=[("counter", "uint32 [4] or [2]", "of the first block"), ("key", "uint32 [2]", "the seed")],
    attrs_type=BitsAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_bits,
    evaluate=evaluate_bits,
    doc="random words of Philox or Threefry",
)
register_op(
    "random.advance",
    1,
    arguments=[("counter", "uint32 [n]", "the words of a counter, the lowest first")],
    attrs_type=AdvanceAttrs,
    pattern=OpPattern.OPAQUE,
    infer_type=infer_advance,
    evaluate=evaluate_advance,
    doc="the counter of a generator after some blocks",
)
