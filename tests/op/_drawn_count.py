"""How many drawn cases of each operator and type were run and agreed: counted as they run, not kept by hand.

A case is a model with its inputs, drawn by hypothesis, whose outputs were equal in every way of running it.  Each is counted
once, however often it is drawn, and only those that a reference interpreter ran too are counted as cases of the operator.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import currently_in_test_context

from aot.frontend.problems import Problems
from aot.frontend.tflite.convert import SUPPORT, load_all
from aot.frontend.tflite.view import ABSENT, OperatorView, SubgraphView, parse
from aot.testing import HAVE_LITERT, HAVE_TFLM
from tests.sample import is_sampled

WANTED = 300
"""Cases that each operator is to have with AOT_FULL=1; each is to have some without it."""
Row = tuple[str, str, bool]
"""Operator, element types as `aot ops` writes them, whether a reference ran it."""
SEEN: dict[Row, set[bytes]] = {}
"""What this process has run: digests of cases."""

FOLDER = Path(__file__).parent
LAYERS = {"CONV_2D": (0, 1), "DEPTHWISE_CONV_2D": (0, 1), "FULLY_CONNECTED": (0, 1), "SVDF": (0, 1), "TRANSPOSE_CONV": (2, 1)}
LAYERS |= dict.fromkeys(("RNN", "BIDIRECTIONAL_SEQUENCE_RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"), (0, 1))
LAYERS |= dict.fromkeys(("LSTM", "BIDIRECTIONAL_SEQUENCE_LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), (0, 2))
LAYERS["CUSTOM:Convolution2DTransposeBias"] = (0, 1)
"""Where data and weights are."""
DATA = {
    "SPARSE_TO_DENSE": 2,
    "CONV_3D_TRANSPOSE": 2,
    "SPLIT": 1,
    "EMBEDDING_LOOKUP": 1,
    "EMBEDDING_LOOKUP_SPARSE": 4,
    "HASHTABLE_LOOKUP": 2,
    "LSH_PROJECTION": 1,
    "FILL": 1,
    "SCATTER_ND": 1,
    "SELECT": 1,
    "SELECT_V2": 1,
    "ONE_HOT": 2,
}
"""Where the data is, if not first."""
MOVED = "uint16 uint32"
LACKING = {
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), "int16 int64"),
    **dict.fromkeys(("DEPTH_TO_SPACE", "SPACE_TO_DEPTH"), f"bool float16 int16 {MOVED}"),
    **dict.fromkeys(("GATHER", "GATHER_ND", "PAD", "PADV2", "REVERSE_V2"), MOVED),
    **dict.fromkeys(("GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"), "bool"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "uint32"),
    **dict.fromkeys(("ONE_HOT", "SCATTER_ND"), f"float16 int16 {MOVED}"),
    **dict.fromkeys(("RELU_0_TO_1", "RELU_N1_TO_1"), "int16"),
    **dict.fromkeys(("SPLIT", "SPLIT_V"), f"bool float16 {MOVED}"),
    "CONCATENATION": "uint16",
    "PACK": "bool float16 uint16",
    "RESIZE_NEAREST_NEIGHBOR": "int64",
    "REVERSE_SEQUENCE": f"bool float16 int8 {MOVED}",
    "TRANSPOSE_CONV": "int8*int4",
    "UNPACK": f"int64 {MOVED}",
    "ZEROS_LIKE": f"bool float16 int8 uint8 int16 {MOVED}",
}
"""Types of data that neither reference takes, all but a few because it moves no such elements."""


def kinds(model: bytes) -> set[tuple[str, str]]:
    """The operators of a model with the types of their data; of variables, branches and loops, each type that they hold."""
    view = parse(model, Problems())
    assert view is not None
    found = {(op.kind, types) for graph in view.subgraphs for op in graph.operators for types in _kinds(graph, op)}
    kept = {types for name, types in found if name in ("ASSIGN_VARIABLE", "READ_VARIABLE")}
    return {(name, t) for name, types in found for t in (kept if name in ("CALL_ONCE", "VAR_HANDLE") else [types])}


def _kinds(graph: SubgraphView, op: OperatorView) -> set[str]:
    held = {"ASSIGN_VARIABLE": op.inputs[1:], "READ_VARIABLE": op.outputs, "IF": op.inputs[1:], "WHILE": op.inputs}
    return {graph.tensors[i].dtype for i in held[op.kind]} if op.kind in held else {_types(graph, op)}


def lacking(model: bytes) -> bool:
    """Whether the reference refuses a type of this model."""
    return any(types in LACKING.get(name, "").split() for name, types in kinds(model))


def count(model: bytes, sets: Iterable[Sequence[np.ndarray[Any, Any]]], *, compared: bool = True) -> None:
    """Note that all ways of running `model` agree on these sets of inputs, a reference among them if `compared`.

    Outside of a drawn test nothing is noted.
    """
    if not currently_in_test_context():
        return
    case = blake2b(model, digest_size=8)
    for array in (a for inputs in sets for a in inputs):
        case.update(np.ascontiguousarray(array).tobytes())
    for name, types in kinds(model):
        SEEN.setdefault((name, types, compared), set()).add(case.digest())


def _types(graph: SubgraphView, op: OperatorView) -> str:
    places = LAYERS.get(op.kind, (DATA.get(op.kind, 0),))
    return "*".join("" if op.input(i) == ABSENT else graph.tensors[op.input(i)].dtype for i in places)


def total(seen: dict[Row, set[bytes]], name: str) -> int:
    return len(set().union(*(digests for (op, _, compared), digests in seen.items() if op == name and compared)))


def short(seen: dict[Row, set[bytes]], *, full: bool) -> list[str]:
    """Operators with fewer than `WANTED` cases, or with a type that none was drawn of; unless `full`, those without any case."""
    found = []
    for name, support in sorted(SUPPORT.items()):
        number = total(seen, name)
        if number < (WANTED if full else 1):
            found.append(f"{name}: {number} drawn cases of {WANTED}")
        missing = [t for t in support.types if not any((name, t, c) in seen for c in (False, True))]
        if missing and full:
            found.append(f"{name}: no case of {', '.join(missing)}")
    return found


def table(seen: dict[Row, set[bytes]]) -> list[str]:
    """Lines: operator, cases, cases of each type; those that no reference ran in brackets."""
    lines = []
    for name in sorted(SUPPORT):
        rows = sorted((types, not compared, len(digests)) for (op, types, compared), digests in seen.items() if op == name)
        of_types = " ".join(f"{types}:{f'({n})' if alone else n}" for types, alone, n in rows)
        lines.append(f"{name:36}{total(seen, name):6}  {of_types}")
    return lines


class DrawnCases:
    """Plugin of pytest: after all slow tests of operators it prints the table, and fails the run if an operator is short."""

    def __init__(self, config: pytest.Config) -> None:
        options = config.option
        places = [Path(str(a).split("::")[0]).resolve() for a in config.args]
        everything = any(p == FOLDER or p in FOLDER.parents for p in places)
        chosen = any(getattr(options, name, None) for name in ("keyword", "lf", "deselect", "ignore", "ignore_glob"))
        self.whole = options.markexpr == "slow" and everything and not chosen and not options.collectonly
        self.whole = self.whole and HAVE_LITERT and HAVE_TFLM and not is_sampled(config)
        self.lines: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A process of pytest-xdist has ended: take over what it has run."""
        for row, digests in getattr(node, "workeroutput", {}).get("drawn", []):
            SEEN.setdefault(tuple(row), set()).update(digests)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["drawn"] = [(row, sorted(digests)) for row, digests in SEEN.items()]
            return
        if not self.whole:
            return
        load_all()
        full = os.environ.get("AOT_FULL") == "1"
        self.lines = table(SEEN) if full else []
        found = short(SEEN, full=full)
        self.lines += found
        if found and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.lines:
            terminalreporter.section("drawn cases of each operator")
            for line in self.lines:
                terminalreporter.write_line(line)
