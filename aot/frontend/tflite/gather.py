"""Converters of operators that read or write at computed places: gather, scatter, segments, lookup tables."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from aot.frontend.tflite.convert import EVERY, Operator, converter
from aot.ir.type import TensorType
from aot.op import gather as ops
from aot.op.common.tensors import INDEX_TYPES, MOVABLE
from aot.op.math.arithmetic import BinaryAttrs, CompareAttrs, SelectAttrs
from aot.op.math.unary import CastAttrs
from aot.op.tensor import FullAttrs
from aot.relay.expr import Constant, Expr, const


def check_constant_indices(op: Operator, i: int, extents: Sequence[int]) -> None:
    """Refuse constant indices outside `extents` (one for all, or one per entry of the last dimension)."""
    expr = op.operand(i)
    if isinstance(expr, Constant) and expr.data.size and ((expr.data < 0) | (expr.data >= np.array(extents))).any():
        op.refuse(f"operand {i} contains an index outside {list(extents)}", code="E1133")


@converter("GATHER", EVERY, "take")
def _gather(op: Operator) -> Expr:
    """take; axis and batch_dims may be negative."""
    data, indices = op.type(0, MOVABLE), op.type(1, INDEX_TYPES, what="an index")
    axis = op.axis(int(op.option("axis")), len(data.shape))
    batch = int(op.option("batch_dims"))
    batch += len(indices.shape) if batch < 0 else 0
    check_constant_indices(op, 1, (data.shape[axis],))
    return op.call("take", op.operands(0, 1), ops.TakeAttrs(axis, batch))


@converter("GATHER_ND", EVERY, "gather_nd")
def _gather_nd(op: Operator) -> Expr:
    data, indices = op.type(0, MOVABLE), op.type(1, INDEX_TYPES, what="an index")
    if indices.shape and indices.shape[-1] <= len(data.shape):
        check_constant_indices(op, 1, data.shape[: indices.shape[-1]])
    return op.call("gather_nd", op.operands(0, 1), ops.GatherNdAttrs())


@converter("SCATTER_ND", EVERY, "scatter_nd")
def _scatter_nd(op: Operator) -> Expr:
    indices = op.type(0, ("int32", "int64"), what="an index")
    op.require_dtype(op.type(1), MOVABLE)
    shape = tuple(op.ints(2))
    if indices.shape and indices.shape[-1] <= len(shape):
        check_constant_indices(op, 0, shape[: indices.shape[-1]])
    return op.call("scatter_nd", op.operands(0, 1), ops.ScatterNdAttrs(shape))


@converter("ONE_HOT", EVERY, "one_hot")
def _one_hot(op: Operator) -> Expr:
    """one_hot; an axis of -1 puts the new dimension last."""
    indices, on = op.type(0, ("int32", "int64"), what="an index"), op.type(2, MOVABLE)
    if on.size != 1 or op.type(3).size != 1:
        op.refuse("on_value and off_value must be scalars", code="E1130")
    axis = op.axis(int(op.option("axis")), len(indices.shape) + 1)
    args = [op.operand(0), *(op.reshaped(op.operand(i), (1,)) for i in (2, 3))]
    return op.call("one_hot", args, ops.OneHotAttrs(op.one_int(1), axis))


@converter("UNSORTED_SEGMENT_SUM", "int32 float32", "unsorted_segment")
@converter("UNSORTED_SEGMENT_PROD", "int32 float32", "unsorted_segment")
@converter("UNSORTED_SEGMENT_MAX", "int32 float32", "unsorted_segment")
@converter("UNSORTED_SEGMENT_MIN", "int32 float32", "unsorted_segment")
def _unsorted_segment(op: Operator) -> Expr:
    data, ids = op.type(0, ops.SEGMENT_TYPES), op.type(1, {"int32"}, what="an id")
    count = op.one_int(2)
    if count < 1 or data.shape[: len(ids.shape)] != ids.shape or not data.size:
        op.refuse(f"{count} segments of {data} by {ids} are not supported", code="E1207")
    return op.call("unsorted_segment", op.operands(0, 1), ops.SegmentAttrs(op.opcode.rpartition("_")[2].lower(), count))


@converter("SEGMENT_SUM", "int32 float32", "unsorted_segment")
def _segment_sum(op: Operator) -> Expr:
    """unsorted_segment with as many segments as the constant ids name."""
    data = op.type(0, ops.SEGMENT_TYPES)
    op.require_dtype(op.type(1), {"int32"}, what="an id")
    ids = op.constant(1)
    steps = np.diff(ids.astype(np.int64).ravel(), prepend=-1)
    if data.shape[:1] != ids.shape or not data.size or steps[0] != 1 or ((steps != 0) & (steps != 1)).any():
        op.refuse(f"{data} in segments {ids.ravel().tolist()}, which do not ascend from 0 by steps of 1", code="E1207")
    return op.call("unsorted_segment", op.operands(0, 1), ops.SegmentAttrs("sum", int(ids[-1]) + 1))


SCATTERED_TYPES = ("int8", "uint8", "int32", "int64", "float32")


@converter("SPARSE_TO_DENSE", "int8 uint8 int32 int64 float32", "full sparse_to_dense")
def _sparse_to_dense(op: Operator) -> Expr:
    indices, values, default = op.types(0, 2, 3)
    op.require_dtype(indices, ("int32", "int64"), what="an index")
    op.require_dtype(values, SCATTERED_TYPES)
    op.require_dtype(default, {values.dtype}, what="the default value")
    shape = tuple(op.ints(1))
    rank = len(indices.shape)
    count = indices.shape[0] if rank else 1
    depth = indices.shape[1] if rank == 2 else 1
    fits = rank <= 2 and depth == len(shape) <= 4 and values.shape in ((), (1,), (count,)) and default.size == 1
    if not fits or not shape or min(shape) < 1:
        op.refuse(f"{values} at {indices} do not fit into {list(shape)}", code="E1207")
    if not count:
        return op.call("full", [op.reshaped(op.operand(3), (1,))], FullAttrs(shape))
    places = op.reshaped(op.operand(0), (count, depth))
    elements = op.reshaped(op.operand(2), (values.size,))
    return op.call("sparse_to_dense", [places, elements, op.reshaped(op.operand(3), (1,))], ops.SparseToDenseAttrs(shape))


# EMBEDDING_LOOKUP of TFLite: rows of a table; float32 rows of an integer table are scaled at lookup.
#
# out[i] = float(table[indices[i]]) * scale, the table's or the row's.  The table stays integer in flash.
# Oracle: `EvalSimple` and `EvalHybrid` of kernels/embedding_lookup.cc.


EMBEDDED_CODES = ("int8", "int4")
EMBEDDED_FLOATS = ("float32", "float16")
"""Result types of an integer table; float16 is a rounded float32."""


@converter("EMBEDDING_LOOKUP", EVERY, "take cast multiply")
def _embedding(op: Operator) -> Expr:
    """take of rows: operand 0 has the indices, operand 1 is the table."""
    table, out = op.type(1), op.result_type()
    check_constant_indices(op, 0, table.shape[:1])
    if out.dtype in EMBEDDED_FLOATS and table.dtype in EMBEDDED_CODES:
        return _scaled_rows(op, table)
    op.require_dtype(table, MOVABLE)
    op.require_dtype(out, (table.dtype,), what="a result")
    return op.call("take", op.operands(1, 0), ops.TakeAttrs(0))


def _scaled_rows(op: Operator, table: TensorType) -> Expr:
    """Rows as float32, times one scale or the row's own, rounded if the result is float16."""
    span, indices, quant = op.span, op.operand(0), table.quant
    if quant is None:
        op.refuse(f"a table of {table.dtype} has no quantisation parameters", code="E1206")
    if any(quant.zero_point):
        op.refuse("a table with a zero point is not supported with a float result", code="E1224")
    if table.dtype == "int4" and prod(table.shape[1:]) % 2:  # the reference would start rows half a byte too early
        op.refuse("rows of an odd number of int4 values are not supported")
    rows = op.operand(1)
    if isinstance(rows, Constant):
        rows = const(rows.data, dtype="int8", span=span)  # int4 has been unpacked
    elif table.dtype != "int8":
        op.refuse(f"a table of {table.dtype} that is computed at run time is not supported")
    scales = np.asarray(quant.scale, np.float32)
    factor: Expr = const(scales[0], span=span)
    if len(scales) > 1:
        if quant.axis != 0 or len(scales) != table.shape[0]:
            op.refuse(f"{len(scales)} scales along axis {quant.axis} do not match the rows", code="E1223")
        each = const(scales.reshape(-1, *(1 for _ in table.shape[1:])), span=span)
        factor = op.call("take", [each, indices], ops.TakeAttrs(0))
    selected = op.call("cast", [op.call("take", [rows, indices], ops.TakeAttrs(0))], CastAttrs("float32"))
    scaled = op.call("multiply", [selected, factor], BinaryAttrs())
    return scaled if op.result_type().dtype == "float32" else op.call("cast", [scaled], CastAttrs("float16"))


