"""Why TensorFlow Lite operators are not supported, and what to do; `aot explain OPERATOR` prints it."""

from __future__ import annotations

_OBSOLETE = (
    "Neither LiteRT nor TFLM has a kernel of it: no interpreter runs a file that holds it.  Convert the model again with a\n"
    "current converter."
)
_SHAPE = (
    "The shape of its result depends on the data. All memory is planned at compile time here, so this is not going to be\n"
    "supported; cut the model before this operator and do the rest in C."
)
_STRINGS = (
    "It works on strings, or on a table from or to strings: the reference knows no other.  Firmware has no use for them here;\n"
    "do this step outside of the model. (HASHTABLE_LOOKUP, a table of numbers by int32 keys, is supported.)"
)
_STABLEHLO = (
    "LiteRT has no kernel of it either: most StableHLO operators stand in files for other runtimes.\n"
    "Convert the model again for TensorFlow Lite's builtin operators."
)
_TABLE = {
    _OBSOLETE: "CALL CONCAT_EMBEDDINGS",
    _SHAPE: "WHERE UNIQUE",
    _STRINGS: "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE SKIP_GRAM",
    "It stands for a part of the graph that a delegate took over; use the model from before that step.": "DELEGATE",
}

_NEEDS = {name: text for text, names in _TABLE.items() for name in names.split()}

_UNKNOWN = (
    "A custom operator without a public definition. Replace it by builtin operators, or cut the model there: the part before\n"
    "and the part after compile as two models, and the operator becomes C code of yours between them."
)


def needs_of(opcode: str) -> str | None:
    """Why an operator is not supported; None for a name that is not TensorFlow Lite's."""
    if opcode.startswith("CUSTOM"):
        return _UNKNOWN
    return _NEEDS.get(opcode) or (_STABLEHLO if opcode.startswith("STABLEHLO_") else None)
