"""Passes over modules: what a pass is, the context it runs in, and sequences of passes.

A pass gets a well-formed IRModule and returns one; between those two points anything is allowed.  Passes are values: decorate a
function with `function_pass` (each relay Function of the module), `prim_func_pass` (each tir PrimFunc) or `module_pass` (the
module as a whole).  It becomes a `Pass`, entered by name into the registry that `aot dump --after` and the documentation read.
`register_pass` does the same for passes from outside this package, and says which pass of the compiler they run after.  Names are
in snake case; TVM's spellings are accepted wherever a pass is named (`pass_name`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import field, replace
from functools import partial
from types import TracebackType
from typing import Any

from aot.errors import Problem, UsageError, call_place
from aot.errors.tvm_names import missing_in
from aot.ir.module import IRModule, dialect, of_phase
from aot.support.dataclass import dataclass
from aot.support.entry_points import reach
from aot.support.text import did_you_mean

Transform = Callable[..., IRModule]
"""(module, context, arguments of the pass by name) -> module"""

Law = Callable[[Any, Any, int], str]
"""(function before, function after, seed) -> what violates the relation that the pass promises between the two, or ""."""


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration key of the passes (`fuse.residual`): its type and default value."""

    key: str
    default: Any
    doc: str


_PASSES: dict[str, Pass] = {}
_OPTIONS: dict[str, Option] = {}
_AFTER: dict[str, list[Pass]] = {}
_STACK: ContextVar[tuple[PassContext, ...]] = ContextVar("aot_pass_context", default=())


def register_option(key: str, default: Any, doc: str) -> Option:
    """Declare a configuration key; a value configured for it must have the type of the default."""
    if key in _OPTIONS:
        raise UsageError(Problem("E5102", f"the pass option {key} is registered twice", call_place()))
    _OPTIONS[key] = Option(key, default, doc)
    return _OPTIONS[key]


def all_options() -> tuple[Option, ...]:
    """Every configuration key, sorted."""
    return tuple(_OPTIONS[k] for k in sorted(_OPTIONS))


_FORMER = {
    "enter": "enter_pass_ctx(self)",
    "exit": "exit_pass_ctx(self)",
    "before": "run_before_pass(self, module, info)",
    "after": "run_after_pass(self, module, info)",
}
"""Names of instruments' methods in 0.1.  They would never be called now, so a class that defines one is refused."""


class PassInstrument:
    """Watches passes.  Subclasses override what they need; instruments are called in the order in which the context lists them.

    UsageError E5037 for a class with a method under its old name (`before`, now `run_before_pass`).
    """

    def __init_subclass__(cls) -> None:
        for name, new in _FORMER.items():
            if name in vars(cls):
                raise UsageError(Problem("E5037", f"{cls.__name__}.{name} would never be called: name it {new}", call_place()))

    def enter_pass_ctx(self) -> None:
        """Called when the context is entered; it is then PassContext.current()."""

    def exit_pass_ctx(self) -> None:
        """Called when the context is left, also after an error."""

    def should_run(self, module: IRModule, info: Pass) -> bool:
        """Whether the pass `info` runs on `module`; not called for required passes."""
        return True

    def run_before_pass(self, module: IRModule, info: Pass) -> None:
        """Called before the pass `info` sees `module`."""

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        """Called after the pass `info` has returned `module`."""


class _Judge(PassInstrument):
    """Lets an instrument decide which passes run, while it does not watch them."""

    def __init__(self, whose: PassInstrument) -> None:
        self.whose: PassInstrument = whose.whose if isinstance(whose, _Judge) else whose

    def should_run(self, module: IRModule, info: Pass) -> bool:
        return self.whose.should_run(module, info)


