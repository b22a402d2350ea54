"""Converters of operators that read or write at computed places: gather, scatter, segments, lookup tables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.tflite.convert import (
    EVERY,
    ConvertContext,
    constant_ints,
    from_tflite,
    normalized_axis,
    one_int,
    operand,
    require_dtype,
    reshaped,
    unsupported,
)
from aot.frontend.view import OperatorView
from aot.ir.type import TensorType
from aot.op.common.tensors import INDEX_TYPES, MOVABLE
from aot.op.lookup import BinarySearchAttrs, EmbeddingLookupSparseAttrs, LshProjectionAttrs, misfit
from aot.op.math.arithmetic import BinaryAttrs, CompareAttrs, SelectAttrs
from aot.op.math.cast import CastAttrs
from aot.op.stablehlo import KINDS, GatherAttrs, ScatterAttrs, gather_misfit, scatter_misfit
from aot.op.tensor.gather import (
    SEGMENT_TYPES,
    DynamicUpdateSliceAttrs,
    GatherNdAttrs,
    OneHotAttrs,
    ScatterNdAttrs,
    SegmentAttrs,
    SparseToDenseAttrs,
    TakeAttrs,
)
from aot.op.tensor.pad import FullAttrs
from aot.relay.expr import Constant, Expr, call, const


def check_constant_indices(ctx: ConvertContext, op: OperatorView, i: int, extents: Sequence[int]) -> None:
    """Refuse constant indices outside `extents` (one for all, or one per entry of the last dimension)."""
    expr = operand(ctx, op, i)
    if isinstance(expr, Constant) and expr.data.size and ((expr.data < 0) | (expr.data >= np.array(extents))).any():
        unsupported(ctx, op, f"operand {i} contains an index outside {list(extents)}", code="E1133")


@from_tflite("GATHER", EVERY, "take")
def convert_gather(ctx: ConvertContext, op: OperatorView) -> Expr:
    """take; axis and batch_dims may be negative."""
    data, indices = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, MOVABLE)
    require_dtype(ctx, op, indices, INDEX_TYPES, what="an index")
    axis = normalized_axis(ctx, op, int(op.option("axis")), len(data.shape))
    batch = int(op.option("batch_dims"))
    batch += len(indices.shape) if batch < 0 else 0
    check_constant_indices(ctx, op, 1, (data.shape[axis],))
    return call("take", [operand(ctx, op, 0), operand(ctx, op, 1)], TakeAttrs(axis, batch), span=ctx.span(op))


@from_tflite("GATHER_ND", EVERY, "gather_nd")
def convert_gather_nd(ctx: ConvertContext, op: OperatorView) -> Expr:
    """gather_nd."""
    data, indices = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, MOVABLE)
    require_dtype(ctx, op, indices, INDEX_TYPES, what="an index")
    if indices.shape and indices.shape[-1] <= len(data.shape):
        check_constant_indices(ctx, op, 1, data.shape[: indices.shape[-1]])
    return call("gather_nd", [operand(ctx, op, 0), operand(ctx, op, 1)], GatherNdAttrs(), span=ctx.span(op))


@from_tflite("SCATTER_ND", EVERY, "scatter_nd")
def convert_scatter_nd(ctx: ConvertContext, op: OperatorView) -> Expr:
    """scatter_nd."""
    indices, updates = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, indices, ("int32", "int64"), what="an index")
    require_dtype(ctx, op, updates, MOVABLE)
    shape = tuple(constant_ints(ctx, op, 2))
    if indices.shape and indices.shape[-1] <= len(shape):
        check_constant_indices(ctx, op, 0, shape[: indices.shape[-1]])
    args = [operand(ctx, op, 0), operand(ctx, op, 1)]
    return call("scatter_nd", args, ScatterNdAttrs(shape), span=ctx.span(op))


@from_tflite("ONE_HOT", EVERY, "one_hot")
def convert_one_hot(ctx: ConvertContext, op: OperatorView) -> Expr:
    """one_hot; an axis of -1 puts the new dimension last."""
    indices, on = ctx.input_type(op, 0), ctx.input_type(op, 2)
    require_dtype(ctx, op, indices, ("int32", "int64"), what="an index")
    require_dtype(ctx, op, on, MOVABLE)
    if on.size != 1 or ctx.input_type(op, 3).size != 1:
        unsupported(ctx, op, "on_value and off_value must be scalars", code="E1130")
    axis = normalized_axis(ctx, op, int(op.option("axis")), len(indices.shape) + 1)
    span = ctx.span(op)
    args = [operand(ctx, op, 0), *(reshaped(operand(ctx, op, i), (1,), span) for i in (2, 3))]
    return call("one_hot", args, OneHotAttrs(one_int(ctx, op, 1), axis), span=span)


@from_tflite("UNSORTED_SEGMENT_SUM", "int32 float32", "unsorted_segment")
@from_tflite("UNSORTED_SEGMENT_PROD", "int32 float32", "unsorted_segment")
@from_tflite("UNSORTED_SEGMENT_MAX", "int32 float32", "unsorted_segment")
@from_tflite("UNSORTED_SEGMENT_MIN", "int32 float32", "unsorted_segment")
def convert_unsorted_segment(ctx: ConvertContext, op: OperatorView) -> Expr:
    """unsorted_segment."""
    data, ids = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, SEGMENT_TYPES)
    require_dtype(ctx, op, ids, {"int32"}, what="an id")
    count = one_int(ctx, op, 2)
    if count < 1 or data.shape[: len(ids.shape)] != ids.shape or not data.size:
        unsupported(ctx, op, f"{count} segments of {data} by {ids} are not supported", code="E1207")
    attrs = SegmentAttrs(op.opcode.rpartition("_")[2].lower(), count)
    return call("unsorted_segment", [operand(ctx, op, 0), operand(ctx, op, 1)], attrs, span=ctx.span(op))


@from_tflite("SEGMENT_SUM", "int32 float32", "unsorted_segment")
def convert_segment_sum(ctx: ConvertContext, op: OperatorView) -> Expr:
    """unsorted_segment with as many segments as the constant ids name."""
    data = ctx.input_type(op, 0)
    require_dtype(ctx, op, data, SEGMENT_TYPES)
    require_dtype(ctx, op, ctx.input_type(op, 1), {"int32"}, what="an id")
    ids = ctx.constant(op, 1)
    steps = np.diff(ids.astype(np.int64).ravel(), prepend=-1)
    if data.shape[:1] != ids.shape or not data.size or steps[0] != 1 or ((steps != 0) & (steps != 1)).any():
        unsupported(ctx, op, f"{data} in segments {ids.ravel().tolist()}, which do not ascend from 0 by steps of 1", code="E1207")
    attrs = SegmentAttrs("sum", int(ids[-1]) + 1)
    return call("unsorted_segment", [operand(ctx, op, 0), operand(ctx, op, 1)], attrs, span=ctx.span(op))


SCATTERED_TYPES = ("int8", "uint8", "int32", "int64", "float32")


@from_tflite("SPARSE_TO_DENSE", "int8 uint8 int32 int64 float32", "full sparse_to_dense")
def convert_sparse_to_dense(ctx: ConvertContext, op: OperatorView) -> Expr:
    """sparse_to_dense."""
    indices, values, default, span = ctx.input_type(op, 0), ctx.input_type(op, 2), ctx.input_type(op, 3), ctx.span(op)
    require_dtype(ctx, op, indices, ("int32", "int64"), what="an index")
    require_dtype(ctx, op, values, SCATTERED_TYPES)
    require_dtype(ctx, op, default, {values.dtype}, what="the default value")
    shape = tuple(constant_ints(ctx, op, 1))
    rank = len(indices.shape)
    count = indices.shape[0] if rank else 1
    depth = indices.shape[1] if rank == 2 else 1
    fits = rank <= 2 and depth == len(shape) <= 4 and values.shape in ((), (1,), (count,)) and default.size == 1
    if not fits or not shape or min(shape) < 1:
        unsupported(ctx, op, f"{values} at {indices} do not fit into {list(shape)}", code="E1207")
    if not count:
        return call("full", [reshaped(operand(ctx, op, 3), (1,), span)], FullAttrs(shape), span=span)
    places = reshaped(operand(ctx, op, 0), (count, depth), span)
    elements = reshaped(operand(ctx, op, 2), (values.size,), span)
    args = [places, elements, reshaped(operand(ctx, op, 3), (1,), span)]
    return call("sparse_to_dense", args, SparseToDenseAttrs(shape), span=span)


# EMBEDDING_LOOKUP of TFLite: rows of a table; float32 rows of an integer table are scaled at lookup.
#
# out[i] = float(table[indices[i]]) * scale, the table's or the row's.  The table stays integer in flash.
# Oracle: `EvalSimple` and `EvalHybrid` of kernels/embedding_lookup.cc.


EMBEDDED_CODES = ("int8", "int4")
EMBEDDED_FLOATS = ("float32", "float16")
"""Result types of an integer table; float16 is a rounded float32."""


@from_tflite("EMBEDDING_LOOKUP", EVERY, "take cast multiply")
def convert_embedding(ctx: ConvertContext, op: OperatorView) -> Expr:
    """take of rows: operand 0 has the indices, operand 1 is the table."""
    table, out = ctx.input_type(op, 1), ctx.output_type(op)
    check_constant_indices(ctx, op, 0, table.shape[:1])
    if out.dtype in EMBEDDED_FLOATS and table.dtype in EMBEDDED_CODES:
        return _scaled_rows(ctx, op, table)
    require_dtype(ctx, op, table, MOVABLE)
    require_dtype(ctx, op, out, (table.dtype,), what="a result")
    return call("take", [operand(ctx, op, 1), operand(ctx, op, 0)], TakeAttrs(0), span=ctx.span(op))


def _scaled_rows(ctx: ConvertContext, op: OperatorView, table: TensorType) -> Expr:
    """Rows as float32, times one scale or the row's own, rounded if the result is float16."""
    span, indices, quant = ctx.span(op), operand(ctx, op, 0), table.quant
    if quant is None:
        unsupported(ctx, op, f"a table of {table.dtype} has no quantisation parameters", code="E1206")
    if any(quant.zero_point):
        unsupported(ctx, op, "a table with a zero point is not supported with a float result", code="E1224")
    if table.dtype == "int4" and prod(table.shape[1:]) % 2:  # the reference would start rows half a byte too early
        unsupported(ctx, op, "rows of an odd number of int4 values are not supported")
    rows = operand(ctx, op, 1)
    if isinstance(rows, Constant):
        rows = const(rows.data, dtype="int8", span=span)  # int4 has been unpacked
    elif table.dtype != "int8":
        unsupported(ctx, op, f"a table of {table.dtype} that is computed at run time is not supported")
    scales = np.asarray(quant.scale, np.float32)
    factor: Expr = const(scales[0], span=span)
    if len(scales) > 1:
        if quant.axis != 0 or len(scales) != table.shape[0]:
            unsupported(ctx, op, f"{len(scales)} scales along axis {quant.axis} do not match the rows", code="E1223")
        each = const(scales.reshape(-1, *(1 for _ in table.shape[1:])), span=span)
        factor = call("take", [each, indices], TakeAttrs(0), span=span)
    selected = call("cast", [call("take", [rows, indices], TakeAttrs(0), span=span)], CastAttrs("float32"), span=span)
    scaled = call("multiply", [selected, factor], BinaryAttrs(), span=span)
    return scaled if ctx.output_type(op).dtype == "float32" else call("cast", [scaled], CastAttrs("float16"), span=span)


