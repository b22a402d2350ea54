"""Models changed in their parts: scales, zero points, attributes, shapes, constants; most remain models that compile.

(tests/frontend/tflite/mutate.py changes bytes, which mostly makes files that are refused.)
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from aot.frontend.formats import Choice
from aot.frontend.problems import Problems
from aot.frontend.tflite import schema
from aot.frontend.tflite.flatbuffer import Reader
from aot.frontend.tflite.records import Record, decode_model, encode_model
from aot.frontend.tflite.specialize import specialize

FACTORS = (0.5, 2.0, 0.75, 1.0000001, 1e-3, 1e3, 1e-6, 1e6, 2.0**-20, 2.0**20, 3.0, 1 / 3)
_ENDS = {"INT8": (-128, 127), "UINT8": (0, 255)}
_TYPES = {"INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64}


def mutate(model: bytes, rng: Random) -> bytes:
    """One to three changes of different kinds.  Raises AotError where the new shapes do not follow."""
    record = decode_model(Reader(model), Problems())
    assert record is not None
    graph = record["subgraphs"][0]
    shapes: tuple[tuple[str, tuple[int, ...]], ...] = ()
    for change in rng.sample((_scale, _scale, _zero_point, _option, _option, _constant, _shape), rng.choice((1, 1, 2, 3))):
        shapes += change(record, graph, rng) or ()
    data = encode_model(record)
    return specialize(data, Choice(shapes=shapes[-1:])) if shapes else data


def _quantised(graph: Record) -> list[Record]:
    return [t["quantization"] for t in graph["tensors"] if t["quantization"] and t["quantization"]["scale"] is not None]


def _scale(_record: Record, graph: Record, rng: Random) -> None:
    found = [q for q in _quantised(graph) if len(q["scale"])]
    if found:
        quant = rng.choice(found)
        scale = np.array(quant["scale"], np.float32)
        scale[rng.randrange(len(scale)) :] *= np.float32(rng.choice(FACTORS))
        quant["scale"] = scale


def _zero_point(_record: Record, graph: Record, rng: Random) -> None:
    found = [
        t for t in graph["tensors"] if t["type"] in _ENDS and t["quantization"] and t["quantization"]["zero_point"] is not None
    ]
    found = [t for t in found if len(t["quantization"]["zero_point"]) == 1]
    if found:
        tensor = rng.choice(found)
        low, high = _ENDS[tensor["type"]]
        tensor["quantization"]["zero_point"] = np.array([rng.choice((low, high, 0, rng.randint(low, high)))], np.int64)


def _option(_record: Record, graph: Record, rng: Random) -> None:
    """Another value of one option of one operator."""
    op = rng.choice(graph["operators"])
    if op["builtin_options"] is None:
        return
    name, options = op["builtin_options"]
    fields = [f for f in schema.tables()[name] if f.kind == "scalar"]
    if fields:
        field = rng.choice(fields)
        options[field.name] = _other(field, options[field.name], rng)


def _other(field: schema.Field, value: Any, rng: Random) -> Any:
    if field.enum:
        return rng.choice(schema.enums()[field.enum])
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return rng.choice((0.0, 0.1, 1.0, 2.5, -1.0, 100.0))
    return max(0, value + rng.choice((-1, 1, 2)))


def _constant(record: Record, graph: Record, rng: Random) -> None:
    """Weights or biases at the ends of their type."""
    buffers = record["buffers"]
    found = [t for t in graph["tensors"] if t["type"] in _TYPES and buffers[t["buffer"]]["data"] is not None]
    if not found:
        return
    tensor = rng.choice(found)
    dtype = _TYPES[tensor["type"]]
    data = np.frombuffer(bytes(buffers[tensor["buffer"]]["data"]), dtype).copy()
    if data.size > 4:  # shapes, axes and the like are short, and rather options
        draw = np.random.default_rng(rng.randrange(1 << 30))
        data[draw.random(data.size) < rng.choice((0.1, 0.5, 1.0))] = rng.choice((np.iinfo(dtype).min, np.iinfo(dtype).max, 0))
        buffers[tensor["buffer"]]["data"] = data.tobytes()


def _shape(record: Record, graph: Record, rng: Random) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Another extent of an input; all results follow."""
    constant = {i for i, t in enumerate(graph["tensors"]) if record["buffers"][t["buffer"]]["data"] is not None}
    for i, tensor in enumerate(graph["tensors"]):
        if i not in constant and tensor["shape"] is not None:
            tensor["shape_signature"] = np.full(len(tensor["shape"]), -1, np.int32)
    tensor = graph["tensors"][int(rng.choice(list(graph["inputs"])))]
    shape = [int(n) for n in tensor["shape"]]
    if not shape:
        return ()
    axis = rng.randrange(len(shape))
    shape[axis] = max(1, shape[axis] + rng.choice((-2, -1, 1, 2, 5)))
    return ((tensor["name"].decode(), tuple(shape)),)
