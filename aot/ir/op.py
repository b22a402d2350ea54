"""Operators and their attribute maps.

An operator is a name.  Its properties are in attribute maps, which one `register_op` call fills at the end of its file in
`aot/op`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from enum import IntEnum
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, overload

import numpy as np

from aot.errors import Problem, UsageError, call_place
from aot.ir.type import Type
from aot.support.dataclass import dataclass
from aot.support.entry_points import declared, reach
from aot.support.text import nearest

T = TypeVar("T")


class RegistryError(UsageError):
    """A registry does not have the requested entry (E5103), or an entry is registered twice (E5102)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(Problem(code, message, call_place()))


@cache
def _load(name: str) -> None:
    """Import the file of an operator, once."""
    reach("operator", name)


def load_operators() -> None:
    """Import the files of all operators."""
    reach("operators")


class AttrMap(Generic[T]):
    """Maps a name (an operator's) to a value; a later entry replaces an earlier one only if its plevel is higher.

    Two entries with the same name and plevel raise RegistryError E5102.  An operator's file is imported when its name is first
    looked up or entered; iterating over the names imports all files.
    """

    _all: ClassVar[dict[str, AttrMap[Any]]] = {}

    def __init__(self, title: str) -> None:
        self.title = title
        self._entries: dict[str, tuple[int, T]] = {}
        self._all[title] = self

    @classmethod
    def all(cls) -> tuple[AttrMap[Any], ...]:
        """Every attribute map, by title."""
        return tuple(cls._all[t] for t in sorted(cls._all))

    def set(self, name: str, value: T, *, plevel: int = 10) -> None:
        _load(name)
        old = self._entries.get(name)
        if old is not None and old[0] == plevel:
            raise RegistryError("E5102", f"{self.title} of {name} is registered twice at plevel {plevel}")
        if old is None or plevel > old[0]:
            self._entries[name] = (plevel, value)

    def get(self, name: str) -> T:
        entry = self._entry(name)
        if entry is None:
            raise RegistryError("E5103", f"{name} has no {self.title}")
        return entry[1]

    def find(self, name: str) -> T | None:
        entry = self._entry(name)
        return None if entry is None else entry[1]

    def reset(self, name: str) -> None:
        """Remove the entry of a name, if there is one."""
        _load(name)
        self._entries.pop(name, None)

    def _entry(self, name: str) -> tuple[int, T] | None:
        if name not in self._entries:
            _load(name)
        return self._entries.get(name)

    def __contains__(self, name: str) -> bool:
        return self._entry(name) is not None

    def __iter__(self) -> Iterator[str]:
        load_operators()
        return iter(sorted(self._entries))


Array = np.ndarray[Any, np.dtype[Any]]


class OpPattern(IntEnum):
    """TVM's TOpPattern kinds, in its order; a group's kind is the largest kind of its members."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


@dataclass(frozen=True, slots=True)
class Argument:
    """A tensor operand: its name, its type in words (`int8 [N, H, W, C]`), and what it is.

    A name that begins with `*` accepts any number of operands; an operand whose name ends with `?` may be left out.
    """

    name: str
    type: str
    doc: str

    @property
    def is_variadic(self) -> bool:
        return self.name.startswith("*")

    @property
    def is_optional(self) -> bool:
        return self.name.endswith("?")


VARIABLE = -1
"""`num_inputs` of an operator with a variable number of operands."""


@dataclass(frozen=True, slots=True)
class OpInfo:
    """The description of an operator: its operands, the class of its attributes (if it has any), and a line of text.

    `num_inputs` is VARIABLE if an argument may be repeated or left out.
    """

    name: str
    num_inputs: int
    arguments: tuple[Argument, ...]
    attrs_type: type | None
    doc: str

    @property
    def fewest(self) -> int:
        """The smallest number of operands."""
        return sum(not (a.is_variadic or a.is_optional) for a in self.arguments)

    @property
    def most(self) -> int | None:
        """The largest number of operands; None if there is no limit."""
        return None if any(a.is_variadic for a in self.arguments) else len(self.arguments)

    def signature(self) -> str:
        """`nn.conv2d(data, weight)`."""
        return f"{self.name}({', '.join(a.name for a in self.arguments)})"


@dataclass(frozen=True, slots=True)
class Op:
    """A primitive operator, by name (`nn.conv2d`)."""

    name: str

    def __str__(self) -> str:
        return self.name

    @staticmethod
    def get(name: str) -> Op:
        """The registered operator called `name`; UsageError E5101 if there is none."""
        op_info(name)
        return Op(name)

    @staticmethod
    def list_op_names() -> tuple[str, ...]:
        """All registered operators, sorted."""
        return tuple(OP_INFO)

    @property
    def num_inputs(self) -> int:
        return op_info(self.name).num_inputs

    @property
    def arguments(self) -> tuple[Argument, ...]:
        return op_info(self.name).arguments

    @property
    def attrs_type(self) -> type | None:
        return op_info(self.name).attrs_type

    def get_attr(self, title: str) -> Any:
        """This operator's entry in the attribute map `title` (`TOpPattern`); UsageError E5103 if there is none."""
        return _attr_map(title).get(self.name)

    def has_attr(self, title: str) -> bool:
        return self.name in _attr_map(title)

    def set_attr(self, title: str, value: Any, *, plevel: int = 10) -> None:
        """Enter `value` into the attribute map `title`; it must not have an entry with the same `plevel` yet (E5102)."""
        op_info(self.name)
        _attr_map(title).set(self.name, value, plevel=plevel)

    def reset_attr(self, title: str) -> None:
        """Remove this operator's entry from the attribute map `title`, if there is one."""
        _attr_map(title).reset(self.name)


