"""One graph of a model with fixed shapes as a model of its own, for --subgraph, --signature, --shape and --batch.

The result is a file again, so that everything that reads the model, including the references, sees what is compiled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from aot.errors import AotError, Problem, UnsupportedError, UsageError
from aot.frontend import chain
from aot.frontend.formats import FIRST_GRAPH, Choice, Shape
from aot.frontend.problems import Problems
from aot.frontend.tflite import check, schema
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.graph import GraphWalk
from aot.frontend.tflite.records import Record, decode_model, encode_model, ints, text
from aot.frontend.tflite.tensor_lists import has_lists, open_batch, without_lists
from aot.frontend.tflite.view import ABSENT, SubgraphView, TensorView, parse
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean, printable


@lru_cache(maxsize=2)
def specialize(model: bytes, choice: Choice = FIRST_GRAPH) -> bytes:
    """The model with the chosen graph first, and all shapes that follow from the inputs' shapes declared.

    Returned unchanged: a file that cannot be read (the checks report it); and, without a choice, one whose shapes do not follow,
    or equal the declared ones.  Raises UsageError (E5027) if a choice does not fit the model, and ModelError or UnsupportedError
    if no shapes follow from it."""
    if model.startswith(chain.MARK):
        if choice:
            raise UsageError(
                Problem("E1305", "--shape, --batch, --signature and --subgraph apply to a single model, not to a chain")
            )
        return model
    model = _without_lists(model, choice)
    if not choice:
        return _with_known_shapes(model)
    problems = Problems()
    record = decode_model(Reader(model), problems)
    if record is None or problems or not record["subgraphs"]:
        return model
    record = _with_graph_first(record, _chosen_graph(record, choice))
    input_shapes = _input_shapes(record["subgraphs"][0], record, choice)
    if not input_shapes:
        return _with_known_shapes(encode_model(record))
    before, record = record, _with_shapes(record, input_shapes, opened=True)
    shapes, error = _all_shapes(encode_model(record))
    if error is not None:
        raise _made_for_one_shape(error, before, input_shapes)
    return encode_model(_with_shapes(record, shapes, opened=False))


def _without_lists(model: bytes, choice: Choice) -> bytes:
    """The model with plain tensors instead of lists; unchanged if there are none, or the checks report a problem."""
    view = parse(model, problems := Problems())
    if view is None or problems or not has_lists(view):
        return model
    batch = choice.batch or next((shape[0] for _, shape in choice.shapes if shape), open_batch(view))
    return without_lists(model, view, problems, batch=batch) or model


def _made_for_one_shape(error: AotError, before: Record, wanted: Mapping[int, Shape]) -> AotError:
    """The error if the chosen shapes cannot be propagated: E1240 if constants fix the original shapes."""
    broken = [p for p in error.problems if p.code.startswith("E11")]
    if not broken or _all_shapes(encode_model(before))[1] is not None:
        return error
    tensors = before["subgraphs"][0]["tensors"]
    chosen = ", ".join(
        f"{list(shape)} for {printable(text(tensors[i]['name']))}, which has {list(ints(tensors[i]['shape']))}"
        for i, shape in wanted.items()
    )
    first = broken[0]
    message = f"the graph works with its original shapes only, not {chosen}: {first.message} ({first.code})"
    return UnsupportedError(Problem("E1240", message, first.where))


def _with_known_shapes(model: bytes) -> bytes:
    """The model with all shapes that follow from the inputs' shapes instead of the file's open ones."""
    view = check.check_bytes(model, problems := Problems())
    if view is None or problems or not any(t.is_open for t in _computed(view.subgraphs[0])):
        return model
    shapes, error = _all_shapes(model)
    if error is not None or all(t.shape == shapes.get(t.index, t.shape) for t in view.subgraphs[0].tensors):
        return model
    record = decode_model(Reader(model), Problems())
    assert record is not None, "it has been read before"
    return encode_model(_with_shapes(record, shapes, opened=False))


def _computed(graph: SubgraphView) -> list[TensorView]:
    """The tensors that operators compute."""
    return [graph.tensors[i] for op in graph.operators for i in op.outputs]


def _refuse(message: str) -> UsageError:
    return UsageError(Problem("E5027", message))


# --- the graph


def _chosen_graph(record: Record, choice: Choice) -> int:
    count = len(record["subgraphs"])
    if choice.signature is None:
        index = choice.subgraph or 0
        if not 0 <= index < count:
            raise _refuse(f"--subgraph {index}: the model has {count} (0 to {count - 1})")
        return index
    signatures = {text(s["signature_key"]): int(s["subgraph_index"]) for s in record["signature_defs"] or ()}
    if choice.signature not in signatures:
        names, near = ", ".join(map(printable, signatures)) or "none", did_you_mean(choice.signature, signatures)
        raise _refuse(f"--signature {choice.signature}{near}: the model's signatures are: {names}")
    index = signatures[choice.signature]
    if choice.subgraph not in (None, index):
        raise _refuse(f"--signature {choice.signature} is subgraph {index}, which contradicts --subgraph {choice.subgraph}")
    if not 0 <= index < count:
        raise _refuse(f"--signature {choice.signature} names subgraph {index}, which does not exist")
    return index


def _with_graph_first(record: Record, chosen: int) -> Record:
    """The graphs in another order, with all references to graphs renumbered."""
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


# --- the shapes


def _input_shapes(graph: Record, record: Record, choice: Choice) -> dict[int, Shape]:
    """Tensor index -> chosen shape, for inputs with a chosen shape; -1 for a dimension that stays open."""
    inputs = ints(graph["inputs"])
    tensors = graph["tensors"] or ()
    if any(not 0 <= i < len(tensors) for i in inputs):
        return {}  # the checks report it
    names = {text(tensors[i]["name"]): i for i in inputs}
    for signature in record["signature_defs"] or ():
        if signature["subgraph_index"] == 0:
            names |= {text(m["name"]): m["tensor_index"] for m in signature["inputs"] or () if m["tensor_index"] in inputs}
    chosen = _batched(tensors, inputs, choice.batch)
    for name, shape in choice.shapes:
        if name not in names:
            near = did_you_mean(name, names)
            raise _refuse(f"--shape {name}{near}: the model's inputs are: {', '.join(map(printable, names))}")
        _check_shape(tensors[names[name]], name, shape)
        chosen[names[name]] = shape
    return chosen


def _batched(tensors: Sequence[Record], inputs: Sequence[int], batch: int | None) -> dict[int, Shape]:
    if batch is None:
        return {}
    if batch < 1:
        raise _refuse(f"--batch {batch}: the batch must be at least 1")
    shapes = {}
    for i in inputs:
        shape, signature = ints(tensors[i]["shape"]), ints(tensors[i]["shape_signature"])
        if shape and (_is_dynamic(tensors[i], 0) or shape[0] == batch):
            said = signature if len(signature) == len(shape) else shape
            others = zip(shape[1:], said[1:], strict=True)
            shapes[i] = (batch, *(-1 if word == -1 and extent in (1, -1) else extent for extent, word in others))
    if not shapes:
        raise _refuse(f"--batch {batch}: no input has a dynamic first dimension")
    return shapes


def _is_dynamic(tensor: Record, axis: int) -> bool:
    """Whether a dimension is -1 or undeclared: converters before 2020 wrote no signatures."""
    shape, signature = ints(tensor["shape"]), ints(tensor["shape_signature"])
    return shape[axis] < 0 or len(signature) != len(shape) or signature[axis] < 0


def _check_shape(tensor: Record, name: str, shape: Shape) -> None:
    own = ints(tensor["shape"])
    if len(shape) != len(own):
        raise _refuse(f"--shape {name}: {len(shape)} dimensions, but the input has {len(own)}")
    if any(n < 1 for n in shape):
        raise _refuse(f"--shape {name}: {list(shape)} has a dimension below 1")
    for axis, extent in enumerate(shape):
        if extent != own[axis] and not _is_dynamic(tensor, axis):
            raise _refuse(f"--shape {name}: dimension {axis} is fixed to {own[axis]} in the model")


def _with_shapes(record: Record, shapes: Mapping[int, Shape], *, opened: bool) -> Record:
    """The record with other shapes in its first graph; with `opened`, all computed tensors become open."""
    graph = record["subgraphs"][0]
    computed = {i for op in graph["operators"] or () for i in ints(op["outputs"])}
    tensors = []
    for i, tensor in enumerate(graph["tensors"]):
        changed: dict[str, Any] = {}
        if i in shapes:
            signature = np.array(shapes[i], np.int32) if -1 in shapes[i] else None
            shape = np.array([abs(n) for n in shapes[i]], np.int32)
            changed = {"shape": shape, "shape_signature": signature, "has_rank": True}
        elif opened and i in computed:
            shape = np.array([max(n, 1) for n in ints(tensor["shape"])], np.int32)
            changed = {"shape": shape, "shape_signature": np.full(shape.size, -1, np.int32), "has_rank": False}
        tensors.append({**tensor, **changed})
    return {**record, "subgraphs": ({**graph, "tensors": tuple(tensors)}, *record["subgraphs"][1:])}


def _all_shapes(model: bytes) -> tuple[dict[int, Shape], AotError | None]:
    """The shapes of the inputs and computed tensors, by tensor, or the error that prevents computing them."""
    problems = Problems()
    view = check.check_bytes(model, problems)
    if view is None or problems:
        return {}, problems.error()
    walk = GraphWalk(view, 0, oracle="litert", problems=problems)
    with np.errstate(all="ignore"):
        walk.visit_all()
    graph, shapes = view.subgraphs[0], walk.shapes()
    relevant = {*graph.inputs, *(t.index for t in _computed(graph))}
    return {i: shape for i, shape in shapes.items() if i in relevant}, problems.error()


# A few operators of a model as a model of their own, to reproduce a fault in isolation.


STATEFUL = frozenset({"VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"})


class NotAloneError(ValueError):
    """The operators have no meaning outside their model; the message says why."""


@dataclass(frozen=True, slots=True)
class Extract:
    """`data`: the file; `inputs`: for each of its inputs the tensor's index in the original model."""

    data: bytes
    inputs: tuple[int, ...]


