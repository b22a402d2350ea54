"""Lists of tensors, which TensorFlow's loops write and read, rewritten as plain tensors: recurrent layers with SELECT_TF_OPS.

A list of n elements of shape s is a tensor [n, *s]: TensorListReserve is FILL, SetItem is DYNAMIC_UPDATE_SLICE, GetItem and
Gather are GATHER, Stack, FromTensor and Concat are RESHAPE.  The result is a file of builtin operators, so that the references
can run it, too.  n may be open if it follows from the shapes of inputs: then --shape fixes it like other shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from aot.frontend.problems import Problems
from aot.frontend.tflite import schema
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.records import Record, decode_model, default_record, encode_model, ints
from aot.frontend.tflite.view import MAX_RANK, MAX_TENSOR_BYTES, ModelView, OperatorView, TensorView, parse, stored_bytes
from aot.support.dataclass import dataclass
from aot.support.text import printable

_PREFIX = "FlexTensorList"
_OPERANDS = {
    "Reserve": (2, 1), "SetItem": (3, 1), "GetItem": (3, 1), "Gather": (3, 1), "Stack": (2, 1), "ConcatV2": (3, 2),
    "Length": (1, 1), "FromTensor": (2, 1),
}  # fmt: skip
"""Operator -> number of its inputs and outputs."""
_LIST_OUT = ("Reserve", "SetItem", "FromTensor")
_LIST_IN = tuple(kind for kind in _OPERANDS if kind not in ("Reserve", "FromTensor"))
_ELEMENT_SHAPE = {"Reserve": 0, "GetItem": 2, "Gather": 2, "Stack": 1, "ConcatV2": 1, "FromTensor": 1}
"""Operator -> the input that gives the elements' shape, -1 if that is open."""
_GROWS = b"resize_if_index_out_of_bounds\x12\x02\x28\x01"
"""Within a serialised NodeDef: the attribute, set to true."""
_TYPES = ("float32", "int32", "int64", "int8", "uint8", "int16", "bool")
_CURE = "convert with unroll=True, or with a fixed batch and without SELECT_TF_OPS"

Key = tuple[int, int]
"""Number of the graph and of a tensor in it."""


class _RefusedError(Exception):
    """A list cannot become a tensor; already reported, or the structure's checks will."""


@dataclass(frozen=True, slots=True)
class _Plain:
    """The tensor that a list becomes; its first extent is -1 if it follows from the shapes of inputs."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Said:
    """What operators say about one list: its first place, types and shapes of elements (-1: open), and numbers of elements."""

    where: str
    items: list[tuple[str, tuple[int, ...]]]
    lengths: list[int]
    """`_FOLLOWS` for a number computed from shapes, -1 for an open one."""


_FOLLOWS = -2


def has_lists(view: ModelView) -> bool:
    """Whether a model has operators on lists."""
    return any(is_on_lists(op) for graph in view.subgraphs for op in graph.operators)


def without_lists(model: bytes, view: ModelView, problems: Problems, *, batch: int) -> bytes | None:
    """The model with its lists as plain tensors; `batch` replaces open dimensions of elements.

    None if that is not possible: E1262 and E1263 are noted; contradictions are left to the structural checks.
    """
    record = decode_model(Reader(model), Problems())
    if record is None:
        return None
    try:
        if _shared(view):
            record = _with_own_lists(record, view)
            view = parse(encode_model(record), Problems()) or view
        plain = _Finder(view, problems, batch).plain()
    except _RefusedError:
        return None
    return encode_model(_Writer(record, view, plain).written())


def is_on_lists(op: OperatorView) -> bool:
    """Whether this is one of TensorFlow's operators on lists."""
    return op.opcode == "CUSTOM" and op.custom_name.startswith((_PREFIX, "FlexEmptyTensorList"))


def open_batch(view: ModelView) -> int:
    """The file's value of the first input's open dimension: usually a batch of 1."""
    graph = view.subgraphs[0]
    inputs = [graph.tensors[i] for i in graph.inputs if 0 <= i < len(graph.tensors)]
    return next((t.shape[0] for t in inputs if t.shape and t.shape[0] > 0 and _open_shape(t)[0] < 0), 1)


def _kind(op: OperatorView) -> str:
    return op.custom_name.removeprefix(_PREFIX) if is_on_lists(op) else ""


def _shared(view: ModelView) -> dict[Key, int]:
    """New lists with which several loops begin, and how many: the converter merges lists that it cannot distinguish."""
    shared: dict[Key, int] = {}
    for graph in view.subgraphs:
        uses = Counter([*(i for op in graph.operators for i in op.inputs), *graph.outputs])
        reserves = [op for op in graph.operators if _kind(op) == "Reserve" and len(op.outputs) == 1]
        shared |= {(graph.index, op.outputs[0]): n for op in reserves if (n := uses[op.outputs[0]]) > 1}
    return shared


