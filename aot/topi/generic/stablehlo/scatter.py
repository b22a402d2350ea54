"""stablehlo.scatter: a copy, then each element of the updates at its place."""

from __future__ import annotations

from contextlib import ExitStack

from aot.op.stablehlo.scatter import ScatterAttrs
from aot.relay.expr import tensor_type
from aot.support.dtype import is_float
from aot.target.target import Target
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, binop, cast, imm, logical_and, select
from aot.topi.generic.flat import accepts_alone, flat_kernel
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def _flat_index(numbers: list[Expr], shape: tuple[int, ...]) -> Expr:
    at: Expr = imm(0)
    for number, extent in zip(numbers, shape, strict=True):
        at = at * extent + number
    return at


def _joined(b: IRBuilder, kind: str, old: Expr, new: Expr) -> Expr:
    """What becomes of an element; sums and products of integers wrap, of bool they are "or" and "and"."""
    old, new = b.let("old", old), b.let("new", new)
    if old.dtype == "float16":  # each step is rounded
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
    """The position along a dimension of `extent` that an element goes to, as int64; negative or too large if outside."""
    place: Expr = cast("int64", offset) if offset is not None else imm(0, "int64")
    if start is None:
        return place
    start = b.let("start", cast("int64", start))
    within = logical_and(start >= -extent, start < extent)  # compared before the sum, which may not overflow
    return b.let("place", select(within, start, imm(-2 * extent, "int64")) + place)


def lower_scatter(group: Group, _target: Target, name: str) -> Lowered:
    """Loops over the updates; the place of an element is a start from the indices and an offset in the slice."""
    kernel = flat_kernel(group, name)
    b, (data, indices, updates), out = kernel.b, kernel.args, kernel.out
    attrs: ScatterAttrs = group.anchor.attrs
    shape, index_shape, shape_of_updates = (tensor_type(a).shape for a in group.anchor.args)
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
    return kernel.finish("scatter")


register_impl(OpImplementation("generic.scatter", "stablehlo.scatter", accepts_alone, lower_scatter))
