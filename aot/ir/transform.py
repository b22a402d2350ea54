"""Passes over modules: what a pass is, the context it runs in, and sequences of passes.

A pass takes a well-formed IRModule and returns one; between those two points anything is allowed.  Passes are values:
decorate a function with `function_pass` (each relay Function of the module), `prim_func_pass` (each tir PrimFunc) or
`module_pass` (the module as a whole), and it becomes a `Pass`, entered by name into the registry that `aot dump --after` and
the documentation read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from aot.errors import Problem, UsageError
from aot.ir.dialect import dialect
from aot.ir.module import IRModule

Transform = Callable[[IRModule, "PassContext"], IRModule]


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration key of the passes (`fuse.residual`): its type and default value."""

    key: str
    default: Any
    doc: str


_PASSES: dict[str, Pass] = {}
_OPTIONS: dict[str, Option] = {}
_STACK: ContextVar[tuple[PassContext, ...]] = ContextVar("aot_pass_context", default=())


def register_option(key: str, default: Any, doc: str) -> Option:
    """Declare a configuration key; a value given for it later must have the type of the default."""
    if key in _OPTIONS:
        raise ValueError(f"option {key} is registered twice")
    _OPTIONS[key] = Option(key, default, doc)
    return _OPTIONS[key]


def all_options() -> tuple[Option, ...]:
    """Every configuration key, sorted."""
    return tuple(_OPTIONS[k] for k in sorted(_OPTIONS))


class Instrument:
    """Watches passes. Subclasses override what they need; instruments are called in the order in which the context names them."""

    def enter(self, context: PassContext) -> None:
        """The context is entered."""

    def exit(self, context: PassContext) -> None:
        """The context is left, also after an error."""

    def before(self, module: IRModule, running: Pass) -> None:
        """`running` is about to see `module`."""

    def after(self, module: IRModule, running: Pass) -> None:
        """`running` has returned `module`."""