@from_tflite("DYNAMIC_UPDATE_SLICE", EVERY, "dynamic_update_slice")
def convert_dynamic_update_slice(ctx: ConvertContext, op: OperatorView) -> Expr:
    """dynamic_update_slice; TFLite does not change scalars either."""
    require_dtype(ctx, op, ctx.input_type(op, 0), MOVABLE)
    require_dtype(ctx, op, ctx.input_type(op, 2), ("int32", "int64"), what="a position")
    args = [operand(ctx, op, i) for i in range(3)]
    return call("dynamic_update_slice", args, DynamicUpdateSliceAttrs(), span=ctx.span(op))


@from_tflite("HASHTABLE_LOOKUP", EVERY, "binary_search cast greater_equal select take")
def convert_hashtable_lookup(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """(rows, hits): the search, then the rows that it found."""
    sought, keys, table, span = (*(ctx.input_type(op, i) for i in range(3)), ctx.span(op))
    require_dtype(ctx, op, sought, ("int32",), what="a lookup")
    require_dtype(ctx, op, keys, ("int32",), what="a key")
    require_dtype(ctx, op, table, MOVABLE, what="a value")
    require_dtype(ctx, op, ctx.output_type(op, 1), ("uint8",), what="a hit")
    if len(sought.shape) != 1 or len(keys.shape) != 1 or not keys.size or table.shape[:1] != keys.shape:
        unsupported(ctx, op, f"{sought} looked up in {keys} and {table} are not supported", code="E1207")
    place = call("binary_search", [operand(ctx, op, 0), operand(ctx, op, 1)], BinarySearchAttrs(), span=span)
    hit = call("greater_equal", [place, const(np.zeros(1, np.int32), span=span)], CompareAttrs(), span=span)
    rows = call("take", [operand(ctx, op, 2), place], TakeAttrs(0), span=span)
    # zero bytes, whatever value they represent
    nothing = const(np.zeros((1,) * len(table.shape), table.dtype), quant=table.quant, span=span)
    flags = reshaped(hit, (sought.size, *[1] * (len(table.shape) - 1)), span)
    return [
        call("select", [flags, rows, nothing], SelectAttrs(table.quant), span=span),
        call("cast", [hit], CastAttrs("uint8"), span=span),
    ]


@from_tflite("EMBEDDING_LOOKUP_SPARSE", "float32", "embedding_lookup_sparse", oracles=("litert",))
def convert_embedding_lookup_sparse(ctx: ConvertContext, op: OperatorView) -> Expr:
    """embedding_lookup_sparse; the dense shape must be a constant, as the result's dimensions follow from it."""
    ids, indices, weights, table = (ctx.input_type(op, i) for i in (0, 1, 3, 4))
    for name, data, dtype in (("an id", ids, "int32"), ("an index", indices, "int32"), ("a weight", weights, "float32")):
        require_dtype(ctx, op, data, (dtype,), what=name)
    require_dtype(ctx, op, table, ("float32",))
    places = tuple(constant_ints(ctx, op, 2)[:-1])
    n, depth = ids.size, len(places) + 1
    fits = (ids.shape, indices.shape, weights.shape) == ((n,), (n, depth), (n,)) and len(table.shape) >= 2 and table.size and n
    if not fits or any(p < 1 for p in places):
        unsupported(
            ctx, op, f"rows of {table} by {ids}, {indices} and {weights} in {list(places)} places are not supported", code="E1207"
        )
    attrs = EmbeddingLookupSparseAttrs(op.option("combiner"), places)
    return call("embedding_lookup_sparse", [operand(ctx, op, i) for i in (0, 1, 3, 4)], attrs, span=ctx.span(op))


@from_tflite("LSH_PROJECTION", EVERY, "lsh_projection", oracles=("litert",))
def convert_lsh_projection(ctx: ConvertContext, op: OperatorView) -> Expr:
    """lsh_projection."""
    seeds, items = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, seeds, ("float32",), what="a seed")
    require_dtype(ctx, op, items, MOVABLE)
    kind = op.option("type")
    if kind not in ("SPARSE", "DENSE"):
        unsupported(ctx, op, f"a projection of type {kind} is not supported", code="E1122")
    weighted = len(op.inputs) > 2
    if problem := misfit(seeds, items, ctx.input_type(op, 2) if weighted else None, dense=kind == "DENSE"):
        unsupported(ctx, op, problem, code="E1207")
    args = [operand(ctx, op, i) for i in range(3 if weighted else 2)]
    return call("lsh_projection", args, LshProjectionAttrs(kind == "DENSE"), span=ctx.span(op))


