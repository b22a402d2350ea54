"""random.bits, random.advance, random.multinomial: block by block, number by number."""

from __future__ import annotations

from functools import partial, reduce

from aot.numerics.elementary import EXP_DOUBLE
from aot.numerics.random import (
    PHILOX_FACTORS,
    PHILOX_ROUNDS,
    PHILOX_STEPS,
    THREEFRY_GROUPS,
    THREEFRY_PARITY,
    THREEFRY_ROTATIONS,
    WORDS,
)
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, equal, imm, logical_and, select
from aot.topi.generic.flat import FlatKernel, register_flat

LARGEST = 3.4028234663852886e38
"""The largest finite float32."""


def _word(value: int) -> Expr:
    return imm(value, "uint32")


def _xor(*words: Expr) -> Expr:
    return reduce(partial(binop, "^"), words)


def _count_up(b: IRBuilder, counter: Buffer, words: int) -> None:
    """Increment; the carry propagates through the first `words` words."""
    carry = b.local("carry", (1,), "uint32", init=1)
    for w in range(words):
        b.store(counter, w, counter[w] + carry[0])
        b.store(carry, 0, select(logical_and(equal(carry[0], 1), equal(counter[w], 0)), _word(1), _word(0)))


def _philox(b: IRBuilder, block: Buffer, key: Buffer) -> None:
    """Encrypt `block` in place; overwrites `key`."""
    with b.for_("round", PHILOX_ROUNDS):
        products = [
            b.let("product", cast("uint64", block[2 * i]) * imm(factor, "uint64")) for i, factor in enumerate(PHILOX_FACTORS)
        ]
        high = [cast("uint32", p >> imm(32, "uint64")) for p in products]
        first, third = b.let("first", _xor(high[1], block[1], key[0])), b.let("third", _xor(high[0], block[3], key[1]))
        for place, value in enumerate((first, cast("uint32", products[1]), third, cast("uint32", products[0]))):
            b.store(block, place, value)
        for i, step in enumerate(PHILOX_STEPS):
            b.store(key, i, key[i] + _word(step))


def _threefry(b: IRBuilder, block: Buffer, key: Buffer) -> None:
    """Encrypt `block` in place."""
    third = b.let("key", _xor(key[0], key[1], _word(THREEFRY_PARITY)))
    keys = (key[0], key[1], third)
    b.store(block, 0, block[0] + keys[0])
    b.store(block, 1, block[1] + keys[1])
    for group in range(THREEFRY_GROUPS):
        for rotation in THREEFRY_ROTATIONS[group % 2]:
            b.store(block, 0, block[0] + block[1])
            rotated = (block[1] << _word(rotation)) | (block[1] >> _word(32 - rotation))
            b.store(block, 1, _xor(rotated, block[0]))
        b.store(block, 0, block[0] + keys[(group + 1) % 3])
        b.store(block, 1, block[1] + keys[(group + 2) % 3] + _word(group + 1))


@register_flat("random.bits", name="random_bits")
def lower_bits(kernel: FlatKernel) -> None:
    """Encrypt a copy of counter and key for each block; the last block may be partial."""
    b, (counter, key), out = kernel.b, kernel.args, kernel.out
    attrs = kernel.attrs
    size = WORDS[attrs.algorithm]
    now = b.local("now", (size,), "uint32")
    for w in range(size):
        b.store(now, w, counter[w])
    with b.for_("i", -(-attrs.count // size)) as i:
        block, own = b.local("block", (size,), "uint32"), b.local("own", (2,), "uint32")
        for w in range(size):
            b.store(block, w, now[w])
        for w in range(2):
            b.store(own, w, key[w])
        (_philox if attrs.algorithm == "philox" else _threefry)(b, block, own)
        for w in range(size):  # registers cannot be indexed at run time
            at = b.let("at", i * size + w)
            if attrs.count % size == 0:
                b.store(out, at, block[w])
                continue
            with b.if_(at < attrs.count):
                b.store(out, at, block[w])
        _count_up(b, now, attrs.words)


@register_flat("random.advance", name="random_advance")
def lower_advance(kernel: FlatKernel) -> None:
    """A multi-word addition."""
    b, (counter,), out = kernel.b, kernel.args, kernel.out
    attrs = kernel.attrs
    total = b.local("total", (1,), "uint64", init=0)
    for w in range(counter.size):
        if w >= attrs.words:
            b.store(out, w, counter[w])
            continue
        part = imm(attrs.blocks >> 32 * w & 0xFFFFFFFF, "uint64")
        b.store(total, 0, total[0] + part + cast("uint64", counter[w]))
        b.store(out, w, cast("uint32", total[0]))
        b.store(total, 0, total[0] >> imm(32, "uint64"))


@register_flat("random.multinomial")
def lower_multinomial(kernel: FlatKernel) -> None:
    """Per row, the sums up to each class, then the draws; a class is the number of sums that are not above a draw."""
    b, (logits, bits), out = kernel.b, kernel.args, kernel.out
    samples, (rows, classes) = kernel.attrs.samples, kernel.shape(0)
    sums = b.scratch("sums", (classes,), "float64", align=8)
    limit = imm(LARGEST, "float32")
    with b.for_("m", rows) as m:
        largest, total = (
            b.local("largest", (1,), "float32", init=-LARGEST),
            b.local("total", (1,), "float64", init=0.0),
        )
        with b.for_("c", classes) as c:
            value = b.let("value", logits[m * classes + c])
            with b.if_(logical_and(value <= limit, value > largest[0])):
                b.store(largest, 0, value)
        with b.for_("c", classes) as c:
            value = b.let("value", logits[m * classes + c])
            with b.if_(logical_and(value <= limit, value >= -limit)):  # finite
                b.store(total, 0, total[0] + EXP_DOUBLE(cast("float64", value) - cast("float64", largest[0])))
            b.store(sums, c, total[0])
        with b.for_("j", samples) as j:
            at = b.let("at", m * samples + j)
            high = cast("uint64", bits[2 * at] & _word(0xFFFFF)) << imm(32, "uint64")
            fraction = cast("float64", high | cast("uint64", bits[2 * at + 1])) * imm(2.0**-52, "float64")
            draw = b.let("draw", fraction * total[0])
            chosen = b.local("found", (1,), "int32", init=0)
            with b.for_("c", classes) as c, b.if_(sums[c] <= draw):
                b.store(chosen, 0, c + 1)
            b.store(out, at, chosen[0])