InferType = Callable[[Sequence[Type], Any], Type]
"""(argument types, attrs) -> result type; raises TypeRuleError on a contradiction."""

Evaluate = Callable[..., Any]
"""(*numpy arguments, attrs=..., out_type=...) -> numpy result (a tuple if the type is a tuple); exact, never in place."""


class TypeRuleError(UsageError):
    """E5100: an operator's type rule does not accept the operands or attributes.

    `message` is the bare text; converters and verifiers wrap it in their own errors.
    """

    def __init__(self, message: str, *, where: str = "") -> None:
        super().__init__(Problem("E5100", message, where))
        self.message = message


OP_INFO: AttrMap[OpInfo] = AttrMap("description")
T_OP_PATTERN: AttrMap[OpPattern] = AttrMap("TOpPattern")
F_INFER_TYPE: AttrMap[InferType] = AttrMap("FInferType")
F_EVALUATE: AttrMap[Evaluate] = AttrMap("FEvaluate")
F_IS_VIEW: AttrMap[bool] = AttrMap("FIsView")
F_DOC: AttrMap[str] = AttrMap("FDoc")

Domain = Callable[[Sequence[Type], Any], Mapping[int, tuple[float, float]]]
"""(argument types, attrs) -> the lowest and highest meaningful values, by the index of the argument: positions, divisors."""

F_DOMAIN: AttrMap[Domain] = AttrMap("FDomain")


def register_op(
    name: str,
    num_inputs: int,
    *,
    arguments: Iterable[tuple[str, str, str]],
    attrs_type: type | None,
    pattern: OpPattern,
    infer_type: InferType,
    evaluate: Evaluate,
    doc: str,
    is_view: bool = False,
) -> Op:
    """Register an operator in the attribute maps.

    `arguments` describe the operands as (name, type in words, what it is), see Argument; `num_inputs` is their number, or
    VARIABLE.  `attrs_type` is the dataclass of the attributes.  `is_view` says that the result has the same bytes as the first
    operand.  UsageError E5102 names everything that is wrong with a registration, and where it is.
    """
    info = OpInfo(name, num_inputs, _arguments(name, arguments), attrs_type, doc)
    wrong = [*_info_faults(info), *_function_faults(pattern, infer_type, evaluate)]
    if not wrong and name in OP_INFO:
        wrong.append("is registered already; aot.ir.op.reset_op forgets it")
    if wrong:
        raise UsageError(*(Problem("E5102", f"operator '{name}' {fault}", call_place()) for fault in wrong))
    OP_INFO.set(name, info)
    T_OP_PATTERN.set(name, pattern)
    F_INFER_TYPE.set(name, infer_type)
    F_EVALUATE.set(name, evaluate)
    F_DOC.set(name, doc)
    if is_view:
        F_IS_VIEW.set(name, is_view)
    return Op(name)


def reset_op(name: str) -> None:
    """Remove an operator from every attribute map; UsageError E5101 if there is none."""
    op_info(name)
    for attr_map in AttrMap.all():
        attr_map.reset(name)


def op_info(name: str) -> OpInfo:
    """The description of a registered operator; UsageError E5101 if there is none."""
    found = OP_INFO.find(name)
    if found is None:
        raise UsageError(Problem("E5101", f"there is no operator '{name}'{_similar(name)}", call_place()))
    return found


def _similar(name: str) -> str:
    found = nearest(name, OP_INFO) or [o for o in OP_INFO if o.rpartition(".")[2] == name.rpartition(".")[2]]
    return f"; did you mean {', '.join(found)}?" if found else ""