def extract(model: bytes, operators: Collection[int], output: int) -> Extract:
    """Operators (indices in the first graph) of a valid model, and those between them, that compute tensor `output`.

    Tensors that other operators compute become inputs; types, quantisation and constants stay.  Raises NotAloneError if the
    operators have state or run other graphs.
    """
    reader = Reader(model)
    record = decode_model(reader, Problems())
    if record is None or not record["subgraphs"]:
        raise NotAloneError("the model cannot be read")
    graph = record["subgraphs"][0]
    chosen = _needed(graph["operators"], operators, output)
    if not chosen:
        raise NotAloneError(f"none of the operators computes tensor {output}")
    for i in chosen:
        _check_alone(record, graph, i)
    computed = {t for i in chosen for t in graph["operators"][i]["outputs"].tolist()}
    used = dict.fromkeys(t for i in chosen for t in _inputs(graph["operators"][i]))
    inputs = tuple(t for t in used if t not in computed and not _is_constant(record, graph["tensors"][t]))
    kept = sorted({*used, *computed})
    return Extract(encode_model(_cut(reader, record, chosen, kept=kept, given=inputs, output=output)), inputs)


def _inputs(operator: Record) -> list[int]:
    return [t for t in ints(operator["inputs"]) if t != ABSENT]


def _needed(operators: tuple[Record, ...], wanted: Collection[int], output: int) -> list[int]:
    """The requested operators that lead to `output`, and those between them and it, in order of execution."""
    after: set[int] = set()
    reached: set[int] = set()
    for i, operator in enumerate(operators):
        if i in wanted or reached & set(_inputs(operator)):
            after.add(i)
            reached |= set(operator["outputs"].tolist())
    asked, chosen = {output}, []
    for i in sorted(after, reverse=True):
        if asked & set(operators[i]["outputs"].tolist()):
            chosen.append(i)
            asked |= set(_inputs(operators[i]))
    return chosen[::-1]


