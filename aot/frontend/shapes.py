"""Finds shapes in a graph that depend on values known only at run time.

Converters compute shapes in the graph itself (SHAPE, STRIDED_SLICE, PACK, RESHAPE); that is fine provided that the computation
starts with constants or shapes.  A value is static if all operators that lead to it have static operands.
"""

from __future__ import annotations

from aot.frontend.problems import Problems
from aot.frontend.view import ABSENT, MAX_RANK, OperatorView, SubgraphView
from aot.support.text import printable

_SHAPE_OPERANDS = """
RESHAPE 1 / SLICE 1 2 / STRIDED_SLICE 1 2 3 / TILE 1 / TOPK_V2 1 / PAD 1 / PADV2 1 / MIRROR_PAD 1 / FILL 0
BROADCAST_TO 1 / TRANSPOSE 1 / MEAN 1 / SUM 1 / REDUCE_PROD 1 / REDUCE_MAX 1 / REDUCE_MIN 1 / REDUCE_ANY 1 / REDUCE_ALL 1
RESIZE_BILINEAR 1 / RESIZE_NEAREST_NEIGHBOR 1 / SPLIT 0 / SPLIT_V 1 2 / EXPAND_DIMS 1 / ONE_HOT 1 / SCATTER_ND 2
RANGE 0 1 2 / SPACE_TO_BATCH_ND 1 2 / BATCH_TO_SPACE_ND 1 2 / ARG_MAX 1 / ARG_MIN 1 / RFFT2D 1 / SPARSE_TO_DENSE 1
SEGMENT_SUM 1 / UNSORTED_SEGMENT_SUM 2 / UNSORTED_SEGMENT_PROD 2 / UNSORTED_SEGMENT_MAX 2 / UNSORTED_SEGMENT_MIN 2
RANDOM_STANDARD_NORMAL 0 / RANDOM_UNIFORM 0 / MULTINOMIAL 1 / NON_MAX_SUPPRESSION_V4 2 / NON_MAX_SUPPRESSION_V5 2
WHERE 0 / UNIQUE 0 / DILATE 1 / REDUCE_WINDOW 2 3 4
"""
# TRANSPOSE_CONV is missing on purpose: data, weights and strides determine its output shape up to less than one stride,
# and published models compute it at run time.

_DATA_DEPENDENT = frozenset({"WHERE", "UNIQUE", "SEGMENT_SUM"})
"""Operators whose result's shape depends on the data."""

_NEVER_STATIC = frozenset(
    {"WHILE", "IF", "CALL", "CALL_ONCE", "READ_VARIABLE", "VAR_HANDLE", "ASSIGN_VARIABLE", "RANDOM_UNIFORM",
     "RANDOM_STANDARD_NORMAL", "MULTINOMIAL", "CUSTOM", "HASHTABLE_FIND", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE"}
)  # fmt: skip


def _table(text: str) -> dict[str, tuple[int, ...]]:
    entries = [e.split() for line in text.strip().splitlines() for e in line.split("/")]
    return {words[0]: tuple(map(int, words[1:])) for words in entries if words}


_OPERANDS = _table(_SHAPE_OPERANDS)


def check_shapes(graph: SubgraphView, problems: Problems) -> None:
    """Note E1213 for each operator with a result shape unknown at compile time (root causes only, not what follows)."""
    static = {t.index for t in graph.tensors if t.data is not None and not t.is_variable}
    unknown: set[int] = set()  # tensors whose shape is not known
    for op in graph.operators:
        _check_integers(op, graph, problems)
        if op.opcode in ("SHAPE", "RANK"):
            if not unknown.intersection(op.inputs):
                static.update(op.outputs)
            continue
        present = [i for i in op.inputs if i != ABSENT]
        culprits = [] if _picks(op, graph) else [i for i in _shape_operands(op) if i not in static]
        if culprits:
            name = printable(graph.tensors[culprits[0]].name)
            reason = "data" if op.opcode in _DATA_DEPENDENT else "value"
            message = f'the shape of its result depends on the {reason} of tensor {culprits[0]} "{name}" at run time'
            problems.add("E1213", message, op.where)
        if culprits or unknown.intersection(present):
            unknown.update(op.outputs)
        if op.opcode not in _NEVER_STATIC and present and static.issuperset(present):
            static.update(op.outputs)


def _picks(op: OperatorView, graph: SubgraphView) -> bool:
    """Whether a STRIDED_SLICE selects one position of each listed dimension (`x[t]`), whatever the position."""
    if op.opcode != "STRIDED_SLICE" or op.input(1) == ABSENT:
        return False
    others = any(op.option(m) for m in ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask"))
    return not others and op.option("shrink_axis_mask") == (1 << min(graph.tensors[op.input(1)].extent, MAX_RANK)) - 1


_MAY_BE_REAL = frozenset({"WHERE", "UNIQUE", "RANGE", "REDUCE_WINDOW"})


def _check_integers(op: OperatorView, graph: SubgraphView, problems: Problems) -> None:
    """Axes, sizes, paddings and permutations are integers."""
    if op.opcode in _MAY_BE_REAL:
        return
    for index in _shape_operands(op):
        dtype = graph.tensors[index].dtype
        if not dtype.startswith(("int", "uint")):
            name = printable(graph.tensors[index].name)
            problems.add("E1121", f'tensor {index} "{name}" must hold integers, not {dtype}', op.where)


def _shape_operands(op: OperatorView) -> list[int]:
    """Tensors whose values determine the shape of the result."""
    operands = (op.input(position) for position in _OPERANDS.get(op.opcode, ()))
    return [index for index in operands if index != ABSENT]