def _with_own_lists(record: Record, view: ModelView) -> Record:
    """The record with a separate list for each use, since element shapes may differ between uses."""
    shared, graphs = _shared(view), []
    for number, graph in enumerate(record["subgraphs"]):
        tensors, operators, copies = [*(graph["tensors"] or ())], [], dict[int, list[int]]()
        for op in graph["operators"] or ():
            inputs, outputs = ints(op["inputs"]), ints(op["outputs"])
            renamed = np.array([copies[i].pop() if copies.get(i) else i for i in inputs], np.int32)
            operators.append({**op, "inputs": renamed})
            if len(outputs) == 1 and (number, outputs[0]) in shared and 0 <= outputs[0] < len(tensors):
                for _ in range(shared[number, outputs[0]] - 1):
                    copies.setdefault(outputs[0], []).append(len(tensors))
                    operators.append({**op, "outputs": np.array([len(tensors)], np.int32)})
                    tensors.append(tensors[outputs[0]])
        graphs.append({**graph, "tensors": tuple(tensors), "operators": tuple(operators)})
    return {**record, "subgraphs": tuple(graphs)}


class _Finder:
    """Finds which tensors are one list, and collects what is known about it."""

    def __init__(self, view: ModelView, problems: Problems, batch: int) -> None:
        self._view, self._problems, self._batch = view, problems, batch
        self._parent: dict[Key, Key] = {}

    def plain(self) -> dict[Key, _Plain]:
        """The tensors that lists become, by each tensor of the file that is a list."""
        operators = [(g.index, op) for g in self._view.subgraphs for op in g.operators]
        for graph, op in operators:
            self._check(graph, op)
        for graph, op in operators:
            if op.opcode in ("WHILE", "IF"):
                self._join_calls(graph, op)
            elif _kind(op) == "SetItem":
                self._join((graph, op.inputs[0]), (graph, op.outputs[0]))
        facts: dict[Key, _Said] = {}
        for graph, op in operators:
            if is_on_lists(op):
                key = self._root((graph, op.inputs[0] if _kind(op) in _LIST_IN else op.outputs[0]))
                self._learn(graph, op, facts.setdefault(key, _Said(op.where, [], [])))
        plain = {key: self._decided(said) for key, said in facts.items()}
        keys = [(g.index, t.index) for g in self._view.subgraphs for t in g.tensors if t.dtype == "variant"]
        lists = {key: self._root(key) for key in keys}
        for (graph, index), key in lists.items():
            if key not in plain:
                tensor = self._view.subgraphs[graph].tensors[index]
                self._refuse("E1262", f"this list of tensors is not created and read by operators; {_CURE}", tensor.where)
        return {key: plain[root] for key, root in lists.items()}

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
            self._refuse("E1262", f"{name} may grow its list at run time; {_CURE}", op.where)

    def _join_calls(self, graph: int, op: OperatorView) -> None:
        names, args = (("cond", "body"), op.inputs) if op.opcode == "WHILE" else (("then", "else"), op.inputs[1:])
        for name in names:
            index = op.option(f"{name}_subgraph_index")
            if not 0 <= index < len(self._view.subgraphs):
                raise _RefusedError
            inner = self._view.subgraphs[index]
            if not all(0 <= i < len(inner.tensors) for i in (*inner.inputs, *inner.outputs)):
                raise _RefusedError
            results = zip(op.outputs, inner.outputs, strict=False) if name != "cond" else ()
            for a, b in (*zip(args, inner.inputs, strict=False), *results):
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

    def _learn(self, graph: int, op: OperatorView, said: _Said) -> None:
        """Note what an operator says about its list."""
        tensors, kind = self._view.subgraphs[graph].tensors, _kind(op)
        if kind in _ELEMENT_SHAPE:
            element = tensors[op.inputs[_ELEMENT_SHAPE[kind]]].data
            if element is not None and element.ndim == 1 and element.dtype in (np.int32, np.int64):
                said.items.append(("", tuple(int(n) for n in element)))
        if kind == "Reserve":
            said.lengths.append(self._length(graph, op))
        elif kind in ("SetItem", "GetItem"):
            tensor = tensors[op.inputs[2] if kind == "SetItem" else op.outputs[0]]
            if tensor.has_rank or tensor.shape:
                said.items.append((tensor.dtype, _open_shape(tensor)))
        elif kind in ("Stack", "FromTensor", "Gather"):
            tensor = tensors[op.inputs[0] if kind == "FromTensor" else op.outputs[0]]
            shape = _open_shape(tensor)
            if shape:
                said.items.append((tensor.dtype, shape[1:]))
            if kind == "FromTensor" or (kind == "Stack" and shape and shape[0] >= 0):
                said.lengths.append(shape[0] if shape else -1)

    def _length(self, graph: int, op: OperatorView) -> int:
        """The number of elements of a new list, or _FOLLOWS."""
        number = self._view.subgraphs[graph].tensors[op.inputs[1]]
        length = number.data
        if length is None and number.dtype == "int32" and self._follows(graph, number.index):
            return _FOLLOWS
        if length is None or length.size != 1 or length.dtype != np.int32 or length.reshape(-1)[0] < 1:
            self._refuse("E1263", f"its number of elements is not known at compile time; {_CURE}", op.where)
        assert length is not None
        return int(length.reshape(-1)[0])

    def _follows(self, graph: int, index: int) -> bool:
        """Whether a tensor is computed from shapes and constants only."""
        tensors = self._view.subgraphs[graph].tensors
        made_by = {i: op for op in self._view.subgraphs[graph].operators for i in op.outputs}
        waiting, seen = [index], set[int]()
        while waiting:
            i = waiting.pop()
            if i in seen or i < 0 or tensors[i].data is not None:
                continue
            seen.add(i)
            if i not in made_by:
                return False
            waiting += [] if made_by[i].opcode == "SHAPE" else made_by[i].inputs
        return True

    def _decided(self, said: _Said) -> _Plain:
        types = {dtype for dtype, _ in said.items if dtype}
        if len(types) != 1 or not types <= set(_TYPES):
            self._refuse("E1262", f"a list of {' and '.join(sorted(types)) or 'unknown'} elements; {_CURE}", said.where)
        lengths = {n for n in said.lengths if n >= 0}
        open_ = _FOLLOWS in said.lengths or (not lengths and bool(said.lengths))
        if not (open_ or len(lengths) == 1) or len({len(s) for _, s in said.items}) != 1:
            self._refuse("E1263", f"the size of the list, or the rank of its elements, is not known; {_CURE}", said.where)
        shape = []
        for extents in zip(*(s for _, s in said.items), strict=True):
            declared = {n for n in extents if n >= 0}
            if len(declared) > 1:
                self._refuse(
                    "E1263", f"its elements have different extents {sorted(declared)} in one dimension; {_CURE}", said.where
                )
            shape.append(declared.pop() if declared else self._batch)
        plain = _Plain(types.pop(), (-1 if open_ else lengths.pop(), *shape))
        if len(plain.shape) > MAX_RANK or stored_bytes(plain.dtype, abs(prod(plain.shape))) > MAX_TENSOR_BYTES:
            self._refuse("E1263", f"as a tensor {list(plain.shape)} the list is too large; {_CURE}", said.where)
        return plain


