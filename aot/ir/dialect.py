"""What `ir` must know of the two IRs above it, registered by them so that imports point one way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from aot.errors import Problem, UsageError
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.support.caller import call_place
from aot.support.dataclass import dataclass


@runtime_checkable
class BaseFunc(Protocol):
    """What relay.Function and tir.PrimFunc have in common for the module: nothing but being a function."""


Evaluate = Callable[[Any, Sequence[Array]], list[Array]]
"""(function, input arrays) -> output arrays"""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of function: its class, printer and verifier.

    `to_text(function, name)` prints; `verify(function, name)` raises InternalError where the function is not well-formed.
    `to_full_text(module)` prints functions so that `from_text(text, name)` parses the module back, where `reads(text)` says that
    it is this IR's.  `from_expr` makes a function of an expression, None for what does not belong to this IR.
    `input_types` and `evaluate` are there where a function can be run on arrays alone; `run(module, name, seed)` where it takes
    the module: the results of one of its functions on operands drawn with the seed, None if it cannot run on such.
    `map_inner(function, rule)` applies a rule to the functions inside of one (branches and bodies of loops), innermost first.
    """

    name: str
    func_class: type
    to_text: Callable[[Any, str], str]
    verify: Callable[[Any, str], None]
    input_types: Callable[[Any], list[TensorType]] | None = None
    evaluate: Evaluate | None = None
    from_expr: Callable[[Any], BaseFunc | None] | None = None
    to_full_text: Callable[[Any], str] | None = None
    from_text: Callable[[str, str], Any] | None = None
    reads: Callable[[str], bool] | None = None
    run: Callable[[Any, str, int], list[Array] | None] | None = None
    map_inner: Callable[[Any, Callable[[Any], Any]], Any] | None = None


_DIALECTS: dict[str, Dialect] = {}


def register_dialect(new: Dialect) -> Dialect:
    """Enter an IR; done once, where its package is imported."""
    if new.name in _DIALECTS:
        raise ValueError(f"dialect {new.name} is registered twice")
    _DIALECTS[new.name] = new
    return new


def dialect_of_text(text: str) -> Dialect | None:
    """The IR whose text this is, by its first function."""
    return next((d for d in _DIALECTS.values() if d.reads is not None and d.reads(text)), None)


def dialect(name: str) -> Dialect:
    """The IR called "relay" or "tir"; KeyError when its package has not been imported."""
    return _DIALECTS[name]


def function_of(expr: Any) -> BaseFunc:
    """The function that an expression, or a function, makes; UsageError E5104 for what belongs to no IR."""
    for candidate in _DIALECTS.values():
        if isinstance(expr, candidate.func_class):
            found: BaseFunc = expr
            return found
        made = candidate.from_expr(expr) if candidate.from_expr is not None else None
        if made is not None:
            return made
    raise UsageError(Problem("E5104", f"{type(expr).__name__} is neither an expression nor a function", call_place()))


def dialect_of(func: BaseFunc) -> Dialect:
    """The IR that a function belongs to."""
    for candidate in _DIALECTS.values():
        if isinstance(func, candidate.func_class):
            return candidate
    raise TypeError(f"{type(func).__name__} belongs to no registered IR")