@dataclass(frozen=True, slots=True)
class PassContext:
    """What passes run under; a context manager, innermost wins.

    A pass runs when it is required, or when its opt_level is not above `opt_level` and its name not in `disabled`.
    `config` sets options by key (`register_option`).  Entering raises UsageError for names that nobody registered.
    """

    opt_level: int = 2
    disabled: frozenset[str] = frozenset()
    config: Mapping[str, Any] = field(default_factory=dict)
    instruments: tuple[Instrument, ...] = ()

    @staticmethod
    def current() -> PassContext:
        """The innermost entered context, or one of defaults."""
        stack = _STACK.get()
        return stack[-1] if stack else PassContext()

    def option(self, key: str) -> Any:
        """The value of a configuration key: as configured, else its default."""
        return self.config.get(key, _OPTIONS[key].default)

    def enables(self, candidate: Pass) -> bool:
        """Whether a Sequential runs this pass."""
        if candidate.required:
            return True
        return candidate.opt_level <= self.opt_level and candidate.name not in self.disabled

    def __enter__(self) -> PassContext:
        problems = [*_check_disabled(self.disabled), *_check_config(self.config)]
        if problems:
            raise UsageError(*problems)
        _STACK.set((*_STACK.get(), self))
        for instrument in self.instruments:
            instrument.enter(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _STACK.set(_STACK.get()[:-1])
        for instrument in reversed(self.instruments):
            instrument.exit(self)


def _check_disabled(names: frozenset[str]) -> Iterator[Problem]:
    for name in sorted(names):
        known = _PASSES.get(name)
        if known is None:
            yield Problem("E5030", f'there is no pass "{name}"; passes are {", ".join(sorted(_PASSES))}')
        elif known.required:
            yield Problem("E5031", f'the pass "{name}" is required and cannot be disabled')


def _check_config(config: Mapping[str, Any]) -> Iterator[Problem]:
    for key in sorted(config):
        option = _OPTIONS.get(key)
        if option is None:
            yield Problem("E5032", f'there is no pass option "{key}"; options are {", ".join(sorted(_OPTIONS))}')
        elif type(config[key]) is not type(option.default):
            wanted = type(option.default).__name__
            yield Problem("E5033", f'the pass option "{key}" takes a value of type {wanted}, not {config[key]!r}')


@dataclass(frozen=True, slots=True)
class Pass:
    """A named transformation of modules; calling it runs it unconditionally under the current context's instruments."""

    name: str
    transform: Transform
    opt_level: int = 0
    required: bool = False
    doc: str = ""

    def __call__(self, module: IRModule) -> IRModule:
        context = PassContext.current()
        for instrument in context.instruments:
            instrument.before(module, self)
        try:
            result = self.transform(module, context)
        except Exception as error:
            error.add_note(f"in pass {self.name}")
            raise
        for instrument in context.instruments:
            instrument.after(result, self)
        return result


@dataclass(frozen=True, slots=True)
class Sequential:
    """Passes one after another, each skipped where the current context does not enable it."""

    passes: tuple[Pass, ...]
    name: str = "sequential"

    def __call__(self, module: IRModule) -> IRModule:
        context = PassContext.current()
        for step in self.passes:
            if context.enables(step):
                module = step(module)
        return module

    def until(self, name: str) -> Sequential:
        """The passes up to and with the last one called `name` (`aot dump --after`); UsageError if there is none."""
        names = [p.name for p in self.passes]
        if name not in names:
            known = ", ".join(dict.fromkeys(names))
            raise UsageError(Problem("E5030", f'there is no pass "{name}" in {self.name}; its passes are {known}'))
        return Sequential(self.passes[: len(names) - names[::-1].index(name)], f"{self.name} until {name}")


def register_pass(new: Pass) -> Pass:
    """Enter a pass into the registry; a second one of the name raises ValueError."""
    if new.name in _PASSES:
        raise ValueError(f"pass {new.name} is registered twice")
    _PASSES[new.name] = new
    return new


def get_pass(name: str) -> Pass:
    """The registered pass of that name; UsageError E5030 if there is none."""
    if name not in _PASSES:
        raise UsageError(Problem("E5030", f'there is no pass "{name}"; passes are {", ".join(sorted(_PASSES))}'))
    return _PASSES[name]


def all_passes() -> tuple[Pass, ...]:
    """Every registered pass, sorted by name."""
    return tuple(_PASSES[n] for n in sorted(_PASSES))


def module_pass(*, opt_level: int = 0, required: bool = False) -> Callable[[Transform], Pass]:
    """Make a pass of `def name(module, context) -> module`."""

    def decorate(transform: Transform) -> Pass:
        return register_pass(
            Pass(_name(transform), transform, opt_level=opt_level, required=required, doc=transform.__doc__ or "")
        )

    return decorate


def function_pass(*, opt_level: int = 0, required: bool = False) -> Callable[[Callable[[Any, PassContext], Any]], Pass]:
    """Make a pass of `def name(function, context) -> function`, applied to each relay Function of a module."""
    return _per_function("relay", opt_level=opt_level, required=required)


def prim_func_pass(*, opt_level: int = 0, required: bool = False) -> Callable[[Callable[[Any, PassContext], Any]], Pass]:
    """Make a pass of `def name(prim_func, context) -> prim_func`, applied to each tir PrimFunc of a module."""
    return _per_function("tir", opt_level=opt_level, required=required)


def _per_function(name: str, *, opt_level: int, required: bool) -> Callable[[Callable[[Any, PassContext], Any]], Pass]:
    def decorate(rule: Callable[[Any, PassContext], Any]) -> Pass:
        def transform(module: IRModule, context: PassContext) -> IRModule:
            kind = dialect(name).func_class
            functions = {k: rule(f, context) if isinstance(f, kind) else f for k, f in module.functions.items()}
            return IRModule(functions, module.name)

        return register_pass(Pass(_name(rule), transform, opt_level=opt_level, required=required, doc=rule.__doc__ or ""))

    return decorate


def _name(func: Callable[..., Any]) -> str:
    return str(getattr(func, "__name__", type(func).__name__))
