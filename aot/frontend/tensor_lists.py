"""Lists of tensors, which TensorFlow's loops fill and read, written as plain tensors: recurrent layers with SELECT_TF_OPS.

A list of n elements of shape s is a tensor [n, *s]: TensorListReserve is FILL, SetItem is DYNAMIC_UPDATE_SLICE, GetItem is
GATHER, Stack and FromTensor are RESHAPE.  The result is a file of builtin operators, so that the references run it, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from aot.frontend import schema
from aot.frontend.decode import Record, decode_model, default_record
from aot.frontend.encode import encode_model
from aot.frontend.flatbuffer import Reader
from aot.frontend.problems import Problems
from aot.frontend.view import MAX_RANK, MAX_TENSOR_BYTES, ModelView, OperatorView, TensorView, stored_bytes
from aot.support.dataclass import dataclass
from aot.support.text import printable

_PREFIX = "FlexTensorList"
_OPERANDS = {"Reserve": (2, 1), "SetItem": (3, 1), "GetItem": (3, 1), "Stack": (2, 1), "FromTensor": (2, 1)}
"""Operator -> number of its inputs and outputs."""
_LIST_IN, _LIST_OUT = ("SetItem", "GetItem", "Stack"), ("Reserve", "SetItem", "FromTensor")
_GROWS = b"resize_if_index_out_of_bounds\x12\x02\x28\x01"
"""Within a serialised NodeDef: the attribute and true."""
_TYPES = ("float32", "int32", "int64", "int8", "uint8", "int16", "bool")
_CURE = "convert with unroll=True, or with a fixed batch and without SELECT_TF_OPS"

Key = tuple[int, int]
"""Number of the graph and of a tensor in it."""


class _RefusedError(Exception):
    """What keeps a list from being a tensor; said already, or the structure's checks say it."""


@dataclass(frozen=True, slots=True)
class _Plain:
    """The tensor that a list becomes."""

    dtype: str
    shape: tuple[int, ...]


def has_lists(view: ModelView) -> bool:
    """Whether a model has operators on lists."""
    return any(is_on_lists(op) for graph in view.subgraphs for op in graph.operators)


def without_lists(model: bytes, view: ModelView, problems: Problems, *, batch: int = 1) -> bytes | None:
    """The model with its lists as plain tensors, where `batch` is what open dimensions of elements are.

    None where that is not possible: E1262 and E1263 are noted, and what contradicts itself is left to the checks of structure.
    """
    try:
        plain = _Finder(view, problems, batch).plain()
    except _RefusedError:
        return None
    record = decode_model(Reader(model), Problems())
    return None if record is None else encode_model(_Writer(record, view, plain).written())


def is_on_lists(op: OperatorView) -> bool:
    """Whether this is one of TensorFlow's operators on lists."""
    return op.opcode == "CUSTOM" and op.custom_name.startswith((_PREFIX, "FlexEmptyTensorList"))


def _kind(op: OperatorView) -> str:
    return op.custom_name.removeprefix(_PREFIX) if is_on_lists(op) else ""


