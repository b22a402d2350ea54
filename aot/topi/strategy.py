"""Op strategy: which kernel implements a fused group, and what a kernel returns."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cache, lru_cache
from typing import TypeVar

from aot.errors import Problem, UsageError, call_place
from aot.ir.op import Array
from aot.relay.expr import Call, Expr, Function, Var
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.tir.function import PrimFunc
from aot.topi.kernel_index import FILES

NEEDS = {"arm_mve": "mve", "arm_v6m": "v6m", "arm_fpu": "vfp"}
"""What a core must have for any kernel of a folder to accept a group."""


@cache
def load_kernels(anchor: str, lacking: frozenset[str] = frozenset()) -> None:
    """Import the files that have kernels for groups anchored at an operator, but not those that need what is `lacking`."""
    for file in FILES.get(anchor, ()):
        if NEEDS.get(file.partition(".")[0]) not in lacking:
            importlib.import_module(f"aot.topi.{file}")


@dataclass(frozen=True, slots=True)
class Group:
    """A fused function as a kernel author sees it.

    `func` is the primitive relay function (constants inside its body, one parameter a tensor operand).  `anchor` is
    its call of the highest pattern kind, `followers` the element-wise calls after it, in order, each reading the one
    before as its first argument or as another one (a residual ADD).  A group without such a chain has the last call
    as anchor and no followers.
    """

    func: Function
    anchor: Call
    followers: tuple[Call, ...]

    @property
    def params(self) -> tuple[Var, ...]:
        return self.func.params

    @property
    def result(self) -> Expr:
        return self.func.body


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel for one layer: `constants` gives each of `func.consts`, by buffer name, as a numpy array of its packed
    bytes or elements.

    `func.inputs` follow the order of the group's parameters, `func.outputs` the fields of its result.  `instructions`
    and `code` are the kernel author's estimates of one call's instructions and of the code's bytes, by which kernels
    compete (0: unknown).  `cycles` is stated by kernels of which there is a form with fewer instructions and one with fewer
    cycles: with `--opt speed` only the best of them by cycles is in the running.
    """

    func: PrimFunc
    constants: Mapping[str, Array] = field(default_factory=dict)
    instructions: int = 0
    code: int = 0
    cycles: int = 0


Accepts = Callable[[Group, Target], bool]
Lower = Callable[[Group, Target, str], Lowered]
"""(group, target, name of the function to build) -> Lowered"""


@dataclass(frozen=True, slots=True)
class OpImplementation:
    """A kernel family: `accepts` says exactly which groups it takes.

    Every family that accepts a group is lowered and priced; which one a layer gets is decided by cost, over all layers together
    (aot.executor.select).  `plevel` is the order in which they are listed: it decides between kernels of equal cost, and for
    functions that are lowered alone.
    `small`: made for its scratch memory, so only in the running where the workspace is limited.
    `for_speed`: fewer cycles, but more instructions, and its result cannot lie over its data, so only in the running with `speed`
    where the workspace is not limited.
    `larger`: faster than the generic path and of more code, so not in the running with `size`.
    `for_repeated`: only for layers whose weights other layers have too.  `for_pushes`: only for models whose window moves, where
    layers of one position run for every new row.
    `keeps`: leaves float weights as the file has them, float16 or integers; where there is such a kernel, others are only in the
    running where speed or a budget for RAM asks for it.
    `cuts`: a layer is taken from its followers so that this kernel runs it, at the price of a tensor between them.
    `several`: takes groups of several operators only, of which the anchor is one, so it is no kernel of that operator.
    `for_records`: a choice in a schedule that estimates do not tell apart from another one, so only in the running where it was
    counted (aot tune).  `source`: the module that it is written in, where `lower` is of another one.
    """

    name: str
    anchor: str
    accepts: Accepts
    lower: Lower
    plevel: int = 10
    small: bool = False
    for_speed: bool = False
    larger: bool = False
    for_repeated: bool = False
    for_pushes: bool = False
    keeps: bool = False
    cuts: bool = True
    for_records: bool = False
    several: bool = False
    source: str = ""

    @property
    def module(self) -> str:
        """The module that the kernel is written in."""
        return self.source or getattr(self.lower, "func", self.lower).__module__


