"""Multiply-accumulates and shapes of a model as its file has it, before any operator is fused, rewritten or left out."""

from __future__ import annotations

from math import prod

from aot.frontend.problems import Problems
from aot.frontend.view import OperatorView, SubgraphView, parse


def nominal_macs(model: bytes) -> int:
    """One inference of the first graph: convolutions (also depthwise and transposed), fully connected layers, matrix products.

    Padding counts as if it were read, channels whose weights are 0 as if they were computed.  0 if it is not a model.
    """
    view = parse(model, Problems())
    if view is None or not view.subgraphs:
        return 0
    return sum(operator_macs(view.subgraphs[0], op) for op in view.subgraphs[0].operators)


def nominal_shapes(model: bytes) -> dict[int, tuple[int, ...]]:
    """The shapes of the first graph's tensors as the file has them, by index; empty if it is not a model."""
    view = parse(model, Problems())
    return {i: tuple(t.shape) for i, t in enumerate(view.subgraphs[0].tensors)} if view is not None and view.subgraphs else {}


def operator_macs(graph: SubgraphView, op: OperatorView) -> int:
    """From the shapes of weights and result; 0 where one of them does not exist."""
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