@converter("DYNAMIC_UPDATE_SLICE", EVERY, "dynamic_update_slice")
def _dynamic_update_slice(op: Operator) -> Expr:
    """dynamic_update_slice; TFLite does not change scalars either."""
    op.require_dtype(op.type(0), MOVABLE)
    op.require_dtype(op.type(2), ("int32", "int64"), what="a position")
    return op.call("dynamic_update_slice", op.operands(0, 1, 2), ops.DynamicUpdateSliceAttrs())


@converter("HASHTABLE_LOOKUP", EVERY, "binary_search cast greater_equal select take")
def _hashtable_lookup(op: Operator) -> Sequence[Expr]:
    """(rows, hits): the search, then the rows that it found."""
    sought, keys, table, span = (*op.types(0, 1, 2), op.span)
    op.require_dtype(sought, ("int32",), what="a lookup")
    op.require_dtype(keys, ("int32",), what="a key")
    op.require_dtype(table, MOVABLE, what="a value")
    op.require_dtype(op.result_type(1), ("uint8",), what="a hit")
    if len(sought.shape) != 1 or len(keys.shape) != 1 or not keys.size or table.shape[:1] != keys.shape:
        op.refuse(f"{sought} looked up in {keys} and {table} are not supported", code="E1207")
    place = op.call("binary_search", op.operands(0, 1), ops.BinarySearchAttrs())
    hit = op.call("greater_equal", [place, const(np.zeros(1, np.int32), span=span)], CompareAttrs())
    rows = op.call("take", [op.operand(2), place], ops.TakeAttrs(0))
    # zero bytes, whatever value they represent
    nothing = const(np.zeros((1,) * len(table.shape), table.dtype), quant=table.quant, span=span)
    flags = op.reshaped(hit, (sought.size, *[1] * (len(table.shape) - 1)))
    return [op.call("select", [flags, rows, nothing], SelectAttrs(table.quant)), op.call("cast", [hit], CastAttrs("uint8"))]


