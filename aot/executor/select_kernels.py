"""SelectKernels: choose one kernel per layer, and the layers that become cascades, within the budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from aot.errors import Problem, UsageError
from aot.executor.candidates import CandidateModule, candidates
from aot.executor.cascade_search import CascadeSearch, Limits, use_cascades
from aot.executor.config import SelectionConfig
from aot.executor.lowered import LoweredModule
from aot.executor.plan_search import MOST_SLOWDOWN
from aot.executor.selection import Budget, Candidate, Selection, Stored, choose, distinct_bytes
from aot.ir.transform import PassContext, module_pass
from aot.memory.liveness import runs
from aot.relay.expr import Function
from aot.tir.function import PrimFunc


class NothingFits(Exception):  # noqa: N818 - an answer, no error
    """No choice of kernels fits the RAM budget."""


@module_pass(required=True, phase=CandidateModule)
def select_kernels(module: CandidateModule, _context: PassContext) -> LoweredModule:
    """Replace the preferred functions by the kernels that are best within the budgets, and runs of layers by cascades.

    In: a CandidateModule.  Out: a LoweredModule.  Raises NothingFits if nothing fits the RAM budget.
    """
    draft, config = with_changed_kernels(module), module.config
    if config.feed_rows and len(draft.inputs) != 1:
        raise UsageError(Problem("E5054", f"{len(draft.inputs)} inputs; only a single one can be fed by rows", draft.name))
    if draft.controls and config.feed_rows:
        text = "a model with branches or loops cannot be fed by rows; with --io user its input stays in a buffer of your own"
        raise UsageError(Problem("E5054", text, draft.name))
    lowered, layers = without_candidates(draft), list(draft.found)
    if (config.cascades or config.whole_limit is not None) and not draft.controls:
        search = _items(draft, lowered)
        if config.whole_limit is not None:
            layers = [_within(search, i, layer, config) for i, layer in enumerate(layers)]
        else:
            cascaded = use_cascades(lowered, search, _limits(draft))
            if cascaded is None:
                raise NothingFits
            lowered, layers = cascaded
    return choose_kernels(lowered, layers, config)


def with_changed_kernels(draft: CandidateModule) -> CandidateModule:
    """The draft with a single candidate for each layer whose kernel a pass has changed since lowering."""
    layers = []
    for call, layer in zip(draft.calls, draft.found, strict=True):
        func = draft.functions.get(call.func)
        if isinstance(func, PrimFunc) and func is not draft.preferred[call.func]:
            layer = (replace(layer[0], made=replace(layer[0].lowered, func=func), key=call.func),)
        layers.append(layer)
    return replace(draft, found=tuple(layers))


def without_candidates(draft: CandidateModule) -> LoweredModule:
    """The calls of the draft in order, each with its preferred kernel."""
    return LoweredModule(
        draft.functions, draft.name, draft.constants, inputs=draft.inputs, outputs=draft.outputs, calls=draft.calls,
        views=draft.views, values=draft.values, offsets=draft.offsets, target=draft.target, config=draft.config,
        planning=draft.planning, states=draft.states, controls=draft.controls, conditions=draft.conditions,
        variables=draft.variables, order=draft.order,
    )  # fmt: skip


def _items(draft: CandidateModule, lowered: LoweredModule) -> CascadeSearch:
    """The search for layers that may run row by row, including results from other configs."""
    feed_rows, search = draft.config.feed_rows, draft.known.items
    if (draft.key, feed_rows) not in search:
        lower = partial(_lower_rows, draft=draft)
        fed = draft.inputs[0] if feed_rows else None
        search[draft.key, feed_rows] = CascadeSearch(lowered, draft.groups, draft.found, lower=lower, fed=fed)
    return search[draft.key, feed_rows].again()


def _lower_rows(func: Function, name: str, *, draft: CandidateModule) -> list[Candidate]:
    assert draft.target is not None
    return candidates(func, draft.target, name, draft.config, keyed=False, known=draft.known)


def _within(search: CascadeSearch, i: int, layer: Sequence[Candidate], config: SelectionConfig) -> Sequence[Candidate]:
    """The kernels of layer i that run within `whole_limit`; if there are none, all kernels, or in mode ram the least scratch."""
    assert config.whole_limit is not None
    segment = search.whole(i, config.whole_limit)
    if segment is not None:
        return segment.kernels
    return layer if not config.mode.least_ram else (min(layer, key=lambda c: (c.scratch, c.instructions)),)


def _limits(draft: CandidateModule) -> Limits:
    """The limits of the search for cascades."""
    config = draft.config
    if config.ram_budget is not None:
        return Limits(config.ram_budget or None)
    usual = selected_kernels(draft.found, replace(config, opt="balanced") if config.mode.least_ram else config)
    most = int(MOST_SLOWDOWN * sum(c[k].instructions for c, k in zip(draft.found, usual.chosen, strict=True)))
    return Limits(None, most, small=config.mode.least_ram)


# ---- how much flash each mode may use, and the kernels that are then selected


CODE_ALLOWANCE = 12 * 1024
"""Bytes of code that `balanced` and `size` allow besides the weights."""

LARGE_MODEL = 96 * 1024
"""Above this many bytes of constants, `balanced` lets code grow with them."""

RESERVE = 320
"""Bytes by which code estimates may be too low; reserved so that `size` stays within its 12 KiB."""

MAIN_CODE = 1536
"""Bytes of the main function and the runtime; kernel estimates do not include them."""

CALL_CODE = 32
"""Bytes of the main function per call of a layer."""


def main_code(calls: int) -> int:
    """Bytes of the main function and the runtime for this many layers; up to 32 layers count the same."""
    return MAIN_CODE + CALL_CODE * max(0, calls - 32)


def choose_kernels(draft: LoweredModule, found: Sequence[Sequence[Candidate]], policy: SelectionConfig) -> LoweredModule:
    """`draft` with the functions that the policy's budget selects; `found` are the candidates of each call."""
    times = [runs(draft.controls, i) for i in range(len(found))]
    selection = selected_kernels([_repeated(layer, n) for layer, n in zip(found, times, strict=True)], policy)
    picked = [layer[k] for layer, k in zip(found, selection.chosen, strict=True)]
    chosen = {call.func: c.lowered for call, c in zip(draft.calls, picked, strict=True)}
    return replace(
        draft,
        functions={**draft.functions, **{name: c.func for name, c in chosen.items()}},
        constants={name: dict(c.constants) for name, c in chosen.items()},
        calls=tuple(
            replace(call, candidates=tuple(layer), estimate=c.instructions)
            for call, c, layer in zip(draft.calls, picked, found, strict=True)
        ),
        selection=selection,
    )