class _Finder:
    """Which tensors are one list, and what is known of it."""

    def __init__(self, view: ModelView, problems: Problems, batch: int) -> None:
        self._view, self._problems, self._batch = view, problems, batch
        self._parent: dict[Key, Key] = {}

    def plain(self) -> dict[Key, _Plain]:
        """The tensors that lists become, by each tensor of the file that is one."""
        operators = [(g.index, op) for g in self._view.subgraphs for op in g.operators]
        for graph, op in operators:
            self._check(graph, op)
        for graph, op in operators:
            if op.opcode in ("WHILE", "IF"):
                self._join_calls(graph, op)
            elif _kind(op) == "SetItem":
                self._join((graph, op.inputs[0]), (graph, op.outputs[0]))
        items: dict[Key, list[tuple[str, tuple[int, ...]]]] = {}
        lengths: dict[Key, list[int]] = {}
        wheres: dict[Key, str] = {}
        for graph, op in operators:
            if is_on_lists(op):
                key = self._root((graph, op.inputs[0] if _kind(op) in _LIST_IN else op.outputs[0]))
                wheres.setdefault(key, op.where)
                self._learn(graph, op, items.setdefault(key, []), lengths.setdefault(key, []))
        found = {key: self._decided(where, items[key], lengths[key]) for key, where in wheres.items()}
        lists = {
            (g.index, t.index): self._root((g.index, t.index))
            for g in self._view.subgraphs
            for t in g.tensors
            if t.dtype == "variant"
        }
        for (graph, index), key in lists.items():
            if key not in found:
                tensor = self._view.subgraphs[graph].tensors[index]
                self._refuse("E1262", f"no list of tensors that is made and read by operators; {_CURE}", tensor.where)
        return {key: found[root] for key, root in lists.items()}

    def _refuse(self, code: str, message: str, where: str) -> None:
        self._problems.add(code, message, where)
        raise _RefusedError

    def _check(self, graph: int, op: OperatorView) -> None:
        tensors = self._view.subgraphs[graph].tensors
        if not all(0 <= i < len(tensors) for i in (*op.inputs, *op.outputs) if i != -1):
            raise _RefusedError
        if not is_on_lists(op):
            return
        kind, name = _kind(op), printable(op.custom_name)
        if kind not in _OPERANDS:
            self._refuse("E1262", f"{name}: this operator on lists of tensors is not supported; {_CURE}", op.where)
        if (len(op.inputs), len(op.outputs)) != _OPERANDS[kind] or -1 in op.inputs:
            self._refuse("E1262", f"{name} with {len(op.inputs)} inputs and {len(op.outputs)} outputs", op.where)
        ends = [*([op.inputs[0]] if kind in _LIST_IN else ()), *([op.outputs[0]] if kind in _LIST_OUT else ())]
        if any(tensors[i].dtype != "variant" for i in ends):
            self._refuse("E1262", f"{name} of a tensor that is not a list; {_CURE}", op.where)
        if _GROWS in bytes(op.custom_options):
            self._refuse("E1262", f"{name} may make its list longer while the model runs; {_CURE}", op.where)

    def _join_calls(self, graph: int, op: OperatorView) -> None:
        names = (
            ("cond_subgraph_index", "body_subgraph_index")
            if op.opcode == "WHILE"
            else ("then_subgraph_index", "else_subgraph_index")
        )
        args = op.inputs if op.opcode == "WHILE" else op.inputs[1:]
        for name in names:
            index = op.option(name)
            if not 0 <= index < len(self._view.subgraphs):
                raise _RefusedError
            inner = self._view.subgraphs[index]
            if not all(0 <= i < len(inner.tensors) for i in (*inner.inputs, *inner.outputs)):
                raise _RefusedError
            pairs = [*zip(args, inner.inputs, strict=False)]
            for a, b in pairs:
                self._join((graph, a), (index, b))
            if name != "cond_subgraph_index":
                for a, b in zip(op.outputs, inner.outputs, strict=False):
                    self._join((graph, a), (index, b))
        if op.opcode == "WHILE":
            for a, b in zip(op.inputs, op.outputs, strict=False):
                self._join((graph, a), (graph, b))

    def _is_list(self, key: Key) -> bool:
        return key[1] >= 0 and self._view.subgraphs[key[0]].tensors[key[1]].dtype == "variant"

    def _root(self, key: Key) -> Key:
        while (up := self._parent.get(key, key)) != key:
            self._parent[key] = self._parent.get(up, up)
            key = up
        return key

    def _join(self, a: Key, b: Key) -> None:
        if self._is_list(a) and self._is_list(b):
            first, second = sorted((self._root(a), self._root(b)))
            self._parent[second] = first

    def _learn(self, graph: int, op: OperatorView, items: list[tuple[str, tuple[int, ...]]], lengths: list[int]) -> None:
        """What an operator says of its list: types and shapes of elements (-1: open), and numbers of them."""
        tensors = self._view.subgraphs[graph].tensors
        match _kind(op):
            case "SetItem" | "GetItem":
                tensor = tensors[op.inputs[2] if _kind(op) == "SetItem" else op.outputs[0]]
                if tensor.has_rank or tensor.shape:
                    items.append((tensor.dtype, _open_shape(tensor)))
            case "Reserve":
                length, element = tensors[op.inputs[1]].data, tensors[op.inputs[0]].data
                if length is None or length.size != 1 or length.dtype != np.int32 or length.reshape(-1)[0] < 1:
                    self._refuse("E1263", f"its number of elements is not known at compile time; {_CURE}", op.where)
                assert length is not None
                lengths.append(int(length.reshape(-1)[0]))
                if element is not None and element.ndim == 1 and element.dtype in (np.int32, np.int64):
                    items.append(("", tuple(int(n) for n in element)))
            case _:
                tensor = tensors[op.outputs[0] if _kind(op) == "Stack" else op.inputs[0]]
                shape = _open_shape(tensor)
                if shape:
                    items.append((tensor.dtype, shape[1:]))
                    lengths += [shape[0]] if shape[0] >= 0 else []

    def _decided(self, where: str, items: Sequence[tuple[str, tuple[int, ...]]], lengths: Sequence[int]) -> _Plain:
        types = {dtype for dtype, _ in items if dtype}
        if len(types) != 1 or not types <= set(_TYPES):
            self._refuse("E1262", f"a list of {' and '.join(sorted(types)) or 'unknown'} elements; {_CURE}", where)
        if len(set(lengths)) != 1 or len({len(s) for _, s in items}) != 1:
            self._refuse("E1263", f"the size of the list, or the rank of its elements, is not known; {_CURE}", where)
        shape = []
        for extents in zip(*(s for _, s in items), strict=True):
            known = {n for n in extents if n >= 0}
            if len(known) > 1:
                self._refuse("E1263", f"its elements have extents of {sorted(known)} at one place; {_CURE}", where)
            shape.append(known.pop() if known else self._batch)
        plain = _Plain(types.pop(), (lengths[0], *shape))
        if len(plain.shape) > MAX_RANK or stored_bytes(plain.dtype, prod(plain.shape)) > MAX_TENSOR_BYTES:
            self._refuse("E1263", f"as a tensor {list(plain.shape)} the list is too large; {_CURE}", where)
        return plain


