"""SelectKernels: choose one kernel per layer, and the layers that become cascades, within the budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from aot.errors import Problem, UsageError
from aot.executor.candidates import CandidateModule
from aot.executor.cascade_search import CascadeSearch, use_cascades
from aot.executor.config import SelectionConfig
from aot.executor.lowered import KernelCall, LoweredModule
from aot.executor.selection import Budget, Candidate, Selection, Stored, choose, distinct_bytes
from aot.ir.module import in_phase
from aot.ir.transform import PassContext, module_pass
from aot.memory.liveness import runs
from aot.tir.function import PrimFunc

MOST_SLOWDOWN = 1.25
"""How many times the instructions of the fastest plan a smaller plan may need, by the estimates.

`balanced` uses it to keep the workspace within the bound of whole tensors, `ram` to minimise the workspace.
"""


class NothingFits(Exception):  # noqa: N818 - an answer, no error
    """No choice of kernels fits the workspace limit."""


@module_pass(required=True, phase=CandidateModule)
def select_kernels(module: CandidateModule, _context: PassContext) -> LoweredModule:
    """Replace the preferred functions by the kernels that are best within the budgets, and runs of layers by cascades.

    In: a CandidateModule.  Out: a LoweredModule.  Raises NothingFits if nothing fits the workspace limit.
    """
    draft, config = with_changed_kernels(module), module.config
    if config.feed_rows and len(draft.inputs) != 1:
        raise UsageError(Problem("E5054", f"{len(draft.inputs)} inputs; only a single one can be fed by rows", draft.name))
    if draft.controls and config.feed_rows:
        text = "a model with branches or loops cannot be fed by rows; with --io user its input stays in a buffer of your own"
        raise UsageError(Problem("E5054", text, draft.name))
    lowered = in_phase(draft, LoweredModule)
    if draft.controls or not (config.cascades or config.whole_limit is not None):
        return choose_kernels(lowered)
    searches, key = draft.cache.searches, (draft.key, config.feed_rows)
    if key not in searches:
        searches[key] = CascadeSearch(draft, fed=draft.inputs[0] if config.feed_rows else None)
    search: CascadeSearch = searches[key].again()
    if config.whole_limit is not None:
        calls = tuple(_within(search, i, call, config) for i, call in enumerate(draft.calls))
        return choose_kernels(replace(lowered, calls=calls))
    most = None
    if config.workspace_limit is None:
        layers = [call.candidates for call in draft.calls]
        usual = selected_kernels(layers, replace(config, opt="balanced") if config.mode.least_ram else config)
        most = int(MOST_SLOWDOWN * sum(c[k].instructions for c, k in zip(layers, usual.chosen, strict=True)))
    cascaded = use_cascades(lowered, search, most=most)
    if cascaded is None:
        raise NothingFits
    return choose_kernels(cascaded)


def with_changed_kernels(draft: CandidateModule) -> CandidateModule:
    """The draft with a single candidate for each layer whose kernel a pass has changed since lowering."""
    calls = []
    for call in draft.calls:
        func, preferred = draft.functions.get(call.func), call.candidates[0]
        if isinstance(func, PrimFunc) and func is not preferred.lowered.func:
            changed = replace(preferred, source=replace(preferred.lowered, func=func), key=call.func)
            call = replace(call, candidates=(changed,))
        calls.append(call)
    return replace(draft, calls=tuple(calls))


def _within(search: CascadeSearch, i: int, call: KernelCall, config: SelectionConfig) -> KernelCall:
    """Layer i with the kernels that run within `whole_limit`; if there are none, all, or in mode ram the one of least scratch."""
    assert config.whole_limit is not None
    segment = search.whole(i, config.whole_limit)
    if segment is not None:
        return replace(call, candidates=segment.kernels)
    least = min(call.candidates, key=lambda c: (c.scratch, c.instructions))
    return replace(call, candidates=(least,)) if config.mode.least_ram else call


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


def choose_kernels(draft: LoweredModule) -> LoweredModule:
    """`draft` with the functions that the budget of its config selects from the candidates of each call."""
    found = [call.candidates for call in draft.calls]
    times = [runs(draft.controls, i) for i in range(len(found))]
    selection = selected_kernels([_repeated(layer, n) for layer, n in zip(found, times, strict=True)], draft.config)
    picked = [layer[k] for layer, k in zip(found, selection.chosen, strict=True)]
    chosen = {call.func: c.lowered for call, c in zip(draft.calls, picked, strict=True)}
    return replace(
        draft,
        functions={**draft.functions, **{name: c.func for name, c in chosen.items()}},
        constants={name: dict(c.constants) for name, c in chosen.items()},
        calls=tuple(replace(call, estimate=c.instructions) for call, c in zip(draft.calls, picked, strict=True)),
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
