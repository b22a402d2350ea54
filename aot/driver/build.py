"""The pipeline on one page: from a model to C sources."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

from aot.driver.byoc import library_files
from aot.driver.front import FrontendResult, front
from aot.driver.model_file import read_model
from aot.driver.options import Options
from aot.driver.plugins import load_installed
from aot.driver.reading import NamedBytes
from aot.errors import TargetError
from aot.executor.artifact import Artifact, over_budget
from aot.executor.candidates import FusedModule, lower_group
from aot.executor.config import MODES, SLIDE_SHARE, History, PlanConfig, RingKind, SelectionConfig
from aot.executor.emit import LoweredOutput, emit
from aot.executor.lower_main import TirModule
from aot.executor.metadata import BuildInfo
from aot.executor.pipeline import lower_and_plan, lower_main, with_groups
from aot.executor.plan_memory import Bounds, memory_bounds
from aot.executor.plan_search import PlanRequest, PlanSearch
from aot.executor.select_kernels import NothingFits
from aot.executor.slide_windows import least_state
from aot.executor.storage_map import Planned
from aot.executor.tir_passes import Optimized
from aot.frontend.formats import specialize
from aot.frontend.input_values import input_values
from aot.frontend.macs import nominal_shapes
from aot.ir.module import IRModule
from aot.ir.transform import PassContext, unwatched
from aot.memory.memory_pools import ONE_POOL
from aot.relay.expr import Function
from aot.relay.state import state_vars
from aot.support.dataclass import dataclass
from aot.support.names import model_identifier
from aot.support.text import printable
from aot.system.gc_tuning import rare_collections
from aot.target.target import Target, find_target, require_c
from aot.tir.function import PrimFunc
from aot.tir.transform import optimize

_TOLD_ELSEWHERE = frozenset({"byoc_path", "force_over_budget", "max_iterations", "slide", "slide_axis", "tuning"})
"""Options that the metadata does not list: a path of this machine, an option that changes no artifact, options that are listed
with the loops or inputs that they apply to, and tuning records, which appear as their digest.
"""

_DEFAULTS = (("byoc", ()), ("rings", "auto"), ("float16", "keep"), ("in_steps", False), ("fast_float", False))
"""Listed only when they differ from these defaults."""


def build(
    model: bytes | Path | NamedBytes | IRModule,
    *,
    target: str | Target = "cortex-m4",
    name: str | None = None,
    options: Options | None = None,
) -> Artifact:
    """Compile a model or relay module to C.  A model is its bytes, its path, or its bytes with the path; a .toml is a chain.

    `name` becomes the prefix of all C symbols (default: from the file name).  Passes run in the current PassContext.  Raises
    ModelError, UnsupportedError, InternalError or TargetError; the last is E2021 or E2022 if a budget cannot be met, unless the
    option `force_over_budget` is set.
    """
    artifact = compile_model(model, target=target, name=name, options=options).artifact
    over = [] if options is None or options.force_over_budget else over_budget(artifact.metadata)
    if over:
        raise TargetError(*over)
    return artifact


@rare_collections()
def compile_model(
    model: bytes | Path | NamedBytes | IRModule,
    *,
    target: str | Target = "cortex-m4",
    name: str | None = None,
    options: Options | None = None,
    shared: Shared | None = None,
) -> LoweredOutput:
    """As `build`, but with all intermediate results: the lowered module, the plan, and the functions as TIR.

    `model`, `target`, `name` and `options` are as in `build`.  A budget that cannot be met is not an error here; the result is
    then the smallest plan found.  `shared` holds work that compilations of one model in different modes and budgets have in
    common.
    """
    options = options or Options()
    given = _given(model, target, name=name, options=options)
    cpu, file, source, data = require_c(given.target), given.file, given.source, given.data
    found, bounds, planned = _planned(data, cpu, name=given.name, options=options, shared={} if shared is None else shared)
    slide = found.slide
    values = input_values(data, found.before) if isinstance(data, bytes) else {}
    info = BuildInfo(
        model_sha256=hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else "",
        model_file=printable(file.path.name, limit=255) if file is not None else "",
        oracle=options.oracle,
        opt=options.opt,
        macs_nominal=found.macs_nominal(data) if isinstance(data, bytes) else None,
        bounds=bounds,
        options=_listed(options),
        input_values=values,
        slide=None if slide is None else slide.told(),
        chain=None if found.chain is None else found.chain.told,
    )
    made = emit(lower_main(planned), info=info)
    files = library_files(options.byoc_path) if options.byoc else {}
    return replace(made, artifact=replace(made.artifact, files={**made.artifact.files, **files})) if files else made


@rare_collections()
def lower_model(
    model: bytes | Path | NamedBytes | IRModule, *, target: Target, name: str | None = None, options: Options | None = None
) -> TirModule:
    """As `build`, but stop when everything is a PrimFunc: the input of code generators other than the one for C.

    `module.constants[f][b]` holds the values of the buffer `b` that the function `f` gets as a constant.
    """
    options = options or Options()
    given = _given(model, target, name=name, options=options)
    _, _, planned = _planned(given.data, given.target, name=given.name, options=options, shared={})
    return lower_main(planned)


@dataclass(frozen=True, slots=True)
class _Given:
    """The inputs of a compilation: target, file (if there is one), the model as read, and the model with its shapes fixed."""

    target: Target
    file: NamedBytes | None
    source: bytes | IRModule
    data: bytes | IRModule
    name: str


def _given(
    model: bytes | Path | NamedBytes | IRModule, target: str | Target, *, name: str | None, options: Options
) -> _Given:  # fmt: skip
    cpu = find_target(target) if isinstance(target, str) else target
    cpu = cpu.with_fast_float() if options.fast_float else cpu
    load_installed()
    file = read_model(model) if isinstance(model, Path) else model if isinstance(model, NamedBytes) else None
    source = model if isinstance(model, bytes | IRModule) else file.data if file is not None else b""
    data = source if isinstance(source, IRModule) else specialize(source, options.choice)
    return _Given(cpu, file, source, data, model_identifier(name or (file.path.stem if file is not None else "model")))


@dataclass(frozen=True, slots=True)
class _PlanOption:
    """A graph with its bounds and its possible plans."""

    front: FrontendResult
    bounds: Bounds
    fused: FusedModule
    plans: PlanSearch

    def plan(self, budget: int | None, opt: str) -> Planned:
        return self.plans.usual(opt) if budget is None else self.plans.within(budget, opt)

    def fits(self, planned: Planned, budget: int | None) -> bool:
        """Whether workspace and state fit the budget, and the plan fits the pools."""
        return planned.fits and (budget is None or planned.size + least_state(planned) <= budget)


Shared = dict[str, Any]
"""Graphs of one model and their possible plans, keyed by the options that they depend on."""


def _planned(
    data: bytes | IRModule, cpu: Target, *, name: str, options: Options, shared: Shared
) -> tuple[FrontendResult, Bounds, Planned]:
    """The graph and its plan.  If a window slides and a budget or pools limit RAM, rows that would not fit are recomputed.

    Among the plans of the front (`slide_front`), choose the one with the least work whose usual kernels fit.  If the plan before
    it fits with kernels that need less memory, and is faster, choose that one.  If none fits, choose the last.
    """

    def way(most: int | None) -> _PlanOption:
        key = _key(cpu, name, options, most if options.slide else None)
        if key not in shared:
            shared[key] = front(data, cpu, name=name, options=options, most_bytes=most)
        found: FrontendResult = shared[key]
        # before planning, only windows in the state depend on the mode and the budget
        windows = f" {_with_rings(_PLAIN, options, slides=found.slides)}" if state_vars(found.main) else ""
        if key + windows + " plans" not in shared:
            fused = fused_module(found.main, cpu, name=name, options=options, slides=found.slides)
            bounds = memory_bounds(found.main, nominal_shapes(data) if isinstance(data, bytes) else {}, io=options.io)
            shared[key + windows + " plans"] = _PlanOption(found, bounds, fused, plans_of(fused, bound=bounds.liveness))
        made: _PlanOption = shared[key + windows + " plans"]
        return made

    budget, opt, before = options.ram_budget, options.opt, None
    chosen = way(budget)
    while chosen.front.slide is not None and not chosen.fits(chosen.plans.usual(opt), budget):
        if chosen.front.slide.plan is chosen.front.slide.front.plans[-1]:
            break
        before, chosen = chosen, way(chosen.front.slide.plan.total_bytes - 1)
    planned = chosen.plan(budget, opt)
    if before is not None:
        other = before.plan(budget, opt)
        if before.fits(other, budget) and not (chosen.fits(planned, budget) and planned.estimate <= other.estimate):
            chosen, planned = before, other
    planned = shown(chosen.fused, planned)
    if budget is not None and options.pooling.pins:
        most = max(planned.size, budget - least_state(planned))
        planned = replace(planned, planning=replace(planned.planning, most_spread=most))
    return chosen.front, chosen.bounds, planned


def _key(cpu: Target, name: str, options: Options, most: int | None) -> str:
    """Everything that a graph and its plans depend on; the mode and the RAM budget only choose among the plans."""
    rest = replace(options, opt="balanced", ram_budget=None, force_over_budget=False, tuning=None)
    history = options.tuning or History.current()
    return repr((cpu, name, rest, history.digest if history.rows else "", most))


def fused_module(main: Function, cpu: Target, *, name: str, options: Options, slides: bool = False) -> FusedModule:
    """The fused graph as the executor expects it; `opt` and `ram_budget` of `options` only affect windows in the state.

    `slides`: windows advance by the rows of a run.
    """
    config = SelectionConfig(
        kernels=options.kernels, flash_budget=options.flash_budget, feed_rows=options.feed_rows, slides=slides,
        history=options.tuning or History.current(),
    )  # fmt: skip
    planning = PlanConfig(options.io, options.pooling, max_iterations=options.max_iterations)
    planning = _with_rings(planning, options, slides=slides)
    return with_groups(FusedModule({"main": main}, name, target=cpu, config=config, planning=planning))


_PLAIN = PlanConfig("arena", ONE_POOL)
"""A plan's config without options."""


