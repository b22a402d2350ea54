"""Which values a model's inputs may take, for generated inputs: positions in a table, divisors, shapes."""

from __future__ import annotations

from typing import Any

from aot.frontend.problems import Problems
from aot.frontend.view import SubgraphView, parse
from aot.relay.analysis import input_ranges
from aot.relay.expr import Function
from aot.relay.state import input_vars
from aot.support.dtype import int_range

_ONLY_POSITIVE = {"RSQRT": 1, "SQRT": 0, "LOG": 1}
"""Operators whose kernels for codes stop at a negative operand, and the lowest code above the zero point that they take."""


def input_values(model: bytes, main: Function) -> dict[int, dict[str, Any]]:
    """Input -> `range`: [lowest, highest] of its elements, or `fixed`: all of them; nothing for inputs that take any value.

    `main` is the relay function of the model's first graph, before any pass.
    """
    count = len(input_vars(main))  # what follows are states
    found: dict[int, dict[str, Any]] = {i: {"range": list(limits)} for i, limits in input_ranges(main).items() if i < count}
    view = parse(model, Problems())
    return found if view is None or not view.subgraphs else _by_operators(view.subgraphs[0]) | found


def _by_operators(graph: SubgraphView) -> dict[int, dict[str, Any]]:
    """What operators that take an input itself say of it."""
    found: dict[int, dict[str, Any]] = {}
    place = {tensor: i for i, tensor in enumerate(graph.inputs)}
    for op in graph.operators:
        tensor = graph.tensors[op.inputs[0]] if op.inputs and op.inputs[0] in place else None
        if tensor is None:
            continue
        if op.opcode == "TRANSPOSE_CONV":
            found[place[tensor.index]] = {"fixed": list(graph.tensors[op.outputs[0]].shape)}
        elif op.opcode in _ONLY_POSITIVE and tensor.quant is not None:
            lowest = int(tensor.quant.zero_points[0]) + _ONLY_POSITIVE[op.opcode]
            found[place[tensor.index]] = {"range": [lowest, int_range(tensor.dtype)[1]]}
    return found
