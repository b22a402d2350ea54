"""Operators whose result is not one expression per element: sorting, running sums, scattering, table search."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial, reduce
from math import prod

from aot.numerics import farmhash
from aot.numerics.elementary import MATH
from aot.numerics.farmhash import BLOCK, State, Words, blocks_of, short_hash
from aot.op.common.tensors import clamped_index
from aot.op.lookup import EmbeddingLookupSparseAttrs
from aot.op.qnn.arithmetic import tir_sum_code
from aot.op.stablehlo import ScatterAttrs
from aot.op.tensor.gather import initial
from aot.relay.expr import tensor_type
from aot.support.dtype import is_float, itemsize
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, as_expr, binop, cast, equal, imm, logical_and, select
from aot.topi.generic.flat import FlatKernel, register_flat

WRAPPING = {"int8": "uint8", "int16": "uint16", "int32": "uint32", "int64": "uint64", "float16": "float32"}
"""Types in which sums wrap without overflow; float16 is added in float32, and the rounded sum equals that of float16."""


def _inside(numbers: Sequence[Expr], shape: Sequence[int]) -> Expr:
    """Whether all indices are within their extents."""
    return reduce(logical_and, (logical_and(n >= 0, n < extent) for n, extent in zip(numbers, shape, strict=True)))


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
    with b.for_("i", out.size) as i:
        b.store(out, i, 0)
    with b.for_("m", indices.size // depth) as m:
        numbers = [b.let("number", indices[m * depth + axis]) for axis in range(depth)]
        row: Expr = imm(0)
        for number, extent in zip(numbers, shape, strict=False):
            row = row * extent + cast("int32", number)
        with b.if_(_inside(numbers, shape[:depth])):
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
    with b.for_("i", out.size) as i:
        b.store(out, i, imm(initial(attrs.kind, data.dtype), data.dtype))
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
    with b.for_("i", out.size) as i:
        b.store(out, i, default[0])
    with b.for_("m", indices.size // len(shape)) as m:
        numbers: list[Expr] = []
        place: Expr = imm(0)
        for axis, extent in enumerate(shape):
            numbers.append(b.let("number", indices[m * len(shape) + axis]))
            # clamped, as the sum is also computed for places outside
            place = place * extent + clamped_index(b, numbers[-1], extent)
        with b.if_(_inside(numbers, shape)):
            b.store(out, place, values[m if values.size > 1 else imm(0)])


# stablehlo.scatter: a copy, then each element of the updates at its place.


def _flat_index(numbers: list[Expr], shape: tuple[int, ...]) -> Expr:
    at: Expr = imm(0)
    for number, extent in zip(numbers, shape, strict=True):
        at = at * extent + number
    return at


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
    with b.for_("i", out.size) as i:
        b.store(out, i, data[i])
    with ExitStack() as loops:
        at = [loops.enter_context(b.for_("u", extent)) for extent in shape_of_updates]
        batch = [v for d, v in enumerate(at) if d not in attrs.window_dims]
        offsets = dict(zip(attrs.window_of(len(shape)), (at[d] for d in sorted(attrs.window_dims)), strict=True))
        places: list[Expr] = []
        inside: Expr = imm(1, "bool")
        for dim, extent in enumerate(shape):
            start = None
            if dim in attrs.index_map:
                entry: list[Expr] = list(batch)
                entry.insert(attrs.index_vector_dim, imm(attrs.index_map.index(dim)))
                start = indices[_flat_index(entry, index_shape)]
            place = _place(b, extent, start, offsets.get(dim))
            within = logical_and(place >= 0, place < extent)
            inside = logical_and(inside, within) if dim else within
            places.append(cast("int32", place))
        element = updates[_flat_index(list(at), shape_of_updates)]
        with b.if_(inside):
            index = b.let("at", _flat_index(places, shape))
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
    with b.for_("i", out.size) as i:
        b.store(out, i, 0.0)
    now, number = b.local("now", (1,), "int32", init=0), b.local("number", (1,), "int32", init=0)
    sums = (b.local("total", (1,), "float32", init=0.0), b.local("squares", (1,), "float32", init=0.0))
    with b.for_("i", ids.size) as i:
        row = b.let("row", ids[i])
        inside = logical_and(row >= 0, row < table.size // inner)
        numbers = [b.let("number", indices[i * depth + k]) for k in range(depth - 1)]
        for k, extent in zip(numbers, attrs.places, strict=True):
            inside = logical_and(inside, logical_and(k >= 0, k < extent))
        with b.if_(inside):
            place: Expr = imm(0)
            for k, extent in zip(numbers, attrs.places, strict=True):
                place = place * extent + k
            place = b.let("place", place)
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