@dataclass(frozen=True, slots=True)
class PassContext:
    """The settings that passes run under; a context manager.  The innermost context applies.

    A pass runs if it is required or named in `required_pass`, or if its opt_level is not above `opt_level` and its name is not in
    `disabled_pass`.  `config` sets options by key (`register_option`).  `add_pass` lists pairs (name, pass): wherever a sequence
    contains the pass of that name, the other one runs after it.  The other one is a Pass, the name of a pass, a Sequential, or a
    function from module to module.  UsageError says what is wrong: E5034 when the context is made, E5030 to E5033 when it is
    entered.
    """

    opt_level: int = 2
    required_pass: Collection[str] = frozenset()
    disabled_pass: Collection[str] = frozenset()
    config: Mapping[str, Any] = field(default_factory=dict)
    instruments: Sequence[PassInstrument] = ()
    add_pass: Sequence[tuple[str, Pass | Sequential | str | Callable[[IRModule], IRModule]]] = ()

    def __post_init__(self) -> None:
        wrong = list(_context_faults(self))
        if wrong:
            raise UsageError(*(Problem("E5034", message, call_place()) for message in wrong))
        for key in ("required_pass", "disabled_pass"):
            object.__setattr__(self, key, frozenset(pass_name(n) for n in getattr(self, key)))
        object.__setattr__(self, "instruments", tuple(self.instruments))
        object.__setattr__(self, "add_pass", tuple((pass_name(n), _as_pass(p)) for n, p in self.add_pass))

    @staticmethod
    def current() -> PassContext:
        """The innermost context that has been entered, or a default one."""
        stack = _STACK.get()
        return stack[-1] if stack else PassContext()

    def option(self, key: str) -> Any:
        """The value of a configuration key: the configured one, or its default; UsageError E5032 for an unknown key."""
        if key not in _OPTIONS:
            raise UsageError(*_check_config({key: None}))
        return self.config.get(key, _OPTIONS[key].default)

    def enables(self, candidate: Pass) -> bool:
        """Whether a Sequential runs the pass `candidate`."""
        if candidate.required or candidate.name in self.required_pass:
            return True
        return candidate.opt_level <= self.opt_level and candidate.name not in self.disabled_pass

    def added_after(self, name: str) -> list[Pass | Sequential]:
        """The passes that run after the pass called `name`: registered ones first, then the ones in `add_pass`."""
        added = (p for n, p in self.add_pass if n == name and isinstance(p, Pass | Sequential))
        return [*_AFTER.get(name, ()), *added]

    def __enter__(self) -> PassContext:
        added = frozenset(n for n, _ in self.add_pass)
        problems = [
            *_check_disabled(frozenset(self.disabled_pass)),
            *_check_known(frozenset(self.required_pass) | added),
            *_check_config(self.config),
        ]
        if problems:
            raise UsageError(*problems)
        _STACK.set((*_STACK.get(), self))
        try:
            with ExitStack() as entered:
                for instrument in self.instruments:
                    instrument.enter_pass_ctx()
                    entered.callback(instrument.exit_pass_ctx)
                entered.pop_all()
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            with ExitStack() as entered:  # if one fails, the others still exit
                for instrument in self.instruments:
                    entered.callback(instrument.exit_pass_ctx)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Remove this context from the stack, with any contexts that were entered after it and never left."""
        stack = _STACK.get()
        last = max((i for i, context in enumerate(stack) if context is self), default=len(stack))
        _STACK.set(stack[:last])


@contextmanager
def changed_context(**changes: Any) -> Iterator[PassContext]:
    """The current context with other values (`changes`), for a part of what runs under it.

    Its instruments have been entered already: they are not entered again, and go on watching.
    """
    inner = replace(PassContext.current(), **changes)
    token = _STACK.set((*_STACK.get(), inner))
    try:
        yield inner
    finally:
        _STACK.reset(token)


def unwatched() -> AbstractContextManager[PassContext]:
    """The current context for trials that may be thrown away: no instrument sees them, but each still decides what runs."""
    asked = (i for i in PassContext.current().instruments if type(i).should_run is not PassInstrument.should_run)
    return changed_context(instruments=tuple(map(_Judge, asked)))


_TVM_ROOM = re.compile(r"(?:tvm\.)?(?:relay|tir)\.(?:_?transform\.)?")
_TVM_NAMES = {
    "dead_code_elimination": "dead_code",
    "storage_flatten": "flatten_buffer",
    "unified_static_memory_planner": "plan_memory",
}
"""Passes of TVM that do the same here under another name."""


def pass_name(name: str) -> str:
    """The name of a pass from any spelling: `fuse_ops` for `FuseOps` and `relay.FuseOps`, `unroll_loop` for `tir.UnrollLoop`."""
    bare = name[found.end() :] if (found := _TVM_ROOM.match(name)) else name
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", bare).lower()
    return _TVM_NAMES.get(words, words)


def _context_faults(context: PassContext) -> Iterator[str]:
    if type(context.opt_level) is not int or context.opt_level < 0:
        yield f"opt_level must be a non-negative integer, not {context.opt_level!r}"
    for key in ("required_pass", "disabled_pass"):
        names = getattr(context, key)
        if isinstance(names, str) or not isinstance(names, Collection) or not all(isinstance(n, str) for n in names):
            yield f"{key} takes a list of names of passes, not {names!r}"
    if not isinstance(context.config, Mapping) or not all(isinstance(k, str) for k in context.config):
        yield f"config takes a dictionary of options by name, not {context.config!r}"
    if not isinstance(context.instruments, list | tuple) or not all(isinstance(i, PassInstrument) for i in context.instruments):
        yield f"instruments takes a list of aot.ir.instrument.PassInstrument, not {context.instruments!r}"
    if not isinstance(context.add_pass, list | tuple) or not all(map(_is_addition, context.add_pass)):
        yield f"add_pass takes a list of pairs (name of a pass, pass to run after it), not {context.add_pass!r}"


def _is_addition(pair: Any) -> bool:
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
        return False
    return isinstance(pair[1], Pass | str) or callable(pair[1])


def _as_pass(given: Any) -> Pass | Sequential:
    if isinstance(given, Pass | Sequential):
        return given
    if isinstance(given, str):
        return get_pass(given)
    return Pass(_name(given), lambda module, _context: given(module), doc=given.__doc__ or "")


def is_pass(name: str) -> bool:
    """Whether there is a pass called `name`; an unknown name first causes the compiler's own passes to be registered."""
    if pass_name(name) not in _PASSES:
        reach("passes")
    return pass_name(name) in _PASSES