_IMPLS: dict[str, list[OpImplementation]] = {}


def register_impl(impl: OpImplementation) -> OpImplementation:
    """Enter a kernel; `anchor` "*" means any group (the generic path from te rules).  E5102 for a second one of the name."""
    if any(known.name == impl.name for known in _IMPLS.get(impl.anchor, ())):
        raise UsageError(Problem("E5102", f"the kernel {impl.name} for {impl.anchor} is registered twice"))
    _IMPLS.setdefault(impl.anchor, []).append(impl)
    return impl


def foreign_implementations() -> tuple[OpImplementation, ...]:
    """The kernels that plug-ins have registered, or the user's Python, by name."""
    found = (i for impls in _IMPLS.values() for i in impls if i.module.partition(".")[0] != "aot")
    return tuple(sorted(found, key=lambda i: (i.name, i.anchor)))


Plan = TypeVar("Plan")


def register_planned(
    name: str,
    anchor: str,
    plan: Callable[[Group, Target], Plan | None],
    lower: Callable[[Group, Target, str, Plan], Lowered],
    *,
    plevel: int,
    small: bool = False,
    for_speed: bool = False,
    larger: bool = False,
    for_pushes: bool = False,
    keeps: bool = False,
    cuts: bool = True,
    for_records: bool = False,
    several: bool = False,
) -> OpImplementation:
    """Enter a kernel that accepts the groups for which there is a `plan`, and that is lowered by it."""
    planned = lru_cache(maxsize=16)(plan)  # asked for the same group when it is accepted and when it is lowered

    def accepts(group: Group, target: Target) -> bool:
        return planned(group, target) is not None

    def lower_planned(group: Group, target: Target, func: str) -> Lowered:
        found = planned(group, target)
        assert found is not None
        return lower(group, target, func, found)

    source = getattr(lower, "func", lower).__module__
    impl = OpImplementation(name, anchor, accepts, lower_planned, plevel, small=small, for_pushes=for_pushes, keeps=keeps)
    impl = replace(impl, for_speed=for_speed, larger=larger, cuts=cuts, for_records=for_records, several=several)
    return register_impl(replace(impl, source=source))


_EXTERNAL: dict[str, OpImplementation] = {}


def register_external_codegen(compiler: str, lower: Lower) -> OpImplementation:
    """Enter the code generator of functions with attrs["Compiler"]: `lower(group, target, name)` makes the kernel of one.

    UsageError E5120 for what is no name or no function, E5102 if the compiler has one.
    """
    if not isinstance(compiler, str) or not compiler or not callable(lower):
        raise UsageError(Problem("E5120", "register_external_codegen takes a compiler's name and a function", call_place()))
    if compiler in _EXTERNAL:
        raise UsageError(Problem("E5102", f"the external code generator {compiler} is registered twice", call_place()))
    _EXTERNAL[compiler] = OpImplementation(compiler, compiler, lambda _group, _target: True, lower)
    return _EXTERNAL[compiler]


def external_codegens() -> tuple[str, ...]:
    """The compilers that have a code generator."""
    return tuple(sorted(_EXTERNAL))


def external_impl(func: Function) -> OpImplementation | None:
    """The code generator of a function that is marked for one (E5121 if that does not exist); None of others."""
    compiler = func.attrs.get("Compiler")
    if compiler is None:
        return None
    if compiler not in _EXTERNAL:
        known = ", ".join(external_codegens()) or "none"
        raise UsageError(Problem("E5121", f"there is no external code generator {compiler!r}; there are {known}"))
    return _EXTERNAL[compiler]


def implementations(anchor: str, target: Target | None = None) -> tuple[OpImplementation, ...]:
    """All kernels for groups anchored at that operator, best plevel first, then by name; the "*" ones last.

    With a `target` those that no group can have on it may be missing.
    """
    lacking = frozenset(f for f in NEEDS.values() if target is not None and not target.has(f))
    for name in (anchor, "*"):
        load_kernels(name, lacking)
    own = sorted(_IMPLS.get(anchor, ()), key=lambda i: (-i.plevel, i.name))
    return (*own, *sorted(_IMPLS.get("*", ()), key=lambda i: (-i.plevel, i.name)))