@from_tflite("STABLEHLO_GATHER", EVERY, "stablehlo.gather")
def convert_stablehlo_gather(ctx: ConvertContext, op: OperatorView) -> Expr:
    """stablehlo.gather; all its numbers are attributes."""
    data, indices = ctx.input_type(op, 0), ctx.input_type(op, 1)
    require_dtype(ctx, op, data, MOVABLE)
    require_dtype(ctx, op, indices, ("int32", "int64"), what="an index")
    names = ("offset_dims", "collapsed_slice_dims", "start_index_map", "slice_sizes")
    offset, collapsed, start, sizes = (tuple(int(n) for n in op.option(name)) for name in names)
    attrs = GatherAttrs(offset, collapsed, start, int(op.option("index_vector_dim")), sizes)
    if problem := gather_misfit(data, indices, attrs):
        unsupported(ctx, op, problem, code="E1207")
    return call("stablehlo.gather", [operand(ctx, op, 0), operand(ctx, op, 1)], attrs, span=ctx.span(op))


@from_tflite("STABLEHLO_SCATTER", " ".join(MOVABLE), "stablehlo.scatter")
def convert_stablehlo_scatter(ctx: ConvertContext, op: OperatorView) -> Expr:
    """stablehlo.scatter."""
    data, indices, updates = (ctx.input_type(op, i) for i in range(3))
    require_dtype(ctx, op, data, MOVABLE)
    require_dtype(ctx, op, updates, (data.dtype,), what="an update")
    require_dtype(ctx, op, indices, ("int32", "int64"), what="an index")
    body = ctx.operators_of(int(op.option("update_computation_subgraph_index")))
    kind = KINDS.get(body)
    if kind is None:
        supported = ", ".join(name for (name,) in list(KINDS)[1:])
        unsupported(ctx, op, f"updates are combined by {', '.join(body)}, but the reference supports only {supported}")
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    window, inserted, index_map = (tuple(int(n) for n in op.option(name)) for name in names)
    attrs = ScatterAttrs(kind, window, inserted, index_map, int(op.option("index_vector_dim")))
    if problem := scatter_misfit(data, indices, updates, attrs):
        unsupported(ctx, op, problem, code="E1207")
    return call("stablehlo.scatter", [operand(ctx, op, i) for i in range(3)], attrs, span=ctx.span(op))
