"""What it would take to compile the TensorFlow Lite operators that are not supported; `aot explain OPERATOR` prints it."""

from __future__ import annotations

_CONTROL = (
    "It runs other subgraphs. Needed: subgraphs as functions of their own that share the workspace, and for loops a bound on\n"
    "the number of turns, without which no worst case can be stated. Until then convert with the loop unrolled."
)
_SHAPE = (
    "The shape of its result depends on the data. All memory is planned at compile time here, so this is not going to be\n"
    "supported; cut the model before this operator and do the rest in C."
)
_STRINGS = "It works on strings or tables of them, which firmware has no use for here. Do this step outside of the model."
_RANDOM = "Its results are random by definition, so nothing can be verified. Pass the numbers to the model as an input."
_STABLEHLO = (
    "TensorFlow Lite's reference kernels do not have it either: most StableHLO operators stand in files for other runtimes.\n"
    "Convert the model again for TensorFlow Lite's builtin operators."
)
_TABLE = {
    _CONTROL: "CALL",
    _SHAPE: "WHERE UNIQUE SEGMENT_SUM",
    _STRINGS: "HASHTABLE HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_LOOKUP HASHTABLE_SIZE LSH_PROJECTION SKIP_GRAM",
    _RANDOM: "RANDOM_UNIFORM RANDOM_STANDARD_NORMAL MULTINOMIAL STABLEHLO_RNG_BIT_GENERATOR",
    "Needed: one file in aot/op with its meaning, from aot/op/_template.py. Convert without sparsity.": (
        "EMBEDDING_LOOKUP_SPARSE CONCAT_EMBEDDINGS"
    ),
    "Needed: one file in aot/op with its meaning, from aot/op/_template.py.": (
        "STABLEHLO_GATHER STABLEHLO_REDUCE_WINDOW STABLEHLO_SCATTER"
    ),
    "It stands for a part of the graph that a delegate took over; use the model from before that step.": "DELEGATE",
}

_NEEDS = {name: text for text, names in _TABLE.items() for name in names.split()}

_UNKNOWN = (
    "A custom operator without a public definition. Replace it by builtin operators, or cut the model there: the part before\n"
    "and the part after compile as two models, and the operator becomes C code of yours between them."
)


def needs_of(opcode: str) -> str | None:
    """What an unsupported operator would take; None for a name that is not TensorFlow Lite's."""
    if opcode.startswith("CUSTOM"):
        return _UNKNOWN
    return _NEEDS.get(opcode) or (_STABLEHLO if opcode.startswith("STABLEHLO_") else None)
