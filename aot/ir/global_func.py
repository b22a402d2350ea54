"""Global functions: Python functions by name, so that the compiler and its extensions find them without importing each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from aot.errors import Problem, UsageError
from aot.support.entry_points import declared, reach

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
