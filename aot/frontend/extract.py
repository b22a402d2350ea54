"""A few operators of a model as a model of their own, to reproduce a fault in isolation."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from aot.frontend import schema
from aot.frontend.decode import Record, decode_model
from aot.frontend.encode import encode_model
from aot.frontend.flatbuffer import Reader
from aot.frontend.problems import Problems
from aot.frontend.view import ABSENT
from aot.support.dataclass import dataclass

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
    return [] if operator["inputs"] is None else [t for t in operator["inputs"].tolist() if t != ABSENT]


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
