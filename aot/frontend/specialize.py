"""One graph of a model with fixed shapes, as a model of its own: what --subgraph, --signature, --shape and --batch ask for.

The result is a file again, so that everything that looks at a model, the references included, sees what is compiled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.frontend import check
from aot.frontend.decode import Record, decode_model
from aot.frontend.encode import encode_model
from aot.frontend.flatbuffer import Reader
from aot.frontend.problems import Problems
from aot.frontend.tflite import GraphWalk
from aot.frontend.view import ABSENT, OperatorView, TensorView, parse
from aot.ir.type import TensorType
from aot.op import load_all
from aot.relay.expr import Expr
from aot.support.text import printable

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which graph (by number, or by the key of a signature; None: the first) and the shapes of its inputs, by name.

    `batch` is the first dimension of every input where that is dynamic.
    """

    subgraph: int | None = None
    signature: str | None = None
    shapes: tuple[tuple[str, Shape], ...] = ()
    batch: int | None = None

    def __bool__(self) -> bool:
        return self != FIRST_GRAPH


FIRST_GRAPH = Choice()


def specialize(model: bytes, choice: Choice) -> bytes:
    """The model with the chosen graph first and all shapes that follow from the chosen ones.

    A file that cannot be read is returned as it is, for the checks to report.  Raises UsageError (E5009) where a choice
    does not fit the model, and ModelError or UnsupportedError where no shapes follow from it.
    """
    if not choice:
        return model
    problems = Problems()
    record = decode_model(Reader(model), problems)
    if record is None or problems or not record["subgraphs"]:
        return model
    record = _with_graph_first(record, _chosen_graph(record, choice))
    wanted = _input_shapes(record["subgraphs"][0], record, choice)
    if wanted:
        record = _with_shapes(record, wanted, dynamic=True)
        record = _with_shapes(record, _all_shapes(encode_model(record)), dynamic=False)
    return encode_model(record)


def _refuse(message: str) -> UsageError:
    return UsageError(Problem("E5009", message))


# --- which graph


def _chosen_graph(record: Record, choice: Choice) -> int:
    count = len(record["subgraphs"])
    if choice.signature is None:
        index = choice.subgraph or 0
        if not 0 <= index < count:
            raise _refuse(f"--subgraph {index}: the model has {count} (0 to {count - 1})")
        return index
    found = {_text(s["signature_key"]): int(s["subgraph_index"]) for s in record["signature_defs"] or ()}
    if choice.signature not in found:
        names = ", ".join(map(printable, found)) or "none"
        raise _refuse(f"--signature {choice.signature}: the model's signatures are: {names}")
    index = found[choice.signature]
    if choice.subgraph not in (None, index):
        raise _refuse(f"--signature {choice.signature} is subgraph {index}, which contradicts --subgraph {choice.subgraph}")
    if not 0 <= index < count:
        raise _refuse(f"--signature {choice.signature} names subgraph {index}, which does not exist")
    return index


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", errors="replace")


def _with_graph_first(record: Record, chosen: int) -> Record:
    """The graphs in another order, and every number of a graph with them."""
    if chosen == 0:
        return record
    order = [chosen, *(i for i in range(len(record["subgraphs"])) if i != chosen)]
    number = {old: new for new, old in enumerate(order)}
    graphs = [record["subgraphs"][i] for i in order]
    graphs = [{**g, "operators": tuple(_renumbered(op, number) for op in g["operators"] or ())} for g in graphs]
    signatures = tuple({**s, "subgraph_index": number.get(s["subgraph_index"], 0)} for s in record["signature_defs"] or ())
    return {**record, "subgraphs": tuple(graphs), "signature_defs": signatures or None}


def _renumbered(operator: Record, number: Mapping[int, int]) -> Record:
    changed = dict(operator)
    for slot in ("builtin_options", "builtin_options2"):
        if operator[slot] is None:
            continue
        table, options = operator[slot]
        new = dict(options)
        for name, value in options.items():
            if name.endswith("subgraph_index") or (name == "subgraph" and table == "CallOptions"):
                new[name] = number.get(value, value)
            elif name in ("branch_subgraph_indices", "called_computations") and value is not None:
                new[name] = np.array([number.get(int(v), int(v)) for v in value], np.int32)
        changed[slot] = (table, new)
    return changed


# --- which shapes


def _shape(tensor: Record, key: str = "shape") -> Shape:
    return () if tensor[key] is None else tuple(map(int, tensor[key]))


def _input_shapes(graph: Record, record: Record, choice: Choice) -> dict[int, Shape]:
    """Tensor index -> chosen shape, for the inputs that get another one than they have."""
    inputs = [] if graph["inputs"] is None else [int(i) for i in graph["inputs"]]
    tensors = graph["tensors"] or ()
    if any(not 0 <= i < len(tensors) for i in inputs):
        return {}  # the checks report it
    names = {_text(tensors[i]["name"]): i for i in inputs}
    for signature in record["signature_defs"] or ():
        if signature["subgraph_index"] == 0:
            names |= {_text(m["name"]): m["tensor_index"] for m in signature["inputs"] or () if m["tensor_index"] in inputs}
    wanted = _batched(tensors, inputs, choice.batch)
    for name, shape in choice.shapes:
        if name not in names:
            raise _refuse(f"--shape {name}: the model's inputs are: {', '.join(map(printable, names))}")
        _check_shape(tensors[names[name]], name, shape)
        wanted[names[name]] = shape
    return {i: shape for i, shape in wanted.items() if shape != _shape(tensors[i])}


