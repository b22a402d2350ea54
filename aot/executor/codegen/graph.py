"""The model as a graph of kernel calls, in plain data: what the graph executor of aot.runtime runs (docs/python.md)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aot.executor.codegen.layer import Layer
from aot.executor.lowered import CallLowered, LoweredModule, TensorRef
from aot.support.text import printable
from aot.target.source_module import Param
from aot.tir.function import PrimFunc

SCHEMA = "aot-graph/1"


def make_graph(
    lowered: LoweredModule, layers: Sequence[Layer], *, arrays: Sequence[Param], tensors: Sequence[int]
) -> dict[str, Any]:
    """Nodes in the order of execution, tensors, and storage: one for each tensor that is not a view of another.

    `states` are pairs: the tensor of a persistent value before a run, and the one that it is afterwards.

    The plan of the workspace is not in it, so that a run of the graph is an independent check of that plan.  `tensors` are the
    numbers of the constant tensors' arrays.
    """
    table = _Tensors(lowered, arrays, tensors)
    nodes: list[dict[str, Any]] = [
        {"op": "input", "name": printable(t.name, limit=200), "outputs": [table.number(t)]} for t in lowered.inputs
    ]
    for i, layer in enumerate(layers):
        call = layer.call
        nodes.append(
            {
                "op": "kernel",
                "name": printable(call.outputs[0].name, limit=200) if call.outputs else f"layer {i}",
                "layer": i,
                "function": layer.function,
                "kernel": layer.func.attrs.kernel,
                "ops": list(call.operators),
                "inputs": [table.number(t) for t in call.inputs],
                "outputs": [table.number(t) for t in call.outputs],
                "constants": [arrays[k].name for k in layer.constants],
                "scratch": [b.nbytes for b in layer.func.scratch],
                "scalars": _scalars(call, lowered.prim_func(call.emitted)),
                "fed": call.feed is not None,
            }
        )
    return {
        "schema": SCHEMA,
        "name": lowered.name,
        "nodes": nodes,
        "arg_nodes": list(range(len(lowered.inputs))),
        "heads": [table.number(t) for t in lowered.outputs],
        **({"states": [[table.number(s.old), table.number(s.new)] for s in lowered.states]} if lowered.states else {}),
        **_control(lowered, table),
        "tensors": table.rows,
        "storage": table.sizes,
    }


def _control(lowered: LoweredModule, table: _Tensors) -> dict[str, Any]:
    """`control`: branches and loops over the layers, as in the metadata, with the tensor that decides; only where there are."""
    rows = [
        {"kind": c.kind, "condition": table.number(t), "first": c.first, "middle": c.middle, "last": c.last - 1}
        for c, t in zip(lowered.controls, lowered.conditions, strict=True)
    ]
    return {"control": rows, "max_iterations": lowered.max_iterations} if rows else {}


def _scalars(call: CallLowered, func: PrimFunc) -> list[dict[str, Any]]:
    return [{"dtype": v.dtype, "value": value} for v, value in zip(func.scalars, call.scalars, strict=True)]


class _Tensors:
    """Numbers tensors and storage in the order in which they occur."""

    def __init__(self, lowered: LoweredModule, arrays: Sequence[Param], constants: Sequence[int]) -> None:
        self._lowered = lowered
        self._constants = {t: arrays[k].name for t, k in zip(lowered.values, constants, strict=True)}
        self._numbers: dict[TensorRef, int] = {}
        self._storage: dict[TensorRef, int] = {}
        self.rows: list[dict[str, Any]] = []
        self.sizes: list[int] = []

    def number(self, tensor: TensorRef) -> int:
        """The index of a tensor's row."""
        if tensor not in self._numbers:
            root, offset = self._lowered.place_in_root(tensor)
            constant = self._constants.get(root)
            self._numbers[tensor] = len(self.rows)
            self.rows.append(
                {
                    "name": printable(tensor.name, limit=200),
                    "shape": list(tensor.type.shape),
                    "dtype": tensor.type.dtype,
                    "storage_id": None if constant is not None else self._storage_id(root),
                    "offset": offset,
                    "constant": constant,
                }
            )
        return self._numbers[tensor]

    def _storage_id(self, root: TensorRef) -> int:
        if root not in self._storage:
            self._storage[root] = len(self.sizes)
            self.sizes.append(root.type.nbytes)
        return self._storage[root]