def _arguments(name: str, given: Any) -> tuple[Argument, ...]:
    try:
        found = tuple(Argument(*a) for a in given)
    except TypeError:
        found = (Argument("", "", ""),)
    if not all(isinstance(v, str) and v for a in found for v in (a.name, a.type, a.doc)):
        message = f"operator '{name}': arguments are triples of strings: (name, type, doc)"
        raise UsageError(Problem("E5102", message, call_place()))
    return found


def _info_faults(info: OpInfo) -> Iterable[str]:
    if not isinstance(info.name, str) or not all(p.isidentifier() for p in info.name.split(".")):
        yield "needs a dotted name such as nn.conv2d"
    names = [a.name for a in info.arguments]
    if len(set(names)) != len(names):
        yield f"has two arguments of one name: {', '.join(names)}"
    if any(a.is_variadic for a in info.arguments[:-1]):
        yield "may only repeat its last argument"
    expected = len(names) if info.fewest == info.most else VARIABLE
    if info.num_inputs != expected:
        yield f"has num_inputs {info.num_inputs!r}, its arguments ({', '.join(names)}) make {expected}"
    if info.attrs_type is not None and not (isinstance(info.attrs_type, type) and is_dataclass(info.attrs_type)):
        yield f"has attrs_type {info.attrs_type!r}, which is not a dataclass"
    if not isinstance(info.doc, str):
        yield "has a doc that is not a string"


def _function_faults(pattern: Any, infer_type: Any, evaluate: Any) -> Iterable[str]:
    if not isinstance(pattern, OpPattern):
        yield f"has pattern {pattern!r}; it is one of {', '.join(f'OpPattern.{p.name}' for p in OpPattern)}"
    if not callable(infer_type) or not _takes(infer_type, 2):
        yield "has an infer_type that cannot be called with (types, attrs)"
    if not callable(evaluate):
        yield "has an evaluate that cannot be called"


def _takes(func: Callable[..., Any], count: int) -> bool:
    """Whether `func` can be called with `count` positional arguments."""
    try:
        inspect.signature(func).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def _attr_map(title: str) -> AttrMap[Any]:
    load_operators()
    for candidate in AttrMap.all():
        if candidate.title == title:
            return candidate
    raise RegistryError("E5103", f"there is no attribute map '{title}'; there are {', '.join(m.title for m in AttrMap.all())}")


# Global functions: Python functions by name, so that the compiler and its extensions find them without importing each other.

F = TypeVar("F", bound=Callable[..., Any])

_FUNCTIONS: dict[str, Callable[..., Any]] = {}

_OWN = "global function "
"""The prefix of the entry points of the compiler's own functions; their modules are imported on request."""


@overload
def register_func(name: str, func: None = None, *, override: bool = False) -> Callable[[F], F]: ...
@overload
def register_func(name: str, func: F, *, override: bool = False) -> F: ...
def register_func(name: str, func: F | None = None, *, override: bool = False) -> F | Callable[[F], F]:
    """Register a function as `name` (`aot.contrib.x`); without `func`, return a decorator that does so.

    UsageError E5077 if the name is registered already, unless `override` is set, and for an invalid name or function.
    """
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise UsageError(Problem("E5077", f"{name!r} cannot name a global function"))
    _import_home(name)

    def enter(new: F) -> F:
        if not callable(new):
            raise UsageError(Problem("E5077", f"{type(new).__name__} is not a function", f"global function {name}"))
        if name in _FUNCTIONS and not override:
            raise UsageError(Problem("E5077", "it is registered already; override=True replaces it", f"global function {name}"))
        _FUNCTIONS[name] = new
        return new

    return enter if func is None else enter(func)


def _import_home(name: Any) -> None:
    """Import the module that registers the compiler's own function of that name, if it has not been imported yet."""
    if isinstance(name, str) and name in declared(_OWN):
        reach(_OWN + name)


def get_global_func(name: str) -> Callable[..., Any]:
    """The function registered as `name` (E5076 if there is none)."""
    _import_home(name)
    if not isinstance(name, str) or name not in _FUNCTIONS:
        known = [n for n in sorted(_FUNCTIONS) if isinstance(name, str) and n.split(".")[0] == name.split(".")[0]]
        raise UsageError(
            Problem("E5076", f"there is no global function {name!r}; {', '.join(known) or 'none'} in its name space")
        )
    return _FUNCTIONS[name]


def list_global_func_names() -> list[str]:
    """The names of all global functions, sorted."""
    for name in declared(_OWN):
        _import_home(name)
    return sorted(_FUNCTIONS)


def remove_global_func(name: str) -> None:
    """Remove the function registered as `name` (E5076 if there is none)."""
    get_global_func(name)
    del _FUNCTIONS[name]
