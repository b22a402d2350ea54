"""lsh_projection: FarmHash of seed and item, byte by byte, and the sign of the weighted sum."""

from __future__ import annotations

from functools import partial

from aot.numerics import farmhash
from aot.numerics.farmhash import BLOCK, State, Words, blocks_of, short_hash
from aot.relay.expr import tensor_type
from aot.support.dtype import itemsize
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, as_expr, binop, cast, imm, select
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

SEED_BYTES = 4


def _words(b: IRBuilder) -> Words:
    return Words(lambda n: imm(n & (1 << 64) - 1, "uint64"), partial(binop, "^"), lambda word: b.let("h", word))


def _fingerprint(b: IRBuilder, key: Buffer) -> Expr:
    """The hash of the bytes in `key`."""
    length, words = key.size, _words(b)

    def fetched(at: Expr | int, size: int) -> Expr:
        parts = [cast("uint64", key[as_expr(at) + i]) << imm(8 * i, "uint64") for i in range(size)]
        whole = parts[0]
        for part in parts[1:]:
            whole = whole | part
        return b.let("word", whole)

    def fetch(at: Expr | int) -> Expr:
        return fetched(at, 8)

    if length <= BLOCK:
        return as_expr(short_hash(words, fetch, lambda at: fetched(at, 4), length))
    state = b.local("state", (7,), "uint64")
    for k, word in enumerate(farmhash.start(words, fetch)):
        b.store(state, k, word)
    with b.for_("block", blocks_of(length)) as i:
        for k, word in enumerate(farmhash.block(words, fetch, b.let("at", i * BLOCK), _read(b, state))):
            b.store(state, k, word)
    return as_expr(farmhash.finish(words, fetch, length, _read(b, state)))


def _read(b: IRBuilder, state: Buffer) -> State:
    x, y, z, v0, v1, w0, w1 = (b.let("s", state[k]) for k in range(7))
    return x, y, z, v0, v1, w0, w1


def lower_lsh_projection(group: Group, _target: Target, name: str) -> Lowered:
    """Each seed with each item."""
    kernel = flat_kernel(group, name)
    b, (seeds, items, *weights), out = kernel.b, kernel.args, kernel.out
    (rows, bits), shape = tensor_type(group.anchor.args[0]).shape, tensor_type(group.anchor.args[1]).shape
    size = items.size // shape[0] * itemsize(items.dtype)
    key = b.scratch("key", (SEED_BYTES + size,), "uint8")
    with b.for_("row", rows) as row:
        signs = b.local("signs", (1,), "uint32", init=0)
        with b.for_("bit", bits) as bit:
            seed = b.let("seed", row * bits + bit)
            with b.for_("k", SEED_BYTES) as k:
                b.store(key, k, seeds.load("uint8", seed * SEED_BYTES + k))
            score = b.local("score", (1,), "float64", init=0.0)
            with b.for_("i", shape[0]) as i:
                with b.for_("k", size) as k:
                    b.store(key, k + SEED_BYTES, items.load("uint8", i * size + k))
                value = cast("float64", cast("int64", _fingerprint(b, key)))
                b.store(score, 0, score[0] + (cast("float64", weights[0][i]) * value if weights else value))
            side = b.let("side", select(score[0] > imm(0.0, "float64"), imm(1, "uint32"), imm(0, "uint32")))
            if group.anchor.attrs.dense:
                b.store(out, seed, cast("int32", side))
            else:
                b.store(signs, 0, (signs[0] << imm(1, "uint32")) | side)
        if not group.anchor.attrs.dense:
            b.store(out, row, cast("int32", signs[0] + (cast("uint32", row) << imm(bits, "uint32"))))
    return kernel.finish("lsh_projection")


register_impl(OpImplementation("generic.lsh_projection", "lsh_projection", accepts_alone, lower_lsh_projection))
