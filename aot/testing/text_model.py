"""Small models as text, for examples: a line declares a tensor, or names an operator with its operands and results.

    in x int8[1,8] scale=0.05 zero_point=3
    const w int8[4,8] data=1 scale=0.1
    out y int8[1,4] scale=0.2
    FULLY_CONNECTED x w - -> y version=4 fused_activation_function=RELU

`in`, `out`, `const` and `tensor` (what lies between) declare; `data` is one value for all elements, or all of them; lists are
written 1,2,3.  `-` is an operand that is left out.  The rest of an operator's line are its version and its options, under the
schema's names; `CUSTOM:Name` is a custom operator.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aot.testing.builder import ModelBuilder

_TENSOR = re.compile(r"(\w+)\[([\d,-]*)\]")


def text_model(text: str) -> bytes:
    """The .tflite file that the text describes.  Raises ValueError for a line that is none of these, KeyError for a name."""
    b = ModelBuilder()
    tensors: dict[str, int] = {"-": -1}
    inputs: list[int] = []
    outputs: list[int] = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        plain = [w for w in words if "=" not in w]
        options = {name: _value(value) for name, _, value in (w.partition("=") for w in words if "=" in w)}
        if "->" in plain:
            _operator(b, plain, options, tensors)
        elif len(plain) == 3 and plain[0] in ("in", "out", "const", "tensor"):
            tensors[plain[1]] = _tensor(b, plain[1], plain[2], options)
            if plain[0] in ("in", "out"):
                (inputs if plain[0] == "in" else outputs).append(tensors[plain[1]])
        else:
            raise ValueError(f"neither a tensor nor an operator: {line}")
    return b.build(inputs, outputs)


def _tensor(b: ModelBuilder, name: str, kind: str, options: Mapping[str, Any]) -> int:
    """`kind` is int8[1,8]."""
    found = _TENSOR.fullmatch(kind)
    if found is None:
        raise ValueError(f"no type and shape: {kind}")
    dtype, shape = found[1], tuple(int(n) for n in found[2].split(",") if n)
    rest = dict(options)
    if "data" in rest:
        values = np.asarray(rest.pop("data"), "int8" if dtype == "int4" else dtype)
        rest["data"] = np.broadcast_to(values, shape) if values.ndim == 0 else values.reshape(shape)
    if "shape_signature" in rest:
        rest["shape_signature"] = _list(rest["shape_signature"])
    return b.tensor(name, shape, dtype, **rest)


def _operator(b: ModelBuilder, plain: Sequence[str], options: Mapping[str, Any], tensors: Mapping[str, int]) -> None:
    at = plain.index("->")
    operands, results = ([tensors[n] for n in names] for names in (plain[1:at], plain[at + 1 :]))
    if plain[0].startswith("CUSTOM:"):
        b.custom_op(plain[0].partition(":")[2], operands, results, custom_options=b"")
    else:
        b.op(plain[0], operands, results, **options)


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
