"""Small models as text, for examples: a line declares a tensor, or gives an operator with its operands and results.

    in x int8[1,8] scale=0.05 zero_point=3
    const w int8[4,8] data=1 scale=0.1
    out y int8[1,4] scale=0.2
    FULLY_CONNECTED x w - -> y version=4 fused_activation_function=RELU

`in`, `out`, `const` and `tensor` (an intermediate value) declare a tensor; `data` is one value for all elements, or all of them;
lists are written 1,2,3.  `out x` makes an already declared tensor a result.  `-` is an omitted operand.  The rest
of an operator's line is its version and its options, under the schema's names; `CUSTOM:Name` is a custom operator, whose options
are written as a flexbuffer.  `graph NAME` starts another graph, for IF, WHILE and the like, with its own tensors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from flatbuffers import flexbuffers

from aot.testing.builder import ModelBuilder, Subgraph

_TENSOR = re.compile(r"(\w+)\[([\d,-]*)\]")


def text_model(text: str) -> bytes:
    """The .tflite file that the text describes.  Raises ValueError for any other line, KeyError for an unknown name."""
    b = ModelBuilder()
    graph = b.subgraphs[0]
    tensors: dict[str, int] = {"-": -1}
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        plain = [w for w in words if "=" not in w]
        options = {name: _value(value) for name, _, value in (w.partition("=") for w in words if "=" in w)}
        if "->" in plain:
            _operator(graph, plain, options, tensors)
        elif len(plain) == 3 and plain[0] in ("in", "out", "const", "tensor"):
            tensors[plain[1]] = _tensor(graph, plain[1], plain[2], options)
            if plain[0] == "in":
                graph.inputs += (tensors[plain[1]],)
            elif plain[0] == "out":
                graph.outputs += (tensors[plain[1]],)
        elif len(words) == 2 and words[0] == "out":
            graph.outputs += (tensors[words[1]],)
        elif len(words) == 2 and words[0] == "graph":
            graph, tensors = b.subgraph(words[1]), {"-": -1}
        else:
            raise ValueError(f"neither a tensor nor an operator: {line}")
    return b.serialize()


def _tensor(graph: Subgraph, name: str, kind: str, options: Mapping[str, Any]) -> int:
    """`kind` is int8[1,8]."""
    match = _TENSOR.fullmatch(kind)
    if match is None:
        raise ValueError(f"no type and shape: {kind}")
    dtype, shape = match[1], tuple(int(n) for n in match[2].split(",") if n)
    remaining = dict(options)
    if "data" in remaining:
        values = np.asarray(remaining.pop("data"), "int8" if dtype == "int4" else dtype)
        remaining["data"] = np.broadcast_to(values, shape) if values.ndim == 0 else values.reshape(shape)
    if "shape_signature" in remaining:
        remaining["shape_signature"] = _list(remaining["shape_signature"])
    return graph.tensor(name, shape, dtype, **remaining)


def _operator(graph: Subgraph, plain: Sequence[str], options: Mapping[str, Any], tensors: Mapping[str, int]) -> None:
    at = plain.index("->")
    operands, results = ([tensors[n] for n in names] for names in (plain[1:at], plain[at + 1 :]))
    if plain[0].startswith("CUSTOM:"):
        custom_options = bytes(flexbuffers.Dumps(options)) if options else b""
        graph.custom_op(plain[0].partition(":")[2], operands, results, custom_options=custom_options)
    else:
        graph.op(plain[0], operands, results, **options)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _value(text: str) -> Any:
    """A number, true, false, a word, or a list of these."""
    if "," in text:
        return [_value(part) for part in text.split(",") if part]
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
