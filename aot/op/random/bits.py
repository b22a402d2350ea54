"""random.bits, random.advance: blocks of random bits from a counter and a key, and the counter after them.

Oracles: `PhiloxRandom` of TensorFlow's library, which the operators of `distributions.py` draw from, and, for
STABLEHLO_RNG_BIT_GENERATOR, `kernels/rng_bit_generator.cc` with `rng_util.cc`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.ir.op import Array, OpPattern, TypeRuleError, register_op
from aot.ir.type import TensorType, Type
from aot.numerics.random import WORDS, advanced, random_bits
from aot.op.common.move import tensors_of
from aot.support.dataclass import dataclass

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