@converter("EMBEDDING_LOOKUP_SPARSE", "float32", "embedding_lookup_sparse", oracles=("litert",))
def _embedding_lookup_sparse(op: Operator) -> Expr:
    """embedding_lookup_sparse; the dense shape must be a constant, as the result's dimensions follow from it."""
    ids, indices, weights, table = op.types(0, 1, 3, 4)
    for name, data, dtype in (("an id", ids, "int32"), ("an index", indices, "int32"), ("a weight", weights, "float32")):
        op.require_dtype(data, (dtype,), what=name)
    op.require_dtype(table, ("float32",))
    places = tuple(op.ints(2)[:-1])
    n, depth = ids.size, len(places) + 1
    fits = (ids.shape, indices.shape, weights.shape) == ((n,), (n, depth), (n,)) and len(table.shape) >= 2 and table.size and n
    if not fits or any(p < 1 for p in places):
        op.refuse(f"rows of {table} by {ids}, {indices} and {weights} in {list(places)} places are not supported", code="E1207")
    return op.call(
        "embedding_lookup_sparse", op.operands(0, 1, 3, 4), ops.EmbeddingLookupSparseAttrs(op.option("combiner"), places)
    )


@converter("LSH_PROJECTION", EVERY, "lsh_projection", oracles=("litert",))
def _lsh_projection(op: Operator) -> Expr:
    seeds, items = op.type(0, ("float32",), what="a seed"), op.type(1, MOVABLE)
    kind = op.option("type")
    if kind not in ("SPARSE", "DENSE"):
        op.refuse(f"a projection of type {kind} is not supported", code="E1122")
    weighted = len(op.inputs) > 2
    if problem := ops.misfit(seeds, items, op.type(2) if weighted else None, dense=kind == "DENSE"):
        op.refuse(problem, code="E1207")
    return op.call("lsh_projection", op.operands(*range(3 if weighted else 2)), ops.LshProjectionAttrs(kind == "DENSE"))


@converter("STABLEHLO_GATHER", EVERY, "stablehlo.gather")
def _stablehlo_gather(op: Operator) -> Expr:
    """stablehlo.gather; all its numbers are attributes."""
    data, indices = op.type(0, MOVABLE), op.type(1, ("int32", "int64"), what="an index")
    names = ("offset_dims", "collapsed_slice_dims", "start_index_map", "slice_sizes")
    offset, collapsed, start, sizes = (tuple(int(n) for n in op.option(name)) for name in names)
    attrs = ops.GatherAttrs(offset, collapsed, start, int(op.option("index_vector_dim")), sizes)
    if problem := ops.gather_misfit(data, indices, attrs):
        op.refuse(problem, code="E1207")
    return op.call("stablehlo.gather", op.operands(0, 1), attrs)


@converter("STABLEHLO_SCATTER", " ".join(MOVABLE), "stablehlo.scatter")
def _stablehlo_scatter(op: Operator) -> Expr:
    data, indices, updates = op.types(0, 1, 2)
    op.require_dtype(data, MOVABLE)
    op.require_dtype(updates, (data.dtype,), what="an update")
    op.require_dtype(indices, ("int32", "int64"), what="an index")
    body = op.ctx.operators_of(int(op.option("update_computation_subgraph_index")))
    kind = ops.KINDS.get(body)
    if kind is None:
        supported = ", ".join(name for (name,) in list(ops.KINDS)[1:])
        op.refuse(f"updates are combined by {', '.join(body)}, but the reference supports only {supported}")
    names = ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims")
    window, inserted, index_map = (tuple(int(n) for n in op.option(name)) for name in names)
    attrs = ops.ScatterAttrs(kind, window, inserted, index_map, int(op.option("index_vector_dim")))
    if problem := ops.scatter_misfit(data, indices, updates, attrs):
        op.refuse(problem, code="E1207")
    return op.call("stablehlo.scatter", op.operands(0, 1, 2), attrs)
