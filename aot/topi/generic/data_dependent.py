"""Operators whose result is not one expression per element: sorting, running sums, scattering, table search, random numbers."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial, reduce
from math import prod
from operator import or_

from aot.numerics import farmhash, random
from aot.numerics.elementary import EXP_DOUBLE, MATH
from aot.numerics.farmhash import BLOCK, State, Words, blocks_of, short_hash
from aot.op.common.tensors import clamped_index
from aot.op.gather import EmbeddingLookupSparseAttrs, ScatterAttrs, initial
from aot.op.qnn.arithmetic import tir_sum_code
from aot.relay.expr import tensor_type
from aot.support.dtype import is_float, itemsize
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, as_expr, binop, cast, equal, imm, logical_and, select
from aot.topi.generic.flat import FlatKernel, fill, flat_place, inside, register_flat

WRAPPING = {"int8": "uint8", "int16": "uint16", "int32": "uint32", "int64": "uint64", "float16": "float32"}
"""Types in which sums wrap without overflow; float16 is added in float32, and the rounded sum equals that of float16."""


def _added(b: IRBuilder, target: Buffer, index: Expr, value: Expr) -> None:
    """target[index] += value; integers wrap, bool uses "or"."""
    if target.dtype == "bool":
        b.store(target, index, binop("||", target[index], value))
        return
    wide = WRAPPING.get(target.dtype, target.dtype)
    total = cast(wide, target[index]) + cast(wide, value)
    b.store(target, index, cast("float16", total) if target.dtype == "float16" else total)


@register_flat("topk")
def lower_topk(kernel: FlatKernel) -> None:
    """Insert each element of a row into the sorted best ones so far: at most n * k comparisons."""
    b, (data,), out = kernel.b, kernel.args, kernel.out
    k, n = kernel.attrs.k, kernel.shape(0)[-1]
    with b.for_("m", out.size // k) as m:
        first, base = b.let("first", m * k), b.let("base", m * n)
        with b.for_("c", n) as c:
            candidate = b.local("candidate", (1,), "int32", init=0)
            b.store(candidate, 0, c)
            with b.for_("place", k) as place, b.if_(candidate[0] >= 0):
                with b.if_(place >= c):  # beyond the sorted elements: the candidate's own place
                    b.store(out, first + place, candidate[0])
                    b.store(candidate, 0, -1)
                with b.else_():
                    index = b.let("found", cast("int32", out[first + place]))
                    own, other = data[base + candidate[0]], data[base + index]
                    ahead, same = own > other, equal(own, other)
                    if is_float(data.dtype):  # NaN, which is not equal to itself, comes after all numbers
                        own_nan, other_nan = binop("!=", own, own), binop("!=", other, other)
                        ahead = binop("||", ahead, logical_and(other_nan, equal(own, own)))
                        same = binop("||", same, logical_and(own_nan, other_nan))
                    ahead = binop("||", ahead, logical_and(same, candidate[0] < index))
                    with b.if_(ahead):
                        b.store(out, first + place, candidate[0])
                        b.store(candidate, 0, index)


@register_flat("cumsum", "qnn.cumsum")
def lower_cumsum(kernel: FlatKernel) -> None:
    """One pass along the axis, with the sum in a register."""
    b, (data,), out = kernel.b, kernel.args, kernel.out
    attrs, shape = kernel.attrs, tensor_type(kernel.anchor).shape
    n, inner = shape[attrs.axis], prod(shape[attrs.axis + 1 :])
    codes = attrs.codes
    wide = "int32" if codes is not None else WRAPPING.get(data.dtype, data.dtype)
    with b.for_("m", prod(shape[: attrs.axis])) as m, b.for_("c", inner) as c:
        total = b.local("total", (1,), wide, init=0 if codes is None else -codes.input_zp)
        with b.for_("k", n) as k:
            position = imm(n - 1) - k if attrs.reverse else k
            index = b.let("index", (m * n + position) * inner + c)
            value = b.let("value", cast(wide, data[index]) - (codes.input_zp if codes is not None else 0))
            if attrs.exclusive:
                b.store(out, index, total[0] if codes is None else tir_sum_code(b, total[0], codes))
            b.store(total, 0, total[0] + value)
            if not attrs.exclusive:
                b.store(out, index, total[0] if codes is None else tir_sum_code(b, total[0], codes))


@register_flat("scatter_nd")
def lower_scatter_nd(kernel: FlatKernel) -> None:
    """Zeros, then each update at its place; places outside are skipped."""
    b, (indices, updates), out = kernel.b, kernel.args, kernel.out
    shape, depth = kernel.attrs.shape, kernel.shape(0)[-1]
    inner = prod(shape[depth:])
    fill(b, out, 0)
    with b.for_("m", indices.size // depth) as m:
        numbers = [b.let("number", indices[m * depth + axis]) for axis in range(depth)]
        row = flat_place((cast("int32", number) for number in numbers), shape)
        with b.if_(inside(numbers, shape[:depth])):
            base = b.let("base", row * inner)
            with b.for_("c", inner) as c:
                _added(b, out, base + c, updates[m * inner + c])


@register_flat("unsorted_segment")
def lower_segment(kernel: FlatKernel) -> None:
    """Neutral values, then each row is added to its segment."""
    b, (data, ids), out = kernel.b, kernel.args, kernel.out
    attrs = kernel.attrs
    inner = out.size // attrs.count
    wide = WRAPPING.get(data.dtype, data.dtype)
    fill(b, out, imm(initial(attrs.kind, data.dtype), data.dtype))
    with b.for_("m", ids.size) as m:
        segment = b.let("segment", ids[m])
        with b.if_(logical_and(segment >= 0, segment < attrs.count)), b.for_("c", inner) as c:
            at = b.let("at", segment * inner + c)
            old, new = b.let("old", out[at]), b.let("new", data[m * inner + c])
            if attrs.kind in ("max", "min"):
                b.store(out, at, select(old < new if attrs.kind == "max" else new < old, new, old))
            elif attrs.kind == "sum":
                b.store(out, at, cast(wide, old) + cast(wide, new))
            else:
                b.store(out, at, cast(wide, old) * cast(wide, new))


@register_flat("sparse_to_dense")
def lower_sparse_to_dense(kernel: FlatKernel) -> None:
    """The default value, then each value at its place; places outside are skipped."""
    b, (indices, values, default), out = kernel.b, kernel.args, kernel.out
    shape = kernel.attrs.shape
    fill(b, out, default[0])
    with b.for_("m", indices.size // len(shape)) as m:
        numbers, clamped = list[Expr](), list[Expr]()
        for axis, extent in enumerate(shape):
            numbers.append(b.let("number", indices[m * len(shape) + axis]))
            clamped.append(clamped_index(b, numbers[-1], extent))  # as the sum is also computed for places outside
        place = flat_place(clamped, shape)
        with b.if_(inside(numbers, shape)):
            b.store(out, place, values[m if values.size > 1 else imm(0)])


# stablehlo.scatter: a copy, then each element of the updates at its place.


def _joined(b: IRBuilder, kind: str, old: Expr, new: Expr) -> Expr:
    """The new value of an element; sums and products of integers wrap, for bool they are "or" and "and"."""
    old, new = b.let("old", old), b.let("new", new)
    if old.dtype == "float16":  # every step is rounded
        return cast("float16", _joined(b, kind, cast("float32", old), cast("float32", new)))
    if kind in ("maximum", "minimum"):
        if old.dtype == "bool":
            return binop("||" if kind == "maximum" else "&&", old, new)
        return select(old < new if kind == "maximum" else new < old, new, old)
    if old.dtype == "bool":
        return binop("||" if kind == "add" else "&&", old, new)
    wide = old.dtype if is_float(old.dtype) else "uint64" if old.dtype.endswith("64") else "uint32"
    return cast(old.dtype, binop("+" if kind == "add" else "*", cast(wide, old), cast(wide, new)))


def _place(b: IRBuilder, extent: int, start: Expr | None, offset: Expr | None) -> Expr:
    """The position (int64) of an element along a dimension of `extent`; negative or too large if outside."""
    place: Expr = cast("int64", offset) if offset is not None else imm(0, "int64")
    if start is None:
        return place
    start = b.let("start", cast("int64", start))
    within = logical_and(start >= -extent, start < extent)  # compared before the sum, so that it cannot overflow
    return b.let("place", select(within, start, imm(-2 * extent, "int64")) + place)


@register_flat("stablehlo.scatter")
def lower_scatter(kernel: FlatKernel) -> None:
    """Loops over the updates; the place of an element is a start from the indices plus an offset in the slice."""
    b, (data, indices, updates), out = kernel.b, kernel.args, kernel.out
    attrs: ScatterAttrs = kernel.attrs
    shape, index_shape, shape_of_updates = (tensor_type(a).shape for a in kernel.anchor.args)
    fill(b, out, lambda i: data[i])
    with ExitStack() as loops:
        at = [loops.enter_context(b.for_("u", extent)) for extent in shape_of_updates]
        batch = [v for d, v in enumerate(at) if d not in attrs.window_dims]
        offsets = dict(zip(attrs.window_of(len(shape)), (at[d] for d in sorted(attrs.window_dims)), strict=True))
        places: list[Expr] = []
        within: Expr = imm(1, "bool")
        for dim, extent in enumerate(shape):
            start = None
            if dim in attrs.index_map:
                entry: list[Expr] = list(batch)
                entry.insert(attrs.index_vector_dim, imm(attrs.index_map.index(dim)))
                start = indices[flat_place(entry, index_shape)]
            place = _place(b, extent, start, offsets.get(dim))
            within = inside([place], [extent], *[within] * (dim > 0))
            places.append(cast("int32", place))
        element = updates[flat_place(list(at), shape_of_updates)]
        with b.if_(within):
            index = b.let("at", flat_place(places, shape))
            b.store(out, index, element if attrs.kind == "update" else _joined(b, attrs.kind, out[index], element))


# embedding_lookup_sparse: entry by entry; the place of the last entry and its weights stay in registers.


def _divide(
    b: IRBuilder, attrs: EmbeddingLookupSparseAttrs, out: Buffer, place: Expr, sums: tuple[Buffer, Buffer], n: int
) -> None:
    """Divide the row of `place` by the combination of its weights."""
    total, squares = sums
    divisor = b.let("divisor", total[0] if attrs.combiner == "MEAN" else MATH["sqrt"](squares[0]))
    with b.for_("c", n) as c:
        at = b.let("at", place * n + c)
        b.store(out, at, out[at] / divisor)


@register_flat("embedding_lookup_sparse")
def lower_embedding_lookup_sparse(kernel: FlatKernel) -> None:
    """Zeros, then each entry."""
    b, (ids, indices, weights, table), out = kernel.b, kernel.args, kernel.out
    attrs: EmbeddingLookupSparseAttrs = kernel.attrs
    depth, inner = len(attrs.places) + 1, out.size // prod(attrs.places)
    fill(b, out, 0.0)
    now, number = b.local("now", (1,), "int32", init=0), b.local("number", (1,), "int32", init=0)
    sums = (b.local("total", (1,), "float32", init=0.0), b.local("squares", (1,), "float32", init=0.0))
    with b.for_("i", ids.size) as i:
        row = b.let("row", ids[i])
        numbers = [b.let("number", indices[i * depth + k]) for k in range(depth - 1)]
        with b.if_(inside([row, *numbers], [table.size // inner, *attrs.places])):
            place = b.let("place", flat_place(numbers, attrs.places))
            with b.if_(binop("!=", place, now[0])):
                if attrs.combiner != "SUM":
                    with b.if_(number[0] > 0):
                        _divide(b, attrs, out, now[0], sums, inner)
                b.store(now, 0, place)
                b.store(number, 0, 0)
                for s in sums:
                    b.store(s, 0, 0.0)
            w = b.let("w", weights[i])
            b.store(number, 0, number[0] + 1)
            b.store(sums[0], 0, sums[0][0] + w)
            b.store(sums[1], 0, sums[1][0] + w * w)
            with b.for_("c", inner) as c:
                at = b.let("at", place * inner + c)
                b.store(out, at, out[at] + table[row * inner + c] * w)
    if attrs.combiner != "SUM":
        with b.if_(number[0] > 0):
            _divide(b, attrs, out, now[0], sums, inner)


# lsh_projection: FarmHash of seed and item, byte by byte, and the sign of the weighted sum.


SEED_BYTES = 4


def _words(b: IRBuilder) -> Words:
    return Words(lambda n: imm(n & (1 << 64) - 1, "uint64"), partial(binop, "^"), lambda word: b.let("h", word))


def _fingerprint(b: IRBuilder, key: Buffer) -> Expr:
    """The hash of the bytes in `key`."""
    length, words = key.size, _words(b)

    def fetched(at: Expr | int, size: int) -> Expr:
        parts = (cast("uint64", key[as_expr(at) + i]) << imm(8 * i, "uint64") for i in range(size))
        return b.let("word", reduce(or_, parts))

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


@register_flat("lsh_projection")
def lower_lsh_projection(kernel: FlatKernel) -> None:
    """Each seed with each item."""
    b, (seeds, items, *weights), out = kernel.b, kernel.args, kernel.out
    (rows, bits), shape = kernel.shape(0), kernel.shape(1)
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
            if kernel.attrs.dense:
                b.store(out, seed, cast("int32", side))
            else:
                b.store(signs, 0, (signs[0] << imm(1, "uint32")) | side)
        if not kernel.attrs.dense:
            b.store(out, row, cast("int32", signs[0] + (cast("uint32", row) << imm(bits, "uint32"))))


# random.bits, random.advance, random.multinomial: block by block, number by number.


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
    with b.for_("round", random.PHILOX_ROUNDS):
        products = [
            b.let("product", cast("uint64", block[2 * i]) * imm(factor, "uint64"))
            for i, factor in enumerate(random.PHILOX_FACTORS)
        ]
        high = [cast("uint32", p >> imm(32, "uint64")) for p in products]
        first, third = b.let("first", _xor(high[1], block[1], key[0])), b.let("third", _xor(high[0], block[3], key[1]))
        for place, value in enumerate((first, cast("uint32", products[1]), third, cast("uint32", products[0]))):
            b.store(block, place, value)
        for i, step in enumerate(random.PHILOX_STEPS):
            b.store(key, i, key[i] + _word(step))


def _threefry(b: IRBuilder, block: Buffer, key: Buffer) -> None:
    """Encrypt `block` in place."""
    third = b.let("key", _xor(key[0], key[1], _word(random.THREEFRY_PARITY)))
    keys = (key[0], key[1], third)
    b.store(block, 0, block[0] + keys[0])
    b.store(block, 1, block[1] + keys[1])
    for group in range(random.THREEFRY_GROUPS):
        for rotation in random.THREEFRY_ROTATIONS[group % 2]:
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
    size = random.WORDS[attrs.algorithm]
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
