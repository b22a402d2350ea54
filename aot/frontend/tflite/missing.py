"""Why TensorFlow Lite operators are not supported, and what to do about it; `aot explain OPERATOR` prints it."""

from __future__ import annotations

from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """A class in a few words, and sentences of advice."""

    kind: str
    text: str


NOT_RUN = "no interpreter runs it"
"""Neither LiteRT nor TFLM has a kernel, so there are no results to match."""
STRINGS = "strings"

_OBSOLETE = Reason(
    NOT_RUN,
    "Neither LiteRT nor TFLM has a kernel for it, so no interpreter runs such a file.  Convert the model again with a\n"
    "current converter.",
)
_STRINGS = Reason(
    STRINGS,
    "It works on strings, or on a table with strings, the only kind that the reference supports.  Firmware has no use for them;\n"
    "do this step outside the model. (HASHTABLE_LOOKUP, a table of numbers with int32 keys, is supported.)",
)
_STABLEHLO = Reason(
    NOT_RUN,
    "LiteRT has no kernel for it either: most StableHLO operators appear only in files for other runtimes.\n"
    "Convert the model again to TensorFlow Lite's builtin operators.",
)
_DELEGATE = Reason(NOT_RUN, "It stands for a part of the graph that a delegate took over; use the model from before that step.")
_TABLE = {
    _OBSOLETE: "CALL CONCAT_EMBEDDINGS",
    _STRINGS: "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE SKIP_GRAM",
    _DELEGATE: "DELEGATE",
}

_NEEDS = {name: reason for reason, names in _TABLE.items() for name in names.split()}

_UNKNOWN = Reason(
    "custom",
    "A custom operator without a public definition. Replace it by builtin operators, or cut the model there: the parts before\n"
    "and after it compile as two models, with your own C code for the operator in between.",
)


def needs_of(opcode: str) -> Reason | None:
    """Why an operator is not supported; None if the name is not TensorFlow Lite's."""
    if opcode.startswith("CUSTOM"):
        return _UNKNOWN
    return _NEEDS.get(opcode) or (_STABLEHLO if opcode.startswith("STABLEHLO_") else None)
