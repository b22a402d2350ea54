"""Random numbers with the bits of the reference's generators."""

from __future__ import annotations

import math

import numpy as np

from aot.ir.op import Array, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.numerics.elementary import IN_FLOAT32, MATH
from aot.numerics.random import WORDS, advanced, random_bits
from aot.op.common.operator import Index, operator
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, equal, imm, select

# random.bits, random.advance: blocks of random bits from a counter and a key, and the advanced counter.
#
# Oracles: `PhiloxRandom` of TensorFlow's library, from which the operators of `distributions.py` draw, and, for
# STABLEHLO_RNG_BIT_GENERATOR, `kernels/rng_bit_generator.cc` with `rng_util.cc`.

LARGEST = 1 << 24
"""Words drawn at a time."""


@operator(
    "random.bits",
    "random words of Philox or Threefry",
    [("counter", "uint32 [4] or [2]", "of the first block"), ("key", "uint32 [2]", "the seed")],
)
class BitsAttrs:
    """The generator (philox, threefry), the number of words to draw, and how many words of its counter count as one number."""

    algorithm: str
    count: int
    words: int

    def infer_type(self, counter: TensorType, key: TensorType) -> Type:
        """uint32 counter [4 or 2] and key [2] -> uint32 [count]."""
        size = WORDS.get(self.algorithm, 0)
        if (counter.dtype, key.dtype, counter.shape, key.shape) != ("uint32", "uint32", (size,), (2,)):
            raise TypeRuleError(f"{self.algorithm} of {counter} by {key} is not valid")
        if not 1 <= self.count <= LARGEST or not 1 <= self.words <= size:
            raise TypeRuleError(f"random bits by {self} are not valid")
        return TensorType((self.count,), "uint32")

    def evaluate(self, counter: Array, key: Array, *, out_type: TensorType) -> Array:
        return random_bits(self.algorithm, counter, key, self.count, self.words)


@operator(
    "random.advance",
    "the counter of a generator after some blocks",
    [("counter", "uint32 [n]", "the words of a counter, the lowest first")],
)
class AdvanceAttrs:
    """The number of blocks, and how many words of the counter count as one number."""

    blocks: int
    words: int

    def infer_type(self, counter: TensorType) -> Type:
        """uint32 [n] -> uint32 [n]."""
        if counter.dtype != "uint32" or len(counter.shape) != 1 or not 1 <= self.words <= counter.size or self.blocks < 0:
            raise TypeRuleError(f"{counter} advanced by {self} is not valid")
        return counter

    def evaluate(self, counter: Array, *, out_type: TensorType) -> Array:
        return advanced(counter, self.blocks, self.words)


# RANDOM_UNIFORM, RANDOM_STANDARD_NORMAL and MULTINOMIAL of TFLite, drawn from Philox with the seeds of the file.
#
# The generator's counter is a state: each run continues where the last one ended, and a reset starts over.  uniform: 23 bits as a
# fraction.  normal: the Box-Muller transform turns two words into two numbers, in float32.  multinomial: the sum of exp(logit -
# largest) up to each class in double precision, and the first class whose sum exceeds a fraction (52 bits of two words) of the
# total.  Oracle: `kernels/random_ops.cc`, TensorFlow's `philox_random.h` and `random_distributions_utils.h`.

FRACTION = 2.0**-23
TWO_PI = float(np.float32(2)) * math.pi
EPSILON = float(np.float32(1e-7))


@dataclass(frozen=True, slots=True)
class DistributionAttrs:
    """Elements of the result."""

    count: int

    def infer_type(self, bits: TensorType) -> Type:
        """uint32 [at least count, an even number] -> float32 [count]."""
        if bits.dtype != "uint32" or len(bits.shape) != 1 or bits.size < self.count + self.count % 2 or self.count < 1:
            raise TypeRuleError(f"{self.count} random numbers from {bits} are not valid")
        return TensorType((self.count,), "float32")


@operator("random.uniform", "RANDOM_UNIFORM; from 0 to 1", [("bits", "uint32 [n]", "random words")])
class UniformAttrs(DistributionAttrs):
    """One word per number."""

    def evaluate(self, bits: Array, *, out_type: TensorType) -> Array:
        return _uniform(bits[: self.count])

    def element(self, b: IRBuilder, i: Index, bits: TensorFn, *, out_type: TensorType) -> Expr:
        return tir_uniform(bits.at(b, i))


