"""topk, cumsum, scatter_nd, unsorted_segment and sparse_to_dense: operators whose result is not one expression an element."""

from __future__ import annotations

from math import prod

from aot.op.common.move import clamped_index
from aot.op.qnn.add_n import tir_sum_code
from aot.op.tensor.segment import initial
from aot.relay.expr import tensor_type
from aot.support.dtype import is_float
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, equal, imm, logical_and, select
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl

WRAPPING = {"int8": "uint8", "int16": "uint16", "int32": "uint32", "int64": "uint64", "float16": "float32"}
"""Types in which sums wrap without overflow, and that in which float16 is added: the rounded sum is that of float16."""


def _added(b: IRBuilder, target: Buffer, index: Expr, value: Expr) -> None:
    """target[index] += value, integers wrapping, bool by "or"."""
    if target.dtype == "bool":
        b.store(target, index, binop("||", target[index], value))
        return
    wide = WRAPPING.get(target.dtype, target.dtype)
    total = cast(wide, target[index]) + cast(wide, value)
    b.store(target, index, cast("float16", total) if target.dtype == "float16" else total)


def lower_topk(group: Group, _target: Target, name: str) -> Lowered:
    """Row by row, each element is inserted into the sorted positions found so far: n * k comparisons at most."""
    kernel = flat_kernel(group, name)
    b, (data,), out = kernel.b, kernel.args, kernel.out
    k, n = group.anchor.attrs.k, tensor_type(group.anchor.args[0]).shape[-1]
    with b.for_("m", out.size // k) as m:
        first, base = b.let("first", m * k), b.let("base", m * n)
        with b.for_("c", n) as c:
            candidate = b.local("candidate", (1,), "int32", init=0)
            b.store(candidate, 0, c)
            with b.for_("place", k) as place, b.if_(candidate[0] >= 0):
                with b.if_(place >= c):  # beyond what was found: the candidate's own place
                    b.store(out, first + place, candidate[0])
                    b.store(candidate, 0, -1)
                with b.else_():
                    found = b.let("found", cast("int32", out[first + place]))
                    own, other = data[base + candidate[0]], data[base + found]
                    ahead, same = own > other, equal(own, other)
                    if is_float(data.dtype):  # a NaN, which is not equal to itself, is after all numbers
                        own_nan, other_nan = binop("!=", own, own), binop("!=", other, other)
                        ahead = binop("||", ahead, logical_and(other_nan, equal(own, own)))
                        same = binop("||", same, logical_and(own_nan, other_nan))
                    ahead = binop("||", ahead, logical_and(same, candidate[0] < found))
                    with b.if_(ahead):
                        b.store(out, first + place, candidate[0])
                        b.store(candidate, 0, found)
    return kernel.finish("topk")


def lower_cumsum(group: Group, _target: Target, name: str) -> Lowered:
    """One pass along the axis, the sum in a register."""
    kernel = flat_kernel(group, name)
    b, (data,), out = kernel.b, kernel.args, kernel.out
    attrs, shape = group.anchor.attrs, tensor_type(group.anchor).shape
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
    return kernel.finish("cumsum")


def lower_scatter_nd(group: Group, _target: Target, name: str) -> Lowered:
    """Zeros, then each update at its place; a place outside is left out."""
    kernel = flat_kernel(group, name)
    b, (indices, updates), out = kernel.b, kernel.args, kernel.out
    shape, depth = group.anchor.attrs.shape, tensor_type(group.anchor.args[0]).shape[-1]
    inner = prod(shape[depth:])
    with b.for_("i", out.size) as i:
        b.store(out, i, 0)
    with b.for_("m", indices.size // depth) as m:
        inside: Expr | None = None
        row: Expr = imm(0)
        for axis, extent in enumerate(shape[:depth]):
            number = b.let("number", indices[m * depth + axis])
            within = logical_and(number >= 0, number < extent)
            inside = within if inside is None else logical_and(inside, within)
            row = row * extent + cast("int32", number)
        assert inside is not None
        with b.if_(inside):
            base = b.let("base", row * inner)
            with b.for_("c", inner) as c:
                _added(b, out, base + c, updates[m * inner + c])
    return kernel.finish("scatter_nd")


def lower_segment(group: Group, _target: Target, name: str) -> Lowered:
    """Neutral values, then each row into its segment."""
    kernel = flat_kernel(group, name)
    b, (data, ids), out = kernel.b, kernel.args, kernel.out
    attrs = group.anchor.attrs
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
    return kernel.finish("unsorted_segment")


def lower_sparse_to_dense(group: Group, _target: Target, name: str) -> Lowered:
    """The default value, then each value at its place; a place outside is left out."""
    kernel = flat_kernel(group, name)
    b, (indices, values, default), out = kernel.b, kernel.args, kernel.out
    shape = group.anchor.attrs.shape
    with b.for_("i", out.size) as i:
        b.store(out, i, default[0])
    with b.for_("m", indices.size // len(shape)) as m:
        inside: Expr | None = None
        place: Expr = imm(0)
        for axis, extent in enumerate(shape):
            number = b.let("number", indices[m * len(shape) + axis])
            within = logical_and(number >= 0, number < extent)
            inside = within if inside is None else logical_and(inside, within)
            # brought into range, as the sum is computed for places outside, too
            place = place * extent + clamped_index(b, number, extent)
        assert inside is not None
        with b.if_(inside):
            b.store(out, place, values[m if values.size > 1 else imm(0)])
    return kernel.finish("sparse_to_dense")


register_impl(OpImplementation("generic.unsorted_segment", "unsorted_segment", accepts_alone, lower_segment))
register_impl(OpImplementation("generic.sparse_to_dense", "sparse_to_dense", accepts_alone, lower_sparse_to_dense))
register_impl(OpImplementation("generic.topk", "topk", accepts_alone, lower_topk))
register_impl(OpImplementation("generic.cumsum", "cumsum", accepts_alone, lower_cumsum))
register_impl(OpImplementation("generic.cumsum", "qnn.cumsum", accepts_alone, lower_cumsum))
register_impl(OpImplementation("generic.scatter_nd", "scatter_nd", accepts_alone, lower_scatter_nd))
