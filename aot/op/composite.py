"""STABLEHLO_COMPOSITE: a named group of operators that the file also spells out as a subgraph, which is put in its place.

The name and the attributes are for compilers that know the composite; the subgraph is its meaning.
Oracle: `stablehlo_composite.cc`, which runs the subgraph too.
"""

from __future__ import annotations

from collections.abc import Sequence

from aot.frontend.view import OperatorView
from aot.op.convert import EVERY, ConvertContext, from_tflite
from aot.relay.expr import Expr


@from_tflite("STABLEHLO_COMPOSITE", EVERY, "")
def convert(ctx: ConvertContext, op: OperatorView) -> Sequence[Expr]:
    """The subgraph's outputs on the operands."""
    return ctx.inline(op, op.option("decomposition_subgraph_index"))
