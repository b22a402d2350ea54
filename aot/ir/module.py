"""IRModule, named functions of either IR, and what its text does not show."""

from __future__ import annotations

import base64
import dataclasses
import json
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from aot.errors import AotError, InternalError, Problem, UsageError, call_place
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType, TupleType
from aot.support.dataclass import dataclass
from aot.support.dtype import known_dtypes


def full_text(module: IRModule) -> str:
    """Functions of one IR, in their order, as text that can be parsed back."""
    kinds = {dialect_of(f).name: dialect_of(f) for f in module.functions.values()}
    printer = next(iter(kinds.values())).to_full_text if len(kinds) == 1 else None
    if printer is None:
        raise UsageError(
            Problem("E5131", f"text of {' and '.join(sorted(kinds)) or 'no function'} is not parsed back", call_place())
        )
    return printer(module)


def parse(text: str, *, name: str = "model") -> IRModule:
    """The module in a text that `IRModule.astext(show_meta_data=True)` printed, perhaps edited since.

    UsageError E5130 and E5131 say what is wrong; they call the text `name`.
    """
    if not isinstance(text, str):
        raise UsageError(Problem("E5130", f"parse takes a text, not a {type(text).__name__}", call_place()))
    kind = next((d for d in _DIALECTS.values() if d.reads is not None and d.reads(text)), None)
    reader = (kind or dialect("relay")).from_text
    assert reader is not None
    module: IRModule = reader(text, name)
    return module


@dataclass(frozen=True, slots=True)
class IRModule:
    """Functions by name; `main` is the entry.  Immutable: passes return a new module.

    `str(module)` is its text, main first.  `constants`: the known values of constants that functions have as operands, by
    function and buffer.
    """

    functions: Mapping[str, BaseFunc]
    name: str = "model"
    constants: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)

    @staticmethod
    def from_expr(
        expr: Any, functions: Mapping[str, Any] | None = None, type_defs: Mapping[Any, Any] | None = None, *, name: str = "model"
    ) -> IRModule:
        """The module whose `main` is `expr`: a function, or an expression over its free variables in order of first use.

        UsageError E5104 if `expr` is neither, E5091 for type definitions, which aot does not have.

        `functions`: other functions by name; `type_defs`: must be empty; `name`: the name of the module.
        """
        if type_defs:
            message = "TVM's type_defs: there are no algebraic data types, which need a heap"
            raise UsageError(Problem("E5091", message, call_place()))
        if not isinstance(functions or {}, Mapping) or not all(isinstance(k, str) for k in functions or {}):
            message = f"functions takes a dictionary of functions by name, not {functions!r}"
            raise UsageError(Problem("E5104", message, call_place()))
        others = {k: function_of(f) for k, f in (functions or {}).items()}
        if "main" in others:
            raise UsageError(Problem("E5104", "main is the expression itself, and among the functions too", call_place()))
        return IRModule({"main": function_of(expr), **others}, name)

    def __getitem__(self, name: str) -> BaseFunc:
        """The function called `name`; UsageError E5105 if there is none."""
        if name not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise UsageError(Problem("E5105", f"the module has no function '{name}'; it has {known}", call_place()))
        return self.functions[name]

    def with_function(self, name: str, func: BaseFunc) -> IRModule:
        """A module that has `func` under `name`, in place of the function of that name if there is one."""
        return replace(self, functions={**self.functions, name: func})

    def astext(self, *, show_meta_data: bool = False) -> str:
        """All functions as text, main first; with `show_meta_data`, everything that `aot.ir.parse` needs to read it back.

        UsageError E5131 if a function belongs to an IR whose text cannot be parsed.
        """
        shown = self.shown()
        functions = shown.functions
        if show_meta_data:
            return full_text(shown)
        names = sorted(functions, key=lambda n: (n != "main", n))
        return "\n".join(dialect_of(functions[n]).to_text(functions[n], n).rstrip("\n") + "\n" for n in names)

    def __str__(self) -> str:
        return self.astext()

    def shown(self) -> IRModule:
        """The module as instruments and registered passes see it: everything in it is a function with a name."""
        return self

    def merged(self, seen: IRModule, result: IRModule) -> IRModule:
        """This module updated with `result`, which a pass made from `seen`; `seen` is what the pass saw of this module."""
        if isinstance(result, type(self)):
            return result
        return replace(self, functions=result.functions, constants=result.constants)


M = TypeVar("M", bound=IRModule)


def of_phase(module: IRModule, phase: type[M], taker: str) -> M:
    """`module`, if it is in the phase of the compiler that the pass `taker` needs (E9104 if not)."""
    if not isinstance(module, phase):
        raise InternalError(Problem("E9104", f"{taker} takes a {phase.__name__}, not a {type(module).__name__}", module.name))
    return module


def in_phase(module: IRModule, phase: type[M], **added: Any) -> M:
    """The module as one of another phase: with the fields of both, and those in `added`."""
    kept = {f.name: getattr(module, f.name) for f in dataclasses.fields(phase) if hasattr(module, f.name)}
    return phase(**{**kept, **added})


# What `ir` needs to know about the two IRs above it. They register it, so that imports point one way.


@runtime_checkable
class BaseFunc(Protocol):
    """What relay.Function and tir.PrimFunc have in common for the module: they are functions, no more."""


Evaluate = Callable[[Any, Sequence[Array]], list[Array]]
"""(function, input arrays) -> output arrays"""


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of function: its class, printer and verifier.

    `to_text(function, name)` prints; `verify(function, name)` raises InternalError if the function is not well-formed.
    `to_full_text(module)` prints functions so that `from_text(text, name)` parses the module back; `reads(text)` says whether a
    text is in this IR.  `from_expr` makes a function from an expression, and returns None if the expression does not belong to
    this IR.  `input_types` and `evaluate` are set if a function can run on arrays alone.  `run(module, name, seed)` is set if it
    needs the module: it returns the results of one function on operands drawn with the seed, or None if the function cannot run
    on such operands.  `map_inner(function, rule)` applies a rule to the functions inside a function (branches and bodies of
    loops), innermost first.
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
    """Register an IR; its package does this once, when it is imported."""
    if new.name in _DIALECTS:
        raise ValueError(f"dialect {new.name} is registered twice")
    _DIALECTS[new.name] = new
    return new


def dialect(name: str) -> Dialect:
    """The IR called "relay" or "tir"; KeyError if its package has not been imported."""
    return _DIALECTS[name]


def function_of(expr: Any) -> BaseFunc:
    """The function that an expression makes, or the function itself; UsageError E5104 for anything that belongs to no IR."""
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


# What the text of a module leaves out, as JSON after it: data of constants, long attributes, quantisation, origins.
#
# A text with this section parses back to the same module (aot.relay.parser, aot.tir.parser).  Keys are places in the text.  In a
# graph, `main/%3` is line %3 of @main, `main/const:w` is its constant w, and `main/%3/%0` is a line of a fused function.  In loop
# nests, a key is the function or the intrinsic.

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


def entry_of(record: Mapping[str, Any], place: str) -> dict[str, Any]:
    """What a record says about a place (E5131)."""
    entry = record.get(place, {})
    if not isinstance(entry, dict):
        raise UsageError(Problem("E5131", f"the metadata of {place} is corrupt"))
    return entry


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