def _uniform(bits: Array) -> Array:
    return (bits & np.uint32(0x7FFFFF)).astype(np.float32) * np.float32(FRACTION)


def tir_uniform(bits: Expr) -> Expr:
    """The fraction given by the lower 23 bits of a uint32."""
    return cast("float32", bits & imm(0x7FFFFF, "uint32")) * imm(FRACTION, "float32")


@operator("random.normal", "RANDOM_STANDARD_NORMAL", [("bits", "uint32 [n]", "random words")])
class NormalAttrs(DistributionAttrs):
    """Two words per pair of numbers."""

    def evaluate(self, bits: Array, *, out_type: TensorType) -> Array:
        first, second = bits[0::2], bits[1::2]
        size = np.maximum(_uniform(first), np.float32(EPSILON))
        radius = np.sqrt(np.float32(-2) * IN_FLOAT32["log"](size))
        angle = (_uniform(second).astype(np.float64) * TWO_PI).astype(np.float32)
        pairs = np.stack([IN_FLOAT32["sin"](angle) * radius, IN_FLOAT32["cos"](angle) * radius], axis=1)
        return np.asarray(pairs.reshape(-1)[: self.count], np.float32)

    def element(self, b: IRBuilder, index: Index, bits: TensorFn, *, out_type: TensorType) -> Expr:
        (i,) = index
        pair = b.let("pair", i / 2 * 2)
        size = b.let("size", tir_uniform(bits.at(b, (pair,))))
        least = imm(EPSILON, "float32")
        radius = MATH["sqrt"](imm(-2.0, "float32") * MATH["log"](select(size < least, least, size)))
        turn = cast("float64", tir_uniform(bits.at(b, (pair + 1,)))) * imm(TWO_PI, "float64")
        angle = b.let("angle", cast("float32", turn))
        found = b.local("found", (1,), "float32")
        with b.if_(equal(pair, i)):
            b.store(found, 0, MATH["sin"](angle))
        with b.else_():
            b.store(found, 0, MATH["cos"](angle))
        return found[0] * radius


@operator(
    "random.multinomial",
    "MULTINOMIAL; int32, int64",
    [("logits", "float32 [rows, classes]", "of each class"), ("bits", "uint32 [2 * rows * samples]", "random words")],
)
class MultinomialAttrs:
    """Draws per row, and the type of a class."""

    samples: int
    dtype: str

    def infer_type(self, logits: TensorType, bits: TensorType) -> Type:
        """float32 logits [rows, classes], uint32 [2 * rows * samples] -> int32 or int64 [rows, samples]."""
        if logits.dtype != "float32" or len(logits.shape) != 2 or not logits.size or self.dtype not in ("int32", "int64"):
            raise TypeRuleError(f"multinomial of {logits} as {self.dtype} is not valid")
        if self.samples < 1 or (bits.dtype, bits.shape) != ("uint32", (2 * logits.shape[0] * self.samples,)):
            raise TypeRuleError(f"{self.samples} draws from {logits} by {bits} are not valid")
        return TensorType((logits.shape[0], self.samples), self.dtype)

    def evaluate(self, logits: Array, bits: Array, *, out_type: TensorType) -> Array:
        mantissa = ((bits[0::2].astype(np.uint64) & np.uint64(0xFFFFF)) << np.uint64(32)) | bits[1::2]
        fractions = (mantissa.astype(np.float64) * 2.0**-52).reshape(out_type.shape)
        classes = np.empty(out_type.shape, np.int64)
        lowest = float(np.finfo(np.float32).min)
        for row, draws, out in zip(logits.astype(np.float64).tolist(), fractions, classes, strict=True):
            largest = max((v for v in row if math.isfinite(v)), default=lowest)
            total, sums = 0.0, []
            for v in row:
                total += math.exp(v - largest) if math.isfinite(v) else 0.0
                sums.append(total)
            out[:] = np.searchsorted(np.array(sums), draws * total, side="right")
        return classes.astype(out_type.dtype)