def _batched(tensors: Sequence[Record], inputs: Sequence[int], batch: int | None) -> dict[int, Shape]:
    if batch is None:
        return {}
    if batch < 1:
        raise _refuse(f"--batch {batch}: the batch is at least 1")
    found = {}
    for i in inputs:
        shape = _shape(tensors[i])
        if shape and (_is_dynamic(tensors[i], 0) or shape[0] == batch):
            found[i] = (batch, *shape[1:])
    if not found:
        raise _refuse(f"--batch {batch}: no input has a dynamic first dimension")
    return found


def _is_dynamic(tensor: Record, axis: int) -> bool:
    """Whether a dimension is -1, or nothing is said of it: converters before 2020 wrote no signatures."""
    shape, signature = _shape(tensor), _shape(tensor, "shape_signature")
    return shape[axis] < 0 or len(signature) != len(shape) or signature[axis] < 0


def _check_shape(tensor: Record, name: str, shape: Shape) -> None:
    own = _shape(tensor)
    if len(shape) != len(own):
        raise _refuse(f"--shape {name}: {len(shape)} dimensions where the input has {len(own)}")
    if any(n < 1 for n in shape):
        raise _refuse(f"--shape {name}: {list(shape)} has a dimension below 1")
    for axis, extent in enumerate(shape):
        if extent != own[axis] and not _is_dynamic(tensor, axis):
            raise _refuse(f"--shape {name}: dimension {axis} is {own[axis]} in the model, and not dynamic")


def _with_shapes(record: Record, shapes: Mapping[int, Shape], *, dynamic: bool) -> Record:
    """The record with other shapes in its first graph; with `dynamic`, what is -1 elsewhere becomes 1 until it is known."""
    graph = record["subgraphs"][0]
    tensors = []
    for i, tensor in enumerate(graph["tensors"]):
        shape = shapes.get(i, _shape(tensor))
        if dynamic:
            shape = tuple(1 if n == -1 else n for n in shape)
        changed: dict[str, Any] = {"shape": np.array(shape, np.int32)}
        if i in shapes:
            changed["shape_signature"] = None
        tensors.append({**tensor, **changed} if i in shapes or shape != _shape(tensor) else tensor)
    return {**record, "subgraphs": ({**graph, "tensors": tuple(tensors)}, *record["subgraphs"][1:])}


def _all_shapes(model: bytes) -> dict[int, Shape]:
    """The shapes that follow from those of the inputs, by tensor; all problems are raised."""
    problems = Problems()
    view = parse(model, problems)
    error = problems.error()
    if error is not None or view is None:
        raise error or _refuse("the model cannot be read")
    check.check_view(view, problems)
    error = problems.error()
    if error is not None:
        raise error
    load_all()
    walk = _ShapeWalk(view, 0, oracle="litert", problems=problems)
    with np.errstate(all="ignore"):
        walk.visit_all()
    error = problems.error()
    if error is not None:
        raise error
    return walk.shapes


class _ShapeWalk(GraphWalk):
    """A graph walk on which the results' shapes are what the operators yield, whatever the file declares."""

    def __init__(self, *args: Any, **given: Any) -> None:
        self.shapes: dict[int, Shape] = {}
        self._changed = False
        super().__init__(*args, **given)

    def _type(self, op: OperatorView | None, tensor: TensorView) -> TensorType:
        found = super()._type(op, tensor)
        shape = self.shapes.get(tensor.index)
        return found if shape is None else TensorType(shape, found.dtype, found.quant)

    def _results(self, op: OperatorView) -> Sequence[Expr] | None:
        self._guess(op)
        found = super()._results(op)
        if self._changed:  # some converters ask for the declared shape of the result
            self._changed = False
            found = super()._results(op)
        return found

    def _compare(self, op: OperatorView, position: int, expr: Expr) -> None:
        if isinstance(expr.type, TensorType) and expr.type.shape != self.output_type(op, position).shape:
            self.shapes[op.outputs[position]] = expr.type.shape
            self._changed = True
        super()._compare(op, position, expr)

    def _guess(self, op: OperatorView) -> None:
        """The shape of the result where the converter takes it from the declaration."""
        if not op.outputs or op.input(0) == ABSENT or not any(i in self.shapes or i in self.graph.inputs for i in op.inputs):
            return
        data, out = self.input_type(op, 0), self.output_type(op)
        guess = self._guessed(op, data.shape, out.shape)
        if guess is not None and guess != out.shape:
            self.shapes[op.outputs[0]] = guess

    def _guessed(self, op: OperatorView, data: Shape, out: Shape) -> Shape | None:
        match op.opcode:
            case "RESHAPE":
                wanted = self.constant(op, 1).ravel().tolist() if op.input(1) != ABSENT else list(op.option("new_shape"))
                known = prod(n for n in wanted if n != -1)
                return tuple(prod(data) // known if n == -1 and known else n for n in wanted)
            case "EXPAND_DIMS":
                axis = int(self.constant(op, 1).ravel()[0])
                axis += len(data) + 1 if axis < 0 else 0
                return (*data[:axis], 1, *data[axis:])
            case "SQUEEZE":
                dims = {d % len(data) for d in op.option("squeeze_dims")} if data else set()
                return tuple(n for i, n in enumerate(data) if (i not in dims if dims else n != 1))
            case "FULLY_CONNECTED":
                channels, depth = self.input_type(op, 1).shape
                keep = op.option("keep_num_dims")
                return (*data[:-1], channels) if keep else (prod(data) // depth, channels)
            case "BATCH_MATMUL" | "TRANSPOSE_CONV" if out:
                return (data[0], *out[1:])
        return None