def _check_alone(record: Record, graph: Record, index: int) -> None:
    operator = graph["operators"][index]
    code = record["operator_codes"][operator["opcode_index"]]
    number = max(code["builtin_code"], code["deprecated_builtin_code"])
    names = schema.enums()["BuiltinOperator"]
    name = names[number] if 0 <= number < len(names) else str(number)
    options: tuple[str, Mapping[str, Any]] | None = operator["builtin_options"] or operator["builtin_options2"]
    calls = options is not None and any("subgraph" in key for key in options[1])
    state = name in STATEFUL or any(graph["tensors"][t]["is_variable"] for t in _inputs(operator))
    if calls or state:
        raise NotAloneError(f"op {index} {name} {'runs another graph' if calls else 'has state'}")


def _is_constant(record: Record, tensor: Record) -> bool:
    if tensor["external_buffer"]:
        return True
    buffers = record["buffers"] or ()
    if not tensor["buffer"] or tensor["buffer"] >= len(buffers):
        return False
    buffer = buffers[tensor["buffer"]]
    return bool(buffer["data"]) or buffer["offset"] > 1


def _cut(reader: Reader, record: Record, chosen: list[int], *, kept: list[int], given: tuple[int, ...], output: int) -> Record:
    """The model's record with only these operators and tensors, renumbered."""
    graph = record["subgraphs"][0]
    number = {t: i for i, t in enumerate(kept)} | {ABSENT: ABSENT}
    buffers: list[Record] = [{"data": None, "offset": 0, "size": 0}]
    places: dict[int, int] = {}
    tensors = []
    for t in kept:
        tensor = graph["tensors"][t]
        old = tensor["buffer"]
        if not _is_constant(record, tensor):
            places[old] = 0
        elif old not in places:
            places[old] = len(buffers)
            buffers.append(buffer_of(reader, record["buffers"][old]))
        tensors.append({**tensor, "buffer": places[old]})
    codes = sorted({graph["operators"][i]["opcode_index"] for i in chosen})
    operators = []
    for i in chosen:
        old_op = graph["operators"][i]
        lists = {k: [number[t] for t in old_op[k].tolist()] for k in ("inputs", "outputs") if old_op[k] is not None}
        # the kernels' scratch tensors are not needed for computing, and may not be in `kept`
        operators.append({**old_op, **lists, "opcode_index": codes.index(old_op["opcode_index"]), "intermediates": None})
    lists = {"inputs": [number[t] for t in given], "outputs": [number[output]]}
    cut = {**graph, **lists, "tensors": tuple(tensors), "operators": tuple(operators), "debug_metadata_index": -1}
    nothing = dict.fromkeys(("metadata_buffer", "metadata", "signature_defs", "external_buffer_groups", "external_buffers"))
    return {
        **record,
        **nothing,
        "operator_codes": tuple(record["operator_codes"][c] for c in codes),
        "subgraphs": (cut,),
        "buffers": tuple(buffers),
    }


def buffer_of(reader: Reader, buffer: Record) -> Record:
    """The same buffer with its bytes inside its table; files of more than 2 GB have an offset there."""
    far = buffer["offset"] > 1
    data = reader.block(buffer["offset"], buffer["size"], "a buffer") if far else buffer["data"]
    return {"data": bytes(data or b""), "offset": 0, "size": 0}
