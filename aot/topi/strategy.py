"""The registry of kernels: which kernels accept a fused function, and what a kernel returns."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import field
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
"""Folder -> the feature that a core must have for any of the folder's kernels."""


@cache
def load_kernels(anchor: str, lacking: frozenset[str] = frozenset()) -> None:
    """Import the files with kernels for an anchor operator, except for files that need a feature in `lacking`."""
    for file in FILES.get(anchor, ()):
        if NEEDS.get(file.partition(".")[0]) not in lacking:
            importlib.import_module(f"aot.topi.{file}")


@dataclass(frozen=True, slots=True)
class Group:
    """A fused function as kernel authors see it.

    `func` is the primitive relay function, with constants in its body and one parameter per tensor operand.  `anchor` is its call
    of the highest pattern kind.  `followers` are the element-wise calls after it, in order; each reads the one before as its
    first or another argument (a residual ADD).  A group without such a chain has its last call as anchor, and no followers.
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
    """A kernel for one layer; `constants`: each of `func.consts`, by buffer name, as a numpy array of packed bytes or elements.

    `func.inputs` are in the order of the group's parameters, `func.outputs` in the order of its result's fields.  `instructions`
    (per call) and `code` (bytes) are the author's estimates, by which kernels compete; 0 means unknown.  `cycles` is for kernels
    with two forms, one with fewer instructions and one with fewer cycles: `--opt speed` considers only the form with the fewest
    cycles.
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
    """A kernel family; `accepts` decides exactly which groups it can compute.

    Every family that accepts a group is lowered and priced; which one a layer gets is decided by cost, over all layers together
    (aot.executor.select).  `plevel` orders the candidates: it decides between kernels of equal cost, and for functions that are
    lowered alone.

    The flags restrict when a kernel competes.  `small`: it saves scratch memory; only if the workspace is limited.  `for_speed`:
    fewer cycles but more instructions, and its result must not overlap its data; only with `--opt speed` and an unlimited
    workspace. `larger`: faster than the generic path but more code; not with `--opt size`.  `for_repeated`: only for layers that
    share their weights with others.  `for_pushes`: only for models with a sliding window, where the layers of one position run
    for every new row. `for_records`: estimates cannot tell this schedule from another one; only if it was measured (aot tune).

    `keeps`: it uses float weights in the form of the file (float16 or integers); then other kernels compete only if speed or a
    RAM budget demands it.  `cuts`: a layer may be split from its followers to run this kernel, at the cost of a tensor between
    them. `several`: it accepts only groups of several operators, so it is not a kernel of the anchor operator itself.  `source`:
    the module that contains it, if `lower` is from another one.
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
        """The module that contains the kernel."""
        return self.source or getattr(self.lower, "func", self.lower).__module__


_IMPLS: dict[str, list[OpImplementation]] = {}


def register_impl(impl: OpImplementation) -> OpImplementation:
    """Register a kernel; the anchor "*" means any group (the generic path from te rules).  E5102 if the name is taken."""
    if any(other.name == impl.name for other in _IMPLS.get(impl.anchor, ())):
        raise UsageError(Problem("E5102", f"the kernel {impl.name} for {impl.anchor} is registered twice"))
    _IMPLS.setdefault(impl.anchor, []).append(impl)
    return impl


def foreign_implementations() -> tuple[OpImplementation, ...]:
    """The kernels that plug-ins or the user's own Python have registered, by name."""
    foreign = (i for impls in _IMPLS.values() for i in impls if i.module.partition(".")[0] != "aot")
    return tuple(sorted(foreign, key=lambda i: (i.name, i.anchor)))


Plan = TypeVar("Plan")


def register_planned(
    name: str,
    anchor: str,
    plan: Callable[[Group, Target], Plan | None],
    lower: Callable[[Group, Target, str, Plan], Lowered],
    *,
    plevel: int,
    **flags: bool,
) -> OpImplementation:
    """Register a kernel that accepts the groups for which `plan` returns a plan, and is lowered from it; `flags`: those of
    OpImplementation that are set.
    """
    planned = lru_cache(maxsize=16)(plan)  # called once when a group is accepted and again when it is lowered

    def accepts(group: Group, target: Target) -> bool:
        return planned(group, target) is not None

    def lower_planned(group: Group, target: Target, func: str) -> Lowered:
        chosen = planned(group, target)
        assert chosen is not None
        return lower(group, target, func, chosen)

    source = getattr(lower, "func", lower).__module__
    return register_impl(OpImplementation(name, anchor, accepts, lower_planned, plevel, source=source, **flags))


_EXTERNAL: dict[str, OpImplementation] = {}


def register_external_codegen(compiler: str, lower: Lower) -> OpImplementation:
    """Register the code generator for functions with attrs["Compiler"]: `lower(group, target, name)` builds the kernel of one.

    UsageError E5120 if an argument is not a name or a function, E5102 if the compiler already has one.
    """
    if not isinstance(compiler, str) or not compiler or not callable(lower):
        raise UsageError(Problem("E5120", "register_external_codegen needs a compiler's name and a function", call_place()))
    if compiler in _EXTERNAL:
        raise UsageError(Problem("E5102", f"the external code generator {compiler} is registered twice", call_place()))
    _EXTERNAL[compiler] = OpImplementation(compiler, compiler, lambda _group, _target: True, lower)
    return _EXTERNAL[compiler]


def external_codegens() -> tuple[str, ...]:
    """The compilers that have a code generator."""
    return tuple(sorted(_EXTERNAL))


def external_impl(func: Function) -> OpImplementation | None:
    """The code generator that a function is marked for (E5121 if it does not exist); None for unmarked functions."""
    compiler = func.attrs.get("Compiler")
    if compiler is None:
        return None
    if compiler not in _EXTERNAL:
        registered = ", ".join(external_codegens()) or "none"
        raise UsageError(Problem("E5121", f"there is no external code generator {compiler!r}; registered: {registered}"))
    return _EXTERNAL[compiler]


def implementations(anchor: str, target: Target | None = None) -> tuple[OpImplementation, ...]:
    """All kernels for groups anchored at an operator, best plevel first, then by name; the "*" ones last.

    With a `target`, kernels that cannot run on it may be missing.
    """
    lacking = frozenset(f for f in NEEDS.values() if target is not None and not target.has(f))
    for name in (anchor, "*"):
        load_kernels(name, lacking)
    own = sorted(_IMPLS.get(anchor, ()), key=lambda i: (-i.plevel, i.name))
    return (*own, *sorted(_IMPLS.get("*", ()), key=lambda i: (-i.plevel, i.name)))
