"""A `dataclass` decorator like the standard one, but with methods that are compiled on their first call.

The standard decorator compiles seven functions per class, which takes a quarter of a millisecond. A compilation imports hundreds
of classes and instantiates only some of them, so this decorator installs short stand-ins: the first call of `__init__`, `__eq__`
or `__hash__` compiles the method and replaces the stand-in. `fields`, `replace`, `asdict`, `is_dataclass` and
`inspect.signature` work as usual, classes with either decorator can inherit from each other, and type checkers see the
standard decorator. docs/adr/0023-dataclasses-made-late.md has the figures.
"""

from __future__ import annotations

import dataclasses
import inspect
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field
from typing import TYPE_CHECKING, Any

_FIELDS = "__dataclass_fields__"


@dataclasses.dataclass(frozen=True)
class _Frozen:
    field: None


@dataclasses.dataclass
class _Open:
    pass


_PARAMS = {True: getattr(_Frozen, "__dataclass_params__"), False: getattr(_Open, "__dataclass_params__")}  # noqa: B009
_PLAIN = getattr(dataclasses.fields(_Frozen)[0], "_field_type")  # noqa: B009
"""The marker by which `dataclasses.fields` recognises fields that are neither ClassVar nor InitVar."""


class _Factory:
    """The default of a parameter whose field has a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _own_fields(cls: type, *, kw_only: bool) -> dict[str, Field[Any]]:
    fields: dict[str, Field[Any]] = {}
    for name, annotation in inspect.get_annotations(cls).items():
        if annotation.startswith(("ClassVar", "InitVar")):
            if annotation.startswith("InitVar"):
                raise TypeError(f"{cls.__name__}.{name}: InitVar needs the standard dataclass")
            continue
        default = cls.__dict__.get(name, MISSING)
        field: Any = default if isinstance(default, Field) else dataclasses.field(default=default)
        field.name, field.type, field._field_type = name, annotation, _PLAIN
        if field.kw_only is MISSING:
            field.kw_only = kw_only
        if field.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default {type(field.default)} for field {name} is not allowed: use default_factory")
        fields[name] = field
    return fields


def _inherited(cls: type) -> dict[str, Field[Any]]:
    fields: dict[str, Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        fields.update(base.__dict__.get(_FIELDS, {}))
    return fields


def _with_slots(cls: type, fields: Mapping[str, Field[Any]]) -> type:
    """A copy of the class with a slot for each of its own fields; slots cannot be added to an existing class."""
    taken = {name for base in cls.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
    members = {k: v for k, v in cls.__dict__.items() if k not in fields and k not in ("__dict__", "__weakref__")}
    members["__slots__"] = tuple(name for name in fields if name not in taken)
    again = type(cls)(cls.__name__, cls.__bases__, members)
    again.__qualname__ = cls.__qualname__
    return again


def _function(text: str, values: dict[str, Any], cls: type) -> Callable[..., Any]:
    values["__name__"] = cls.__module__  # shown in tracebacks
    exec(text, values)  # like the standard library; field names are identifiers, so this is safe
    function: Callable[..., Any] = values[text[4 : text.index("(")]]
    function.__qualname__ = f"{cls.__qualname__}.{function.__name__}"
    return function


def _init(cls: Any) -> Callable[..., Any]:
    """The class's __init__, which sets each slot through its descriptor: faster than by name, and possible for frozen classes."""
    values: dict[str, Any] = {"_FACTORY": _FACTORY}
    parameters: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for f in cls.__dataclass_fields__.values():
        name = f.name
        values[f"_set_{name}"] = getattr(cls, name).__set__
        value = name
        if f.default_factory is not MISSING:
            values[f"_make_{name}"] = f.default_factory
            value = f"_make_{name}() if {name} is _FACTORY else {name}" if f.init else f"_make_{name}()"
        elif f.default is not MISSING:
            values[f"_default_{name}"] = f.default
            value = name if f.init else f"_default_{name}"
        if f.init:
            usual = "=_FACTORY" if f.default_factory is not MISSING else f"=_default_{name}" if f.default is not MISSING else ""
            parameters[f.kw_only].append(name + usual)
        if f.init or value != name:
            lines.append(f" _set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    named = ["*", *parameters[True]] if parameters[True] else []
    head = f"def __init__({', '.join(['self', *parameters[False], *named])}):\n"
    method = _function(head + ("\n".join(lines) or " pass"), values, cls)
    method.__annotations__ = {f.name: f.type for f in cls.__dataclass_fields__.values() if f.init} | {"return": None}
    return method


def _compared(cls: Any, owner: str) -> str:
    return f"({''.join(f'{owner}.{f.name}, ' for f in cls.__dataclass_fields__.values() if f.compare)})"


def _eq(cls: type) -> Callable[..., Any]:
    same = f"{_compared(cls, 'self')} == {_compared(cls, 'other')}"
    return _function(
        f"def __eq__(self, other):\n return {same} if other.__class__ is self.__class__ else NotImplemented", {}, cls
    )


def _hash(cls: type) -> Callable[..., Any]:
    return _function(f"def __hash__(self):\n return hash({_compared(cls, 'self')})", {}, cls)


def _enter(cls: type, name: str, make: Callable[[type], Callable[..., Any]]) -> None:
    """Give the class a method that on its first call is replaced by the result of `make`."""

    def made() -> Callable[..., Any]:
        method = make(cls)
        if cls.__dict__.get(name) is stand_in:  # but do not replace a method that someone has set since
            setattr(cls, name, method)
        return method

    def stand_in(self: Any, *args: Any, **kwargs: Any) -> Any:
        return made()(self, *args, **kwargs)

    stand_in.__name__, stand_in.__qualname__, stand_in.__module__ = name, f"{cls.__qualname__}.{name}", cls.__module__
    setattr(stand_in, "made", made)  # noqa: B010
    setattr(cls, name, stand_in)


class _Signature:
    """Makes `inspect.signature` of a class return the signature of its `__init__`, even before it is compiled."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        init: Any = owner.__init__  # type: ignore[misc]
        signature = inspect.signature(getattr(init, "made", lambda: init)())
        return signature.replace(parameters=list(signature.parameters.values())[1:])


@reprlib.recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _refuse(self: Any, name: str, deed: str) -> None:
    """Raise FrozenInstanceError for fields, and for all other names unless the object's class is an undecorated subclass."""
    if _FIELDS in type(self).__dict__ or name in getattr(self, _FIELDS):
        raise dataclasses.FrozenInstanceError(f"cannot {deed} field {name!r}")


def _setattr(self: Any, name: str, value: object) -> None:
    _refuse(self, name, "assign to")
    object.__setattr__(self, name, value)


def _delattr(self: Any, name: str) -> None:
    _refuse(self, name, "delete")
    object.__delattr__(self, name)


def _getstate(self: Any) -> list[Any]:
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def _setstate(self: Any, state: list[Any]) -> None:
    for f, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, f.name, value)