def _open_shape(tensor: TensorView) -> tuple[int, ...]:
    """The declared shape, -1 where it is open."""
    signature = tensor.shape_signature if len(tensor.shape_signature) == len(tensor.shape) else tensor.shape
    return tuple(-1 if word < 0 else extent for word, extent in zip(signature, tensor.shape, strict=True))


class _Writer:
    """The record of the file with plain operators."""

    def __init__(self, record: Record, view: ModelView, plain: Mapping[Key, _Plain]) -> None:
        self._record, self._view, self._plain = record, view, plain
        self._buffers = list(record["buffers"] or ())
        self._codes = list(record["operator_codes"])
        self._tensors: list[Record] = []

    def written(self) -> Record:
        graphs = []
        for number, graph in enumerate(self._record["subgraphs"]):
            self._tensors = [self._tensor(number, i, t) for i, t in enumerate(graph["tensors"] or ())]
            operators: list[Record] = []
            for view, op in zip(self._view.subgraphs[number].operators, graph["operators"] or (), strict=True):
                operators += self._lowered(number, view) if is_on_lists(view) else [op]
            graphs.append({**graph, "tensors": tuple(self._tensors), "operators": tuple(operators)})
        changed = {"subgraphs": tuple(graphs), "buffers": tuple(self._buffers), "operator_codes": tuple(self._codes)}
        return {**self._record, **changed}

    def _tensor(self, graph: int, index: int, tensor: Record) -> Record:
        plain = self._plain.get((graph, index))
        if plain is None:
            return tensor
        declared = {"type": plain.dtype.upper(), "shape": np.array(plain.shape, np.int32), "shape_signature": None}
        return {**tensor, **declared, "variant_tensors": None, "quantization": None, "has_rank": True, "buffer": 0}

    def _lowered(self, graph: int, op: OperatorView) -> list[Record]:
        kind = _kind(op)
        plain = self._plain[graph, op.inputs[0] if kind in _LIST_IN else op.outputs[0]]
        shape, output = np.array(plain.shape, np.int32), op.outputs[0]
        if kind == "Reserve":
            value = self._constant(np.zeros((), plain.dtype), plain.dtype)
            return [self._operator("FILL", "FillOptions", (self._constant(shape, "int32"), value), output)]
        if kind == "GetItem":
            return [self._operator("GATHER", "GatherOptions", op.inputs[:2], output)]
        if kind != "SetItem":
            return [self._operator("RESHAPE", "ReshapeOptions", (op.inputs[0], self._constant(shape, "int32")), output)]
        name = self._view.subgraphs[graph].tensors[output].name
        row = self._new((1, *plain.shape[1:]), plain.dtype, f"{name}/row")
        whole = self._constant(np.array([1, *plain.shape[1:]], np.int32), "int32")
        start, before = self._start(graph, op, len(plain.shape), name)
        made = self._operator("RESHAPE", "ReshapeOptions", (op.inputs[2], whole), row)
        return [
            *before,
            made,
            self._operator("DYNAMIC_UPDATE_SLICE", "DynamicUpdateSliceOptions", (op.inputs[0], row, start), output),
        ]

    def _start(self, graph: int, op: OperatorView, rank: int, name: str) -> tuple[int, list[Record]]:
        """The tensor of the place in the list, and the operators that compute it."""
        index = self._view.subgraphs[graph].tensors[op.inputs[1]]
        if index.data is not None and index.data.size == 1:
            place = np.zeros(rank, np.int32)
            place[0] = int(index.data.reshape(-1)[0])
            return self._constant(place, "int32"), []
        first, start = self._new((1,), "int32", f"{name}/first"), self._new((rank,), "int32", f"{name}/start")
        one = self._constant(np.ones(1, np.int32), "int32")
        before = [self._operator("RESHAPE", "ReshapeOptions", (op.inputs[1], one), first)]
        if rank == 1:
            return first, before
        zeros = self._constant(np.zeros(rank - 1, np.int32), "int32")
        return start, [*before, self._operator("CONCATENATION", "ConcatenationOptions", (first, zeros), start)]

    def _operator(self, name: str, table: str, inputs: Sequence[int], output: int) -> Record:
        number = schema.enums()["BuiltinOperator"].index(name)
        code = {"deprecated_builtin_code": min(number, 127), "builtin_code": number, "version": 1}
        found = next(
            (i for i, c in enumerate(self._codes) if c["builtin_code"] == number and c["version"] == 1), len(self._codes)
        )
        if found == len(self._codes):
            self._codes.append({**default_record("OperatorCode"), **code})
        slot = "builtin_options2" if table in schema.enums()["BuiltinOptions2"] else "builtin_options"
        lists = {"inputs": np.array(inputs, np.int32), "outputs": np.array([output], np.int32)}
        options = (table, default_record(table))
        number_of_type = schema.enums()["BuiltinOptions2" if slot.endswith("2") else "BuiltinOptions"].index(table)
        return {**default_record("Operator"), **lists, "opcode_index": found, slot: options, f"{slot}_type": number_of_type}

    def _new(self, shape: tuple[int, ...], dtype: str, name: str, buffer: int = 0) -> int:
        declared = {"shape": np.array(shape, np.int32), "type": dtype.upper(), "name": name.encode(), "buffer": buffer}
        self._tensors.append({**default_record("Tensor"), **declared, "has_rank": True})
        return len(self._tensors) - 1

    def _constant(self, value: npt.NDArray[Any], dtype: str) -> int:
        self._buffers.append({**default_record("Buffer"), "data": value.astype(dtype).tobytes()})
        return self._new(value.shape, dtype, "list", len(self._buffers) - 1)
