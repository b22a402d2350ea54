"""Values that a model's inputs may have, for generated inputs: positions in a table, divisors, shapes."""

from __future__ import annotations

from typing import Any

from aot.frontend.problems import Problems
from aot.frontend.view import SubgraphView, parse
from aot.relay.analysis import input_ranges
from aot.relay.expr import Function
from aot.relay.state import input_vars
from aot.support.dtype import int_range

_ONLY_POSITIVE = {"RSQRT": 1, "SQRT": 0, "LOG": 1}
"""Operators whose kernels for quantised values fail on a negative operand, and the lowest value above the zero point allowed."""


def input_values(model: bytes, main: Function) -> dict[int, dict[str, Any]]:
    """Input -> `range`: [lowest, highest] of its elements, or `fixed`: all of them; nothing for inputs without restrictions.

    `main` is the relay function of the model's first graph, before any pass.
    """
    count = len(input_vars(main))  # the other variables are states
    values: dict[int, dict[str, Any]] = {i: {"range": list(limits)} for i, limits in input_ranges(main).items() if i < count}
    view = parse(model, Problems())
    return values if view is None or not view.subgraphs else _by_operators(view.subgraphs[0]) | values


def _by_operators(graph: SubgraphView) -> dict[int, dict[str, Any]]:
    """Restrictions by the operators that read an input directly."""
    values: dict[int, dict[str, Any]] = {}
    place = {tensor: i for i, tensor in enumerate(graph.inputs)}
    for op in graph.operators:
        tensor = graph.tensors[op.inputs[0]] if op.inputs and op.inputs[0] in place else None
        if tensor is None:
            continue
        if op.opcode == "TRANSPOSE_CONV":
            values[place[tensor.index]] = {"fixed": list(graph.tensors[op.outputs[0]].shape)}
        elif op.opcode in _ONLY_POSITIVE and tensor.quant is not None:
            lowest = int(tensor.quant.zero_points[0]) + _ONLY_POSITIVE[op.opcode]
            values[place[tensor.index]] = {"range": [lowest, int_range(tensor.dtype)[1]]}
    return values
