"""The published JSON Schemas of our files, and a check of files from elsewhere against them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from aot.support.text import printable
from aot.support.untrusted import is_text

REPORT = "aot-report-3"
BASELINE = "aot-baseline-1"


def load_schema(name: str = REPORT) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a kind of file."""
    path = Path(__file__).with_name("schema") / f"{name}.schema.json"
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


_TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": (int, float), "null": type(None),
}  # fmt: skip
_MOST = 1 << 62
"""Larger than any figure that we write, and within a float's range."""


def find_fault(data: Any, schema: Mapping[str, Any], *, whole: bool = True) -> str:
    """The first place where JSON data from elsewhere violates one of our schemas; "" if it is valid.

    With `whole` False, missing keys are accepted (an older version wrote the file, or it is a baseline).  Unknown keys are always
    accepted, since a later version may add them.
    """
    return next(chain(_strange(data, ""), _faults(data, schema, schema, whole=whole, place="")), "")


def _strange(data: Any, place: str) -> Iterator[str]:
    """Values that we could not write, or calculate with."""
    if isinstance(data, dict):
        yield from (f"{place or 'it'} has the key {printable(repr(key), limit=40)}" for key in data if not is_text(key))
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from _strange(value, f"{place}[{key}]" if isinstance(key, int) else f"{place}.{key}".lstrip("."))
    wild = isinstance(data, int | float) and not (math.isfinite(data) and abs(data) < _MOST)
    if wild or (isinstance(data, str) and not is_text(data)):
        yield f"{place or 'it'} is {printable(repr(data), limit=40)}"


def _faults(data: Any, schema: Mapping[str, Any], root: Mapping[str, Any], *, whole: bool, place: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].removeprefix("#/$defs/")]
    if "oneOf" in schema:
        faults = [next(_faults(data, s, root, whole=whole, place=place), "") for s in schema["oneOf"]]
        if all(faults):
            yield faults[0]
        return
    kinds = schema.get("type", [])
    if kinds and not any(_is(data, kind) for kind in ([kinds] if isinstance(kinds, str) else kinds)):
        yield f"{place or 'it'} is {printable(repr(data), limit=40)}"
        return
    wrong = "const" in schema and data != schema["const"]
    wrong |= "enum" in schema and data not in schema["enum"]
    wrong |= isinstance(data, str) and "pattern" in schema and re.search(schema["pattern"], data) is None
    wrong |= _is(data, "number") and not schema.get("minimum", data) <= data <= schema.get("maximum", data)
    if wrong:
        yield f"{place or 'it'} is {printable(repr(data), limit=40)}"
    if isinstance(data, list) and "items" in schema:
        for i, item in enumerate(data):
            yield from _faults(item, schema["items"], root, whole=whole, place=f"{place}[{i}]")
    if isinstance(data, dict):
        yield from (f"{place or 'it'} lacks {key}" for key in schema.get("required", ()) if whole and key not in data)
        for key, inner in schema.get("properties", {}).items():
            if key in data:
                yield from _faults(data[key], inner, root, whole=whole, place=f"{place}.{key}".lstrip("."))


def _is(data: Any, kind: str) -> bool:
    """Whether a value has a JSON type; True and False are not numbers."""
    return isinstance(data, _TYPES[kind]) and (kind == "boolean" or not isinstance(data, bool))