_FROZEN = {"__setattr__": _setattr, "__delattr__": _delattr, "__getstate__": _getstate, "__setstate__": _setstate}


def _make(cls: type, *, frozen: bool, init: bool, repr: bool, eq: bool, kw_only: bool) -> type:
    own = _own_fields(cls, kw_only=kw_only)
    defined = set(cls.__dict__)
    cls = _with_slots(cls, own)
    fields = _inherited(cls) | own
    setattr(cls, _FIELDS, fields)
    common = {
        "__dataclass_params__": _PARAMS[frozen],
        "__match_args__": tuple(f.name for f in fields.values() if f.init and not f.kw_only),
        "__signature__": _Signature(),
    }
    for name, value in common.items():
        if name not in defined:
            setattr(cls, name, value)
    for name, method in (_FROZEN if frozen else {}).items():
        if name not in defined:
            setattr(cls, name, method)
    if init:
        _enter(cls, "__init__", _init)
    if repr and "__repr__" not in defined:
        cls.__repr__ = _repr  # type: ignore[assignment]
    if eq and "__eq__" not in defined:
        _enter(cls, "__eq__", _eq)
    if eq and "__hash__" not in defined:
        if frozen:
            _enter(cls, "__hash__", _hash)
        else:
            cls.__hash__ = None  # type: ignore[assignment]
    return cls


def late_dataclass(
    *, frozen: bool = False, init: bool = True, repr: bool = True, eq: bool = True, kw_only: bool = False, slots: bool
) -> Callable[[type], type]:
    """A decorator for classes with slots, with the arguments of `dataclasses.dataclass`."""
    assert slots, "the standard dataclass makes classes without slots"
    return lambda cls: _make(cls, frozen=frozen, init=init, repr=repr, eq=eq, kw_only=kw_only)


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = late_dataclass
