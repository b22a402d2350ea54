"""Input formats: what a model file may be, and which package makes a relay module from it.

A format is a package in aot.frontend that defines FORMAT.  Only that package knows its files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from aot.errors import Problem
from aot.frontend.choice import FIRST_GRAPH, Choice
from aot.ir.module import IRModule
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One input format.

    `suffix`: the suffix of its files' names.  `reads(model)`: whether these bytes are in the format.  `module(model, oracle,
    name)`: the relay module (ModelError, UnsupportedError, UsageError).  `problems(model, oracle)`: everything that prevents
    compiling.  `specialize(model, choice)`: the file with the chosen graph and shapes.  `macs(model)`, `operators(model)`:
    multiply-accumulates and operators of the first graph as it is in the file, 0 if it cannot be read.  `has_references`: whether
    LiteRT and TFLM read such files.
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


_PACKAGES = ("aot.frontend.relay_text", "aot.frontend.tflite")
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