def _check_known(names: frozenset[str]) -> Iterator[Problem]:
    for name in sorted(names):
        if not is_pass(name):
            yield Problem("E5030", _unknown_pass(name))


def _unknown_pass(name: str, purpose: str = "") -> str:
    near = did_you_mean(name, _PASSES)
    return f'there is no pass "{name}"{purpose}{near}; passes are {", ".join(sorted(_PASSES))}'


def _check_disabled(names: frozenset[str]) -> Iterator[Problem]:
    yield from _check_known(names)
    for name in sorted(names & _PASSES.keys()):
        if _PASSES[name].required:
            yield Problem("E5031", f'the pass "{name}" is required and cannot be disabled')


_PLANNER = "the planner tries greedy orders, hill climbing and exact search, and keeps the smallest plan"
_CHOICE = "kernels are chosen exactly, by estimates or by what `aot tune` counted"
_OF_TVM = {
    "tir.usmp.enable": "memory is always planned for the model as a whole",
    "tir.usmp.algorithm": _PLANNER,
    "tir.usmp.custom_algorithm": _PLANNER,
    "tir.disable_vectorize": 'kernels="generic" of aot.build does without vectors',
    "relay.backend.use_auto_scheduler": _CHOICE,
    "relay.backend.use_meta_schedule": _CHOICE,
    "relay.FuseOps.max_depth": "it is fuse.max_depth here",
}
"""Hints for TVM's options."""


def _check_config(config: Mapping[str, Any]) -> Iterator[Problem]:
    for key in sorted(config):
        option = _OPTIONS.get(key)
        if option is None:
            hint = _OF_TVM.get(key) or f"options are {', '.join(sorted(_OPTIONS))}"
            yield Problem("E5032", f'there is no pass option "{key}"{did_you_mean(key, _OPTIONS)}; {hint}')
        elif type(config[key]) is not type(option.default):
            wanted = type(option.default).__name__
            yield Problem("E5033", f'the pass option "{key}" takes a value of type {wanted}, not {config[key]!r}')