def _repeated(layer: Sequence[Candidate], times: int) -> Sequence[Candidate]:
    """The candidates with their instructions multiplied by how often a loop runs them."""
    return layer if times == 1 else [replace(c, instructions=c.instructions * times) for c in layer]


def selected_kernels(found: Sequence[Sequence[Candidate]], policy: SelectionConfig) -> Selection:
    """Select the kernel of each layer.

    speed: no limit.  balanced: constants and code within twice the model's weights plus 12 KiB; code may use 12 KiB of that, and
    in large models one more byte per 16 bytes of constants (a quarter of this is kept in reserve).  Tables of layers without
    weights are added to the limit; if no layer has weights (float32), the extra code is added instead.  size: constants within
    12 % of the smallest, code within 12 KiB.  ram: as balanced, plus the code of the cascades, which is fixed; `found` then
    contains only kernels whose scratch fits the workspace.  An explicit flash budget applies in addition.
    """
    smallest = distinct_bytes(a for layer in found for a in _smallest(layer))
    main = main_code(len(found))
    more = 0  # bytes of code beyond the allowance; a quarter of the estimate is kept in reserve
    mode, code = policy.mode, None
    if mode.constants_factor is not None:
        more = max(0, smallest - LARGE_MODEL) // 16 if mode.code_grows else 0
        code = CODE_ALLOWANCE - main + (more if mode.code_grows else -RESERVE)
    fixed = sum(layer[0].code for layer in found if layer[0].is_cascade)
    tables = 0
    if mode.code_grows:
        count = Counter(layer[0].weights[0].key for layer in found if layer[0].weights)
        smallest = distinct_bytes(a for layer in found if _has_weights(layer) for a in _least(layer, count))
        tables = distinct_bytes(a for layer in found if not _has_weights(layer) for a in _smallest(layer))
    room = CODE_ALLOWANCE - main - more // 4 + (0 if smallest else more)
    flash = None if mode.constants_factor is None else int(mode.constants_factor * smallest) + tables + room
    flash, code = (None if limit is None else limit + fixed for limit in (flash, code))
    if policy.flash_budget is not None:
        flash = min(f for f in (flash, policy.flash_budget - main) if f is not None)
    return choose(found, Budget(flash, code))


def _has_weights(layer: Sequence[Candidate]) -> bool:
    return bool(layer[0].weights) or layer[0].is_cascade


def _smallest(layer: Sequence[Candidate]) -> tuple[Stored, ...]:
    """The constants of the candidate with the fewest bytes of them; unshared constants count as a single array."""
    best = min(layer, key=lambda c: c.constants)
    unshared = best.constants - distinct_bytes(best.arrays)
    return (*best.arrays, Stored(id(best), unshared))


def _least(layer: Sequence[Candidate], count: Mapping[Hashable, int]) -> tuple[Stored, ...]:
    """A layer's weights in the model, or its smallest constants if they are smaller.

    If several layers have the same weights (`count`: how many), only the weights count: their biases may differ, but only because
    zero points were folded in, which is not so in the model.
    """
    weights = layer[0].weights
    if weights and count[weights[0].key] > 1:
        return weights[:1]
    least = min(c.constants for c in layer)
    return weights if weights and sum(w.nbytes for w in weights) <= least else _smallest(layer)
