"""The pipeline on one page: from a model to C sources."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
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
from aot.executor.pipeline import lower_main, with_groups
from aot.executor.plan_memory import Bounds, least_state, memory_bounds
from aot.executor.plan_search import PlanSearch
from aot.executor.storage_map import Planned
from aot.frontend.formats import input_values, specialize
from aot.frontend.tflite.view import nominal_shapes
from aot.ir.module import IRModule
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


Model = bytes | Path | NamedBytes | IRModule

Shared = dict[Any, Any]
"""Graphs of one model and their possible plans, keyed by the options that they depend on."""


def build(
    model: Model, *, target: str | Target = "cortex-m4", name: str | None = None, options: Options | None = None
) -> Artifact:  # fmt: skip
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
    model: Model,
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
    asked = _Compilation.of(model, target, name, options, shared)
    options, file, source, data = asked.options, asked.file, asked.source, asked.data
    require_c(asked.target)
    option, planned = asked.planned()
    found = option.front
    info = BuildInfo(
        model_sha256=hashlib.sha256(source).hexdigest() if isinstance(source, bytes) else "",
        model_file=printable(file.path.name, limit=255) if file is not None else "",
        oracle=options.oracle,
        opt=options.opt,
        macs_nominal=found.macs_nominal(data) if isinstance(data, bytes) else None,
        bounds=option.bounds,
        options=_listed(options),
        input_values=input_values(data, found.before) if isinstance(data, bytes) else {},
        slide=None if found.slide is None else found.slide.told(),
        chain=None if found.chain is None else found.chain.told,
    )
    made = emit(lower_main(planned), info=info)
    files = library_files(options.byoc_path) if options.byoc else {}
    return replace(made, artifact=replace(made.artifact, files={**made.artifact.files, **files})) if files else made


@rare_collections()
def lower_model(
    model: Model, *, target: Target, name: str | None = None, options: Options | None = None
) -> TirModule:  # fmt: skip
    """As `build`, but stop when everything is a PrimFunc: the input of code generators other than the one for C.

    `module.constants[f][b]` holds the values of the buffer `b` that the function `f` gets as a constant.
    """
    return lower_main(_Compilation.of(model, target, name, options, None).planned()[1])


@dataclass(frozen=True, slots=True)
class _PlanOption:
    """A graph with its bounds and its possible plans."""

    front: FrontendResult
    bounds: Bounds
    plans: PlanSearch


@dataclass(frozen=True, slots=True)
class _Compilation:
    """What is compiled: target, file (if there is one), the model as read, and the model with its shapes fixed."""

    target: Target
    file: NamedBytes | None
    source: bytes | IRModule
    data: bytes | IRModule
    name: str
    options: Options
    shared: Shared

    @staticmethod
    def of(
        model: Model, target: str | Target, name: str | None, options: Options | None, shared: Shared | None
    ) -> _Compilation:  # fmt: skip
        options = options or Options()
        cpu = find_target(target) if isinstance(target, str) else target
        cpu = cpu.with_fast_float() if options.fast_float else cpu
        load_installed()
        file = read_model(model) if isinstance(model, Path) else model if isinstance(model, NamedBytes) else None
        source = model if isinstance(model, bytes | IRModule) else file.data if file is not None else b""
        data = source if isinstance(source, IRModule) else specialize(source, options.choice)
        name = model_identifier(name or (file.path.stem if file is not None else "model"))
        return _Compilation(cpu, file, source, data, name, options, {} if shared is None else shared)

    def option(self, most: int | None) -> _PlanOption:
        """The graph whose windows, if they slide, keep at most this many bytes of rows, and its possible plans."""
        data, options, shared = self.data, self.options, self.shared
        key: Any = _key(self.target, self.name, options, most if options.slide else None)
        if key not in shared:
            shared[key] = front(data, self.target, name=self.name, options=options, most_bytes=most)
        found: FrontendResult = shared[key]
        # before planning, only windows in the state depend on the mode and the budget
        key = key, _planning(options, slides=found.slides) if state_vars(found.main) else None
        if key not in shared:
            fused = fused_module(found.main, self.target, name=self.name, options=options, slides=found.slides)
            bounds = memory_bounds(found.main, nominal_shapes(data) if isinstance(data, bytes) else {}, io=options.io)
            shared[key] = _PlanOption(found, bounds, PlanSearch(fused, bounds.liveness))
        option: _PlanOption = shared[key]
        return option

    def planned(self) -> tuple[_PlanOption, Planned]:
        """The graph and its plan.  If a window slides and a budget or pools limit RAM, rows that would not fit are recomputed.

        Among the plans of the front (`slide_front`), choose the one with the least work whose usual kernels fit.  If the plan
        before it fits with kernels that need less memory, and is faster, choose that one.  If none fits, choose the last.
        """
        budget, opt, before = self.options.ram_budget, self.options.opt, None
        chosen = self.option(budget)
        while chosen.front.slide is not None and not chosen.plans.fits(chosen.plans.best(opt, None), budget):
            if chosen.front.slide.plan is chosen.front.slide.front.plans[-1]:
                break
            before, chosen = chosen, self.option(chosen.front.slide.plan.total_bytes - 1)
        planned = chosen.plans.best(opt, budget)
        if before is not None:
            other = before.plans.best(opt, budget)
            fits = chosen.plans.fits(planned, budget)
            if before.plans.fits(other, budget) and not (fits and planned.estimate <= other.estimate):
                chosen, planned = before, other
        planned = chosen.plans.watched(planned)
        if budget is not None and self.options.pooling.pins:
            most = max(planned.size, budget - least_state(planned))
            planned = replace(planned, planning=replace(planned.planning, most_spread=most))
        return chosen, planned


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
    planning = _planning(options, slides=slides)
    return with_groups(FusedModule({"main": main}, name, target=cpu, config=config, planning=planning))


def _planning(options: Options, *, slides: bool) -> PlanConfig:
    """How memory is planned.

    Windows in the state slide if the user asks for it, or if speed matters and the RAM budget leaves room for it.
    """
    mode = MODES[options.opt]
    rings: RingKind = "slide" if options.rings == "slide" or (options.rings == "auto" and mode.windows_slide) else "copy"
    planning = PlanConfig(options.io, options.pooling, rings=rings, max_iterations=options.max_iterations)
    if options.rings != "auto":
        return planning
    share = SLIDE_SHARE if slides and not mode.windows_at_any_size else None
    return replace(planning, ram_budget=options.ram_budget, ring_share=share)


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