def _with_rings(planning: PlanConfig, options: Options, *, slides: bool) -> PlanConfig:
    """Let windows in the state slide if the user asks for it, or if speed matters and the RAM budget leaves room for it."""
    if options.rings == "auto":
        mode = MODES[options.opt]
        share = SLIDE_SHARE if slides and not mode.windows_at_any_size else None
        rings: RingKind = "slide" if mode.windows_slide else "copy"
        return replace(planning, rings=rings, ram_limit=options.ram_budget, ring_share=share)
    return replace(planning, rings="slide" if options.rings == "slide" else "copy")


def plans_of(fused: FusedModule, *, bound: int) -> PlanSearch:
    """The possible plans of the fused graph; `bound` as in PlanSearch.  Each attempt is made once, unseen by instruments."""
    optimized: Optimized = {}

    @cache
    def made(attempt: PlanRequest) -> Planned | None:
        with unwatched(), suppress(NothingFits):
            return lower_and_plan(_for_attempt(fused, attempt), optimized)
        return None

    pools = tuple(p.size for p in fused.planning.pooling.pools)
    return PlanSearch(made, bound, fed=fused.config.feed_rows, pools=pools, state=least_state)


def _for_attempt(fused: FusedModule, attempt: PlanRequest) -> FusedModule:
    config = replace(fused.config, opt=attempt.opt, ram_budget=attempt.ram_budget, whole_limit=attempt.whole_limit)
    return replace(fused, config=config, planning=replace(fused.planning, tight=attempt.tight))


def shown(fused: FusedModule, planned: Planned) -> Planned:
    """The chosen plan, made once more if instruments want to watch."""
    if not PassContext.current().instruments:
        return planned
    return lower_and_plan(replace(fused, config=planned.config, planning=planned.planning), {})


def lower(func: Function, target: str | Target = "cortex-m4", *, name: str = "kernel") -> PrimFunc:
    """One fused function lowered to a PrimFunc, for tests and tuning (the counterpart of tvm.lower)."""
    load_installed()
    cpu = find_target(target) if isinstance(target, str) else target
    return optimize(lower_group(func, cpu, name).func)


def _listed(options: Options) -> dict[str, Any]:
    """The options as the metadata lists them, with JSON's types (lists for tuples)."""
    told = {
        k: v for k, v in asdict(replace(options, tuning=None)).items() if k not in _TOLD_ELSEWHERE and (k, v) not in _DEFAULTS
    }
    history = options.tuning or History.current()
    plain: dict[str, Any] = json.loads(json.dumps({**told, **({"tuning": history.digest} if history.rows else {})}))
    return plain