@dataclass(frozen=True, slots=True)
class Pass:
    """A named transformation of modules; calling it runs it under the current context's instruments.

    As in TVM, it is skipped only if it is not required and an instrument's `should_run` says no.  `law` checks a pass that
    changes the operands of functions, on each function before and after; without one, equal operands must give equal results.
    `phase` is the class of modules that a pass of the compiler needs; any other pass sees the module as instruments do, with main
    and every kernel by name.
    """

    name: str
    transform: Transform
    opt_level: int = 0
    required: bool = False
    doc: str = ""
    law: Law | None = None
    phase: type[IRModule] | None = None

    def configured(self, **arguments: Any) -> Pass:
        """The pass with values for its function's arguments: `slide_window.configured(plan=plan)`."""
        return replace(self, transform=partial(self.transform, **arguments))

    def __call__(self, module: IRModule) -> IRModule:
        context = PassContext.current()
        seen = module.shown() if context.instruments or self.phase is None else module
        if not self.required and not all(i.should_run(seen, self) for i in context.instruments):
            return module
        for instrument in context.instruments:
            instrument.run_before_pass(seen, self)
        try:
            result = self.transform(seen if self.phase is None else of_phase(module, self.phase, self.name), context)
            if not isinstance(result, IRModule):
                raise UsageError(Problem("E5035", f'the pass "{self.name}" returned a {type(result).__name__}, not an IRModule'))
            result = module.merged(seen, result) if self.phase is None else result
        except Exception as error:
            error.add_note(f"in pass {self.name}")
            raise
        seen = result.shown() if context.instruments else result
        for instrument in context.instruments:
            instrument.run_after_pass(seen, self)
        return result


@dataclass(frozen=True, slots=True)
class Sequential:
    """Passes and other sequences, one after another; a pass that the current context does not enable is skipped.

    After the last pass of a name come the passes that are registered to follow it, then the ones in the context's `add_pass`.
    """

    passes: Sequence[Pass | Sequential]
    name: str = "sequential"

    def __call__(self, module: IRModule) -> IRModule:
        context = PassContext.current()
        last = {step.name: i for i, step in enumerate(self.passes)}
        for i, step in enumerate(self.passes):
            for one in (step, *(context.added_after(step.name) if last[step.name] == i else ())):
                if isinstance(one, Sequential) or context.enables(one):
                    module = one(module)
        return module


def enter_pass(new: Pass) -> Pass:
    """Enter a pass into the registry; UsageError E5102 if there is already one of that name."""
    if new.name in _PASSES:
        raise UsageError(Problem("E5102", f'the pass "{new.name}" is registered twice', call_place()))
    _PASSES[new.name] = new
    return new


def register_pass(
    opt_level: int, name: str = "", required: bool = False, *, on: str = "module", after: str = ""
) -> Callable[[Callable[[Any, PassContext], Any]], Pass]:  # fmt: skip
    """Make a pass from a function: `@register_pass(opt_level=1, name="my_pass")`.

    The function gets (module, context) and returns a module; with `on` "relay" or "tir" it gets and returns each function of that
    IR.  `name` defaults to the function's name.  With `after` the pass runs in every compilation, after the pass of that name;
    otherwise it runs where PassContext(add_pass=...) puts it.  UsageError E5036 names what is wrong.

    `required`: no PassContext turns the pass off.
    """
    known = {"module": None, "relay": "relay", "tir": "tir"}
    wrong = list(_pass_faults(opt_level, required))
    if not isinstance(name, str) or not isinstance(after, str):
        wrong.append("name and after are strings")
    elif after and not is_pass(after):
        wrong.append(_unknown_pass(after, " to run after"))
    if on not in known:
        wrong.append(f"on is one of {', '.join(known)}, not {on!r}")
    _check_pass("register_pass", wrong)

    def decorate(rule: Callable[[Any, PassContext], Any]) -> Pass:
        if not callable(rule):
            raise UsageError(Problem("E5036", "register_pass decorates a function of (module, context)", call_place()))
        title = pass_name(name or _name(rule))
        transform = rule if on == "module" else _over_functions(on, rule, title)
        phase = None if on == "module" else IRModule
        made = enter_pass(Pass(title, transform, opt_level, required, rule.__doc__ or "", phase=phase))
        if after:
            _AFTER.setdefault(pass_name(after), []).append(made)
        return made

    return decorate


