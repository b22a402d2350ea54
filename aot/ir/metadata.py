"""What the text of a module leaves out, as JSON after it: data of constants, long attributes, quantisation, origins.

A text with this section parses back to the same module (aot.relay.parser, aot.tir.parser).  Keys are places in the text.  In a
graph, `main/%3` is line %3 of @main, `main/const:w` is its constant w, and `main/%3/%0` is a line of a fused function.  In loop
nests, a key is the function or the intrinsic.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from aot.errors import AotError, Problem, UsageError
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType, TupleType
from aot.support.dtype import known_dtypes

T = TypeVar("T")

HEAD = "#[metadata]\n"

WRITTEN = "written"
"""Key of a field's metadata: False if the text leaves the field out, so that it has its default when read back."""

_CLASSES: dict[str, type] = {c.__name__: c for c in (Span, QuantParams, TensorType, TupleType)}


def register_class(kind: type) -> None:
    """Let `decode` make values of a dataclass that is defined in a higher room, under its name."""
    _CLASSES[kind.__name__] = kind


def encode(value: Any) -> Any:
    """A value as JSON: numbers and strings as they are, everything else as an object that names its kind."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, tuple | list):
        return {"tuple": [encode(v) for v in value]}
    if isinstance(value, np.ndarray):
        data = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"))
        return {"array": base64.b64encode(data.tobytes()).decode(), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, Mapping):
        return {"map": [[encode(k), encode(v)] for k, v in value.items()]}
    if dataclasses.is_dataclass(value):
        return {
            "class": type(value).__name__,
            "fields": {f.name: encode(getattr(value, f.name)) for f in _written(type(value))},
        }
    raise UsageError(Problem("E5131", f"a {type(value).__name__} has no text"))


def decode(data: Any, classes: Mapping[str, type] = _CLASSES) -> Any:
    """The value that `encode` wrote; `classes` are the dataclasses that may occur, by name (E5131 for data of another form)."""
    if data is None or isinstance(data, bool | int | str):
        return data
    try:
        match data:
            case {"float": text}:
                return float.fromhex(text)
            case {"tuple": values}:
                return tuple(decode(v, classes) for v in values)
            case {"array": text, "dtype": dtype, "shape": shape} if dtype in known_dtypes():
                raw = np.frombuffer(base64.b64decode(text, validate=True), np.dtype(dtype).newbyteorder("<"))
                return raw.reshape(shape).astype(np.dtype(dtype))
            case {"map": pairs}:
                return {decode(k, classes): decode(v, classes) for k, v in pairs}
            case {"class": name, "fields": fields} if name in classes:
                return classes[name](**{k: decode(v, classes) for k, v in fields.items()})
    except (TypeError, ValueError, AttributeError, AssertionError) as error:
        raise UsageError(Problem("E5131", f"the metadata is corrupt: {error}")) from None
    raise UsageError(Problem("E5131", f"the metadata is corrupt: {str(data)[:80]}"))


def classes_of(attrs_type: type | None) -> dict[str, type]:
    """The dataclasses that may occur in an operator's attributes, by name."""
    found: dict[str, type] = dict(_CLASSES)
    waiting: list[Any] = [attrs_type]
    while waiting:
        hint = waiting.pop()
        waiting += typing.get_args(hint)
        if isinstance(hint, type) and dataclasses.is_dataclass(hint) and found.get(hint.__name__) is not hint:
            found[hint.__name__] = hint
            hints = typing.get_type_hints(hint)
            waiting += [hints[f.name] for f in _written(hint)]
    return found


def _written(kind: Any) -> list[dataclasses.Field[Any]]:
    return [f for f in dataclasses.fields(kind) if f.metadata.get(WRITTEN, True)]


def to_text(record: Mapping[str, Any]) -> str:
    """The section that holds a record."""
    return HEAD + json.dumps(record, indent=0, sort_keys=True, ensure_ascii=True) + "\n"


def from_text(text: str) -> dict[str, Any]:
    """The record in a section (E5131)."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(Problem("E5131", f"the metadata is not JSON: {error}")) from None
    if not isinstance(found, dict):
        raise UsageError(Problem("E5131", "the metadata is not JSON object"))
    return found


_MOST_DEPTH = 100
"""How deep brackets may nest in one line of a text."""


def is_too_deep(line: str) -> bool:
    """Whether a line nests brackets deeper than a recursive parser should follow."""
    if line.count("(") + line.count("[") <= _MOST_DEPTH:
        return False
    depth = 0
    for c in line:
        depth += (c in "([") - (c in ")]")
        if depth > _MOST_DEPTH:
            return True
    return False


def parsed(parse: Callable[[str], T], name: str) -> T:
    """The result of a parser; any error without a code is the fault of the text (E5130)."""
    try:
        return parse(name)
    except AotError:
        raise
    except RecursionError:
        raise UsageError(Problem("E5130", "the text is nested too deeply")) from None
    except Exception as error:
        message = f"the text says what no module holds ({type(error).__name__}: {str(error)[:200]})"
        raise UsageError(Problem("E5130", message)) from error
