"""Input formats: what a model file may be, and which module makes a relay module from it.

A format is a module or package in aot.frontend that defines FORMAT.  Only that package knows its files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from aot.errors import Problem
from aot.support.dataclass import dataclass

if TYPE_CHECKING:
    from aot.ir.module import IRModule
    from aot.relay.expr import Function

Shape = tuple[int, ...]
Values = dict[int, dict[str, Any]]
"""Input -> `range`: [lowest, highest] of its elements, or `fixed`: all of them; nothing for inputs without restrictions."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice of a model's graph and shapes: --subgraph, --signature, --shape, --batch.

    The graph (by number, or by a signature's key; None: the first) and the shapes of its inputs, by name.  `batch` is the first
    dimension of every input whose first dimension is dynamic.
    """

    subgraph: int | None = None
    signature: str | None = None
    shapes: tuple[tuple[str, Shape], ...] = ()
    batch: int | None = None

    def __bool__(self) -> bool:
        return self != FIRST_GRAPH


FIRST_GRAPH = Choice()
"""The first graph, with the shapes of the file."""


def _nothing(_model: bytes) -> dict[int, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class Format:
    """One input format.

    `suffix`: the suffix of its files' names.  `reads(model)`: whether these bytes are in the format.  `module(model, oracle,
    name)`: the relay module (ModelError, UnsupportedError, UsageError).  `problems(model, oracle)`: everything that prevents
    compiling.  `specialize(model, choice)`: the file with the chosen graph and shapes.  `macs(model)`, `operators(model)`:
    multiply-accumulates and operators of the first graph as it is in the file, 0 if it cannot be read.  `has_references`: whether
    LiteRT and TFLM read such files.  `shapes(model)`: the shapes of the first graph's tensors as stored, by number;
    `input_values(model)`: restrictions of inputs that only the file knows.
    """

    name: str
    suffix: str
    reads: Callable[[bytes], bool]
    module: Callable[[bytes, str, str], IRModule]
    problems: Callable[[bytes, str], list[Problem]]
    specialize: Callable[[bytes, Choice], bytes]
    macs: Callable[[bytes], int]
    operators: Callable[[bytes], int]
    has_references: bool = False
    shapes: Callable[[bytes], dict[int, Shape]] = _nothing
    input_values: Callable[[bytes], Values] = _nothing


_PACKAGES = ("aot.frontend.relay_text", "aot.frontend.tflite.format")
"""Asked in this order; the last one gets everything else, and refuses what it cannot read."""


@cache
def _format(package: str) -> Format:
    found: Format = import_module(package).FORMAT
    return found


def format_of(model: bytes) -> Format:
    """The format of a file."""
    for package in _PACKAGES[:-1]:
        if _format(package).reads(model):
            return _format(package)
    return _format(_PACKAGES[-1])


def from_model(model: bytes, *, oracle: str = "litert", name: str = "model") -> IRModule:
    """The relay module of a file whose shapes are known (ModelError, UnsupportedError, UsageError)."""
    return format_of(model).module(model, oracle, name)


def check_model(model: bytes, *, oracle: str = "litert") -> list[Problem]:
    """Everything that prevents compiling a file."""
    return format_of(model).problems(model, oracle)


def specialize(model: bytes, choice: Choice = FIRST_GRAPH) -> bytes:
    """The file with the chosen graph and shapes (E5027 if a choice does not fit it)."""
    return format_of(model).specialize(model, choice)


def nominal_macs(model: bytes) -> int:
    """Multiply-accumulates of one inference of the first graph, as it is in the file; 0 if it cannot be read."""
    return format_of(model).macs(model)


def nominal_shapes(model: bytes) -> dict[int, Shape]:
    """The shapes of the first graph's tensors as stored in the file, by number; empty if it cannot be read."""
    return format_of(model).shapes(model)


def input_values(model: bytes, main: Function) -> Values:
    """Values that a model's inputs may have, for generated inputs: positions in a table, divisors, shapes.

    `main` is the relay function of the model's first graph, before any pass.
    """
    from aot.relay.analysis import input_ranges  # needed only here
    from aot.relay.state import input_vars

    count = len(input_vars(main))  # the other variables are states
    values: Values = {i: {"range": list(limits)} for i, limits in input_ranges(main).items() if i < count}
    return format_of(model).input_values(model) | values
