"""Writing one row of a list: the converter's form of TensorListSetItem in the loops of recurrent networks.

    CONCATENATION(SLICE(list, [0, 0..], [t, -1..]), row, SLICE(list, [t + 1, 0..], [-1, -1..])), axis 0

The sizes of the slices are known only at run time, but the result has the list's size: the list with row t replaced.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from aot.frontend.tflite.convert import Operator
from aot.frontend.tflite.view import OperatorView, SubgraphView
from aot.op.gather import DynamicUpdateSliceAttrs
from aot.op.tensor import ConcatenateAttrs, ReshapeAttrs
from aot.relay.expr import Expr, const, tensor_type
from aot.support.dataclass import dataclass

Part = int | tuple[int]
"""An element of a vector: its value, or (tensor,) for the tensor with the value."""


@dataclass(frozen=True, slots=True)
class ListWrite:
    """Tensors of one write: the list, the row's number, and the position of the row among the concatenation's operands."""

    data: int
    position: int
    row: int = 1


@dataclass(frozen=True, slots=True)
class ListWrites:
    """`writes` by the operator that joins the parts; `parts` are the slices, which are not computed."""

    writes: Mapping[int, ListWrite]
    parts: frozenset[int]


def list_writes(graph: SubgraphView) -> ListWrites:
    """All writes of a graph whose slices have no other readers."""
    finder = _Finder(graph)
    writes: dict[int, ListWrite] = {}
    parts: set[int] = set()
    for op in graph.operators:
        write = finder.write(op) if op.opcode == "CONCATENATION" else None
        if write is not None:
            writes[op.index] = write
            parts |= {finder.made_by[op.inputs[0]].index, finder.made_by[op.inputs[2]].index}
    return ListWrites(writes, frozenset(parts))


class _Finder:
    def __init__(self, graph: SubgraphView) -> None:
        self.graph = graph
        self.made_by = {i: op for op in graph.operators for i in op.outputs}
        self.readers: dict[int, int] = {}
        for op in graph.operators:
            for i in op.inputs:
                self.readers[i] = self.readers.get(i, 0) + 1
        for i in graph.outputs:
            self.readers[i] = self.readers.get(i, 0) + 1

    def write(self, op: OperatorView) -> ListWrite | None:
        if len(op.inputs) != 3 or op.option("axis") != 0 or op.option("fused_activation_function") != "NONE":
            return None
        before, after = (self._slice(op.inputs[i]) for i in (0, 2))
        if before is None or after is None or before[0] != after[0]:
            return None
        rank = len(before[1])
        whole: list[Part] = [-1] * rank
        zeros: list[Part] = [0] * rank
        length, begin = before[2], after[1]
        if before[1] != zeros or after[2] != whole or length[1:] != whole[1:] or begin[1:] != zeros[1:]:
            return None
        if isinstance(length[0], int) or isinstance(begin[0], int) or not self._is_next(begin[0][0], length[0][0]):
            return None
        return ListWrite(before[0], length[0][0])

    def _slice(self, index: int) -> tuple[int, list[Part], list[Part]] | None:
        """(data, begin, size) of a slice that is read once."""
        op = self.made_by.get(index)
        if op is None or op.opcode != "SLICE" or len(op.inputs) != 3 or self.readers.get(index) != 1:
            return None
        begin, size = self._vector(op.inputs[1]), self._vector(op.inputs[2])
        return (op.inputs[0], begin, size) if begin and size and len(begin) == len(size) else None

    def _vector(self, index: int, depth: int = 4) -> list[Part]:
        """The elements of a vector of integers, joined from constants and single numbers; empty if it is not one."""
        tensor = self.graph.tensors[index] if index >= 0 else None
        if tensor is None or tensor.dtype not in ("int32", "int64") or not depth:
            return []
        if tensor.data is not None:
            return [int(v) for v in np.asarray(tensor.data).reshape(-1)]
        op = self.made_by.get(index)
        if op is not None and op.opcode in ("CONCATENATION", "PACK") and op.option("axis") == 0:
            parts = [self._vector(i, depth - 1) for i in op.inputs]
            return [p for part in parts for p in part] if all(parts) else []
        if op is not None and op.opcode in ("RESHAPE", "EXPAND_DIMS") and tensor.extent == 1:
            return self._vector(op.inputs[0], depth - 1)
        return [(index,)] if tensor.extent == 1 and -1 not in tensor.shape_signature else []

    def _is_next(self, index: int, position: int) -> bool:
        """Whether tensor `index` is one more than tensor `position`."""
        op = self.made_by.get(index)
        if op is None or op.opcode != "ADD" or op.option("fused_activation_function") != "NONE" or position not in op.inputs:
            return False
        other = self.graph.tensors[op.inputs[1 if op.inputs[0] == position else 0]]
        return other.data is not None and other.extent == 1 and int(np.asarray(other.data).reshape(())) == 1


def convert_list_write(op: Operator, write: ListWrite) -> Expr:
    """dynamic_update_slice of the list with the row."""
    data, row = op.ctx.tensor(op.view, write.data), op.ctx.tensor(op.view, op.inputs[write.row])
    span, type_ = op.span, tensor_type(data)
    at = op.ctx.tensor(op.view, write.position)
    first = op.call("reshape", [at], ReshapeAttrs((1,)))
    zeros = const(np.zeros(len(type_.shape) - 1, tensor_type(at).dtype), span=span)
    start = op.call("concatenate", [first, zeros], ConcatenateAttrs(0)) if len(type_.shape) > 1 else first
    return op.call("dynamic_update_slice", [data, row, start], DynamicUpdateSliceAttrs())