def _pass_faults(opt_level: Any, required: Any) -> Iterator[str]:
    if type(opt_level) is not int or opt_level < 0:
        yield f"opt_level must be a non-negative integer, not {opt_level!r}"
    if not isinstance(required, bool):
        yield f"required is True for a pass that cannot be turned off, or False, not {required!r}; after= names a pass to follow"


def _check_pass(decorator: str, wrong: Collection[str]) -> None:
    if wrong:
        raise UsageError(*(Problem("E5036", f"{decorator}: {message}", call_place()) for message in wrong))


def reset_pass(name: str) -> None:
    """Remove the pass registered as `name`, for code that registers one temporarily; UsageError E5030 if there is none."""
    old = get_pass(name)
    del _PASSES[old.name]
    for rest in _AFTER.values():
        rest[:] = [p for p in rest if p is not old]


def get_pass(name: str) -> Pass:
    """The registered pass called `name`; UsageError E5030 if there is none."""
    problems = list(_check_known(frozenset({name})))
    if problems:
        raise UsageError(*problems)
    return _PASSES[pass_name(name)]


def all_passes() -> tuple[Pass, ...]:
    """Every registered pass, sorted by name."""
    return tuple(_PASSES[n] for n in sorted(_PASSES))


def module_pass(
    *, opt_level: int = 0, required: bool = False, law: Law | None = None, phase: type[IRModule] | None = None
) -> Callable[[Transform], Pass]:
    """Make a pass from `def name(module, context) -> module`; UsageError E5036 if `opt_level` or `required` has the wrong type.

    The function may have further arguments with defaults; `Pass.configured` sets them.

    `law` and `phase`: as in Pass.
    """
    _check_pass("module_pass", list(_pass_faults(opt_level, required)))

    def decorate(transform: Transform) -> Pass:
        return enter_pass(Pass(_name(transform), transform, opt_level, required, transform.__doc__ or "", law, phase))

    return decorate


def function_pass(*, opt_level: int = 0, required: bool = False) -> Callable[[Callable[[Any, PassContext], Any]], Pass]:
    """Make a pass from `def name(function, context) -> function`, applied to each relay Function of a module."""
    return _per_function("relay", opt_level=opt_level, required=required)


def prim_func_pass(*, opt_level: int = 0, required: bool = False) -> Callable[[Callable[[Any, PassContext], Any]], Pass]:
    """Make a pass from `def name(prim_func, context) -> prim_func`, applied to each tir PrimFunc of a module."""
    return _per_function("tir", opt_level=opt_level, required=required)


def _per_function(name: str, *, opt_level: int, required: bool) -> Callable[[Callable[[Any, PassContext], Any]], Pass]:
    _check_pass("function_pass" if name == "relay" else "prim_func_pass", list(_pass_faults(opt_level, required)))

    def decorate(rule: Callable[[Any, PassContext], Any]) -> Pass:
        transform = _over_functions(name, rule, _name(rule))
        return enter_pass(Pass(_name(rule), transform, opt_level, required, rule.__doc__ or "", phase=IRModule))

    return decorate


def _over_functions(name: str, rule: Callable[[Any, PassContext], Any], title: str) -> Transform:
    """Apply the `rule` of the pass `title` to each function of one IR, inner branches and bodies of loops first (E5035)."""

    def transform(module: IRModule, context: PassContext) -> IRModule:
        kind = dialect(name)

        def new(func: Any, key: str) -> Any:
            def checked(old: Any) -> Any:
                made = rule(old, context)
                if not isinstance(made, kind.func_class):
                    message = f'the pass "{title}" returned a {type(made).__name__} for @{key}, not a {kind.func_class.__name__}'
                    raise UsageError(Problem("E5035", message))
                return made

            return checked(kind.map_inner(func, checked) if kind.map_inner is not None else func)

        functions = {k: new(f, k) if isinstance(f, kind.func_class) else f for k, f in module.functions.items()}
        return replace(module, functions=functions)

    return transform


def _name(func: Callable[..., Any]) -> str:
    return str(getattr(func, "__name__", type(func).__name__))


__getattr__ = missing_in("transform")