def _open_shape(tensor: TensorView) -> tuple[int, ...]:
    """The declared shape, with -1 for open dimensions."""
    signature = tensor.shape_signature if len(tensor.shape_signature) == len(tensor.shape) else tensor.shape
    return tuple(-1 if word < 0 else extent for word, extent in zip(signature, tensor.shape, strict=True))


class _Writer:
    """Writes the file's record with plain operators."""

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
        word = np.array(plain.shape, np.int32)
        declared = {"type": plain.dtype.upper(), "shape": np.abs(word), "shape_signature": word if word[0] < 0 else None}
        return {**tensor, **declared, "variant_tensors": None, "quantization": None, "has_rank": True, "buffer": 0}

    def _lowered(self, graph: int, op: OperatorView) -> list[Record]:
        kind = _kind(op)
        plain = self._plain[graph, op.inputs[0] if kind in _LIST_IN else op.outputs[0]]
        output = op.outputs[0]
        match kind:
            case "Reserve":
                dims, before = self._dims(op, plain)
                value = self._constant(np.zeros((), plain.dtype), plain.dtype)
                return [*before, self._operator("FILL", (dims, value), output)]
            case "GetItem" | "Gather":
                return [self._operator("GATHER", op.inputs[:2], output)]
            case "Length":
                return self._length(op.inputs[0], np.zeros((), np.int32), len(plain.shape), output)
            case "ConcatV2":
                return self._joined(op, plain)
            case "SetItem":
                return self._written_item(graph, op, plain)
        if plain.shape[0] >= 0:
            return [self._reshape(op.inputs[0], plain.shape, output)]
        begin, size = (self._constant(np.full(len(plain.shape), n, np.int32), "int32") for n in (0, -1))
        return [self._operator("SLICE", (op.inputs[0], begin, size), output)]

    def _dims(self, op: OperatorView, plain: _Plain) -> tuple[int, list[Record]]:
        """The tensor with a new list's shape, and the operators that compute it."""
        if plain.shape[0] >= 0:
            return self._constant(np.array(plain.shape, np.int32), "int32"), []
        return self._vector(op.inputs[1], plain.shape[1:], "list")

    def _length(self, data: int, which: npt.NDArray[np.int32], rank: int, output: int) -> list[Record]:
        """The number of elements, as a number or as a vector of one."""
        shape = self._new((rank,), "int32", "list/shape")
        gather = self._operator("GATHER", (shape, self._constant(which, "int32")), output)
        return [self._operator("SHAPE", (data,), shape, out_type="INT32"), gather]

    def _joined(self, op: OperatorView, plain: _Plain) -> list[Record]:
        """The concatenated elements, and the length of each."""
        length, first, *element = *plain.shape, 1
        element = element[:-1]
        count = self._new((1,), "int32", "list/length")
        each = self._constant(np.array(first), "int64")
        return [
            self._reshape(op.inputs[0], (length * first if length >= 0 else -1, *element), op.outputs[0]),
            *self._length(op.inputs[0], np.zeros(1, np.int32), len(plain.shape), count),
            self._operator("FILL", (count, each), op.outputs[1]),
        ]

    def _written_item(self, graph: int, op: OperatorView, plain: _Plain) -> list[Record]:
        output = op.outputs[0]
        name = self._view.subgraphs[graph].tensors[output].name
        row = self._new((1, *plain.shape[1:]), plain.dtype, f"{name}/row")
        start, before = self._start(graph, op, len(plain.shape), name)
        written = (op.inputs[0], row, start)
        return [
            *before,
            self._reshape(op.inputs[2], (1, *plain.shape[1:]), row),
            self._operator("DYNAMIC_UPDATE_SLICE", written, output),
        ]

    def _start(self, graph: int, op: OperatorView, rank: int, name: str) -> tuple[int, list[Record]]:
        """The tensor with the position in the list, and the operators that compute it."""
        index = self._view.subgraphs[graph].tensors[op.inputs[1]]
        if index.data is not None and index.data.size == 1:
            place = np.zeros(rank, np.int32)
            place[0] = int(index.data.reshape(-1)[0])
            return self._constant(place, "int32"), []
        return self._vector(op.inputs[1], (0,) * (rank - 1), name)

    def _vector(self, number: int, rest: tuple[int, ...], name: str) -> tuple[int, list[Record]]:
        """The tensor [number, *rest], and the operators that compute it."""
        first = self._new((1,), "int32", f"{name}/first")
        before = [self._reshape(number, (1,), first)]
        if not rest:
            return first, before
        whole = self._new((1 + len(rest),), "int32", f"{name}/place")
        parts = (first, self._constant(np.array(rest, np.int32), "int32"))
        return whole, [*before, self._operator("CONCATENATION", parts, whole)]

    def _reshape(self, data: int, shape: tuple[int, ...], output: int) -> Record:
        whole = self._constant(np.array(shape, np.int32), "int32")
        return self._operator("RESHAPE", (data, whole), output)

    def _operator(self, name: str, inputs: Sequence[int], output: int, **options: Any) -> Record:
        number = schema.enums()["BuiltinOperator"].index(name)
        known = [i for i, c in enumerate(self._codes) if c["builtin_code"] == number and c["version"] == 1]
        if not known:
            known = [len(self._codes)]
            code = {"deprecated_builtin_code": min(number, 127), "builtin_code": number, "version": 1}
            self._codes.append({**default_record("OperatorCode"), **code})
        table = name.title().replace("_", "") + "Options"
        lists = {"inputs": np.array(inputs, np.int32), "outputs": np.array([output], np.int32), "opcode_index": known[0]}
        kind = schema.enums()["BuiltinOptions"].index(table)
        chosen = {"builtin_options": (table, default_record(table) | options), "builtin_options_type": kind}
        return {**default_record("Operator"), **lists, **chosen}

    def _new(self, shape: tuple[int, ...], dtype: str, name: str, buffer: int = 0) -> int:
        declared = {"shape": np.array(shape, np.int32), "type": dtype.upper(), "name": name.encode(), "buffer": buffer}
        self._tensors.append({**default_record("Tensor"), **declared, "has_rank": True})
        return len(self._tensors) - 1

    def _constant(self, value: npt.NDArray[Any], dtype: str) -> int:
        self._buffers.append({**default_record("Buffer"), "data": value.astype(dtype).tobytes()})
        return self._new(value.shape, dtype, "list", len(self._buffers) - 1)
