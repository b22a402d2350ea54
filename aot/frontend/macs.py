"""Multiply-accumulates and shapes of a model as stored in its file, before any operator is fused, rewritten or removed."""

from __future__ import annotations

from math import prod

from aot.frontend.problems import Problems
from aot.frontend.view import OperatorView, SubgraphView, parse


def nominal_macs(model: bytes) -> int:
    """MACs of one inference of the first graph: convolutions (also depthwise and transposed), dense layers, matrix products.

    Padding and channels with zero weights count as if they were computed.  0 if it is not a model.
    """
    view = parse(model, Problems())
    if view is None or not view.subgraphs:
        return 0
    return sum(operator_macs(view.subgraphs[0], op) for op in view.subgraphs[0].operators)


def operator_count(model: bytes) -> int:
    """Operators of the first graph; 0 if it is not a model."""
    view = parse(model, Problems())
    return len(view.subgraphs[0].operators) if view is not None and view.subgraphs else 0


def nominal_shapes(model: bytes) -> dict[int, tuple[int, ...]]:
    """The shapes of the first graph's tensors as stored in the file, by index; empty if it is not a model."""
    view = parse(model, Problems())
    return {i: tuple(t.shape) for i, t in enumerate(view.subgraphs[0].tensors)} if view is not None and view.subgraphs else {}


def operator_macs(graph: SubgraphView, op: OperatorView) -> int:
    """MACs from the shapes of weights and result; 0 if one of them does not exist."""
    if not op.outputs or not 0 <= op.outputs[0] < len(graph.tensors) or not 0 <= op.input(1) < len(graph.tensors):
        return 0
    out, second = graph.tensors[op.outputs[0]].extent, graph.tensors[op.input(1)].shape
    match op.kind:
        case "CONV_2D":
            return out * prod(second[1:])
        case "DEPTHWISE_CONV_2D":
            return out * prod(second[1:-1])
        case "FULLY_CONNECTED":
            return out * prod(second[-1:])
        case "TRANSPOSE_CONV" if 0 <= op.input(2) < len(graph.tensors):
            return graph.tensors[op.input(2)].extent * prod(second[:-1])
        case "BATCH_MATMUL" if len(second) > 1:
            return out * second[-1 if op.option("adj_y") else -2]
    return 0
