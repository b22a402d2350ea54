"""The pipeline on one page: from a model to C sources."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

from aot import op as operators
from aot import topi
from aot.errors import Problem, UsageError
from aot.executor.aot import Executable, Planned, emit, plan_schedule
from aot.executor.artifact import Artifact
from aot.executor.bounds import memory_bounds
from aot.executor.groups import cut_groups
from aot.executor.layout import Io
from aot.executor.metadata import BuildInfo
from aot.executor.policy import Attempt, Plans
from aot.executor.sharing import share_functions
from aot.executor.te_compiler import Known, Policy, compile_main, lower_group
from aot.frontend.macs import nominal_macs, nominal_shapes
from aot.frontend.specialize import FIRST_GRAPH, Choice, specialize
from aot.frontend.tflite import from_tflite
from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.memory.pools import ONE_POOL, Pooling, check_pooling
from aot.relay.expr import Function
from aot.relay.transform import pipeline as relay_pipeline
from aot.support.names import model_identifier
from aot.support.text import printable
from aot.target.target import Target, find_target
from aot.tir.function import PrimFunc
from aot.tir.transform import optimize

ORACLES = ("litert", "tflm")
KERNELS = ("native", "generic")
OPTS = ("balanced", "speed", "size", "ram")


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile: whose rounding (`oracle`), what to favour (`opt`), and where inputs and outputs live (`io`).

    `kernels` "generic" uses portable C only, "native" the target's instructions too.  `flash_budget` (constants and
    code) and `ram_budget` (workspace) are limits in bytes for the choice of kernels.  `choice` is the graph to compile and
    the shapes of its inputs.  With `share_workspace` the model uses the workspace that several models share
    (aot.executor.shared); `pooling` spreads it over several memories.  With `feed_rows` the input is not in the
    workspace but comes row by row.
    """

    oracle: str = "litert"
    opt: str = "balanced"
    io: Io = "arena"
    kernels: str = "native"
    flash_budget: int | None = None
    ram_budget: int | None = None
    choice: Choice = FIRST_GRAPH
    share_workspace: bool = False
    pooling: Pooling = ONE_POOL
    feed_rows: bool = False

    def __post_init__(self) -> None:
        choices = (
            ("oracle", self.oracle, ORACLES),
            ("opt", self.opt, OPTS),
            ("io", self.io, ("arena", "user")),
            ("kernels", self.kernels, KERNELS),
        )
        check_pooling(self.pooling)
        if self.share_workspace and self.pooling.pools:
            raise UsageError(Problem("E5009", "a workspace that models share cannot be spread over pools"))
        if self.feed_rows and self.pooling.pools:
            raise UsageError(Problem("E5009", "feeding rows does not go with pools"))
        if self.feed_rows and (self.share_workspace or self.io == "user"):
            raise UsageError(Problem("E5009", "feeding rows goes neither with a shared workspace nor with --io user"))
        for name, value, known in choices:
            if value not in known:
                raise UsageError(Problem("E5009", f"unknown {name} '{value}'; known: {', '.join(known)}"))


def build(
    model: bytes | Path | IRModule,
    *,
    target: str | Target = "cortex-m4",
    name: str | None = None,
    options: Options | None = None,
) -> Artifact:
    """Compile a .tflite model (its bytes or its path), or a relay module, to C.

    `name` becomes the prefix of all C symbols (default: from the file name).  Passes run in the current PassContext.  Raises
    ModelError, UnsupportedError, TargetError or InternalError.
    """
    return compile_model(model, target=target, name=name, options=options).artifact


def compile_model(
    model: bytes | Path | IRModule,
    *,
    target: str | Target = "cortex-m4",
    name: str | None = None,
    options: Options | None = None,
) -> Executable:
    """As `build`, with everything that is known on the way: the schedule, the plan, the functions as TIR."""
    options = options or Options()
    cpu = find_target(target) if isinstance(target, str) else target
    _load()
    source = model.read_bytes() if isinstance(model, Path) else model
    data = source if isinstance(source, IRModule) else specialize(source, options.choice)
    name = model_identifier(name or (model.stem if isinstance(model, Path) else "model"))
    module = data if isinstance(data, IRModule) else from_tflite(data, oracle=options.oracle, name=name)
    module = relay_pipeline(PassContext.current().opt_level)(module)
    main = module["main"]
    assert isinstance(main, Function)
    bounds = memory_bounds(main, nominal_shapes(data) if isinstance(data, bytes) else {}, io=options.io)
    info = BuildInfo(
        model_sha256=hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else "",
        model_file=printable(model.name, limit=255) if isinstance(model, Path) else "",
        oracle=options.oracle,
        opt=options.opt,
        macs_nominal=nominal_macs(data) if isinstance(data, bytes) else None,
        bounds=bounds,
        options=asdict(options),
    )
    plans = plans_of(main, cpu, name=name, options=options, bound=bounds.liveness)
    budget, opt = options.ram_budget, options.opt
    planned = plans.usual(opt) if budget is None else plans.within(budget, opt)
    return emit(planned, target=cpu, info=info)


def plans_of(main: Function, cpu: Target, *, name: str, options: Options, bound: int) -> Plans:
    """What the fused graph may become; of `options`, neither `opt` nor `ram_budget` counts.  `bound` as in Plans."""
    made = _attempts(cut_groups(main, cpu), cpu, name=name, options=options)
    return Plans(made, bound, OPTS, fed=options.feed_rows, pooled=bool(options.pooling.pools))


def _attempts(main: Function, cpu: Target, *, name: str, options: Options) -> Callable[[Attempt], Planned | None]:
    """From the fused graph to a plan, each attempt once."""
    known = Known()
    optimized = cache(optimize)

    @cache
    def made(attempt: Attempt) -> Planned | None:
        policy = Policy(
            attempt.opt, options.kernels, options.flash_budget, attempt.ram_budget, options.feed_rows, attempt.whole_limit
        )
        draft = compile_main(main, cpu, name=name, policy=policy, known=known)
        if draft is None:
            return None
        schedule = draft.map_functions(optimized)
        if attempt.opt != "speed":  # where speed counts, numbers stay constants
            schedule = share_functions(schedule)
        return plan_schedule(replace(schedule, pooling=options.pooling), options.io, tight=attempt.tight)

    return made


def lower(func: Function, target: str | Target = "cortex-m4", *, name: str = "kernel") -> PrimFunc:
    """One fused function as a PrimFunc, for tests and tuning (the counterpart of tvm.lower)."""
    _load()
    cpu = find_target(target) if isinstance(target, str) else target
    return optimize(lower_group(func, cpu, name).func)


def _load() -> None:
    """Fill the registries of operators and kernels."""
    operators.load_all()
    topi.load_all()


class _CallableModule(ModuleType):
    """Importing `aot.build` binds that name to this module, which therefore can be called: `aot.build(model)` is `build`."""

    __call__ = staticmethod(build)


sys.modules[__name__].__class__ = _CallableModule
