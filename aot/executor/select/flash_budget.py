"""What flash each mode may take, and the kernels that it then selects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace

from aot.executor.lowered import LoweredModule
from aot.executor.select.config import SelectionConfig
from aot.executor.select.selection import Budget, Candidate, Selection, Stored, choose, distinct_bytes
from aot.memory.control import runs

CODE_ALLOWANCE = 12 * 1024
"""Bytes of code that `balanced` and `size` allow, besides the weights."""

LARGE_MODEL = 96 * 1024
"""Above this many bytes of constants `balanced` lets code grow with them."""

SIZE_FACTOR = 1.12
"""Constants of `size`, as a multiple of the smallest: weights of one byte, with three words a channel to requantise."""

RESERVE = 320
"""Bytes by which estimates of code may fall short; `size` keeps its 12 KiB."""

MAIN_CODE = 1536
"""Bytes of the main function and the runtime, which no kernel's estimate counts."""

CALL_CODE = 32
"""How many of these a layer's call takes."""


def main_code(calls: int) -> int:
    """Bytes of the main function and the runtime for that many layers; up to 32 layers count the same."""
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
    """The candidates with the instructions of all the times that a loop runs them."""
    return layer if times == 1 else [replace(c, instructions=c.instructions * times) for c in layer]


def selected_kernels(found: Sequence[Sequence[Candidate]], policy: SelectionConfig) -> Selection:
    """Each layer's kernel.

    speed: no limit.  balanced: constants and code within twice the model's weights plus 12 KiB, of which code may take 12 KiB,
    and in large models one byte for 16 bytes of constants more (flash keeps a quarter of these in reserve); the tables of
    layers without weights come on top, and where all are such (float32) what code may take more.  size: constants within 12 % of
    the smallest, code within 12 KiB.  ram: as balanced, beside the code of the cascades, which is settled; `found` then holds
    only kernels whose scratch the workspace has room for.
    An explicit budget for flash comes on top.
    """
    smallest = distinct_bytes(a for layer in found for a in _smallest(layer))
    main = main_code(len(found))
    more = 0  # bytes of code beyond the allowance, of whose estimate a quarter is kept in reserve
    code = None if policy.opt == "speed" else CODE_ALLOWANCE - main
    if code is not None and policy.opt == "size":
        code -= RESERVE
    elif code is not None:
        more = max(0, smallest - LARGE_MODEL) // 16
        code += more
    fixed = sum(layer[0].code for layer in found if layer[0].is_cascade)
    factor = {"speed": None, "size": SIZE_FACTOR}.get(policy.opt, 2)
    tables = 0
    if policy.opt != "size":
        count = Counter(layer[0].weights[0].key for layer in found if layer[0].weights)
        smallest = distinct_bytes(a for layer in found if _has_weights(layer) for a in _least(layer, count))
        tables = distinct_bytes(a for layer in found if not _has_weights(layer) for a in _smallest(layer))
    room = CODE_ALLOWANCE - main - more // 4 + (0 if smallest else more)
    flash = None if factor is None else int(factor * smallest) + tables + room
    flash, code = (None if limit is None else limit + fixed for limit in (flash, code))
    if policy.flash_budget is not None:
        flash = min(f for f in (flash, policy.flash_budget - main) if f is not None)
    return choose(found, Budget(flash, code))


def _has_weights(layer: Sequence[Candidate]) -> bool:
    return bool(layer[0].weights) or layer[0].is_cascade


def _smallest(layer: Sequence[Candidate]) -> tuple[Stored, ...]:
    """The constants of the candidate that has the fewest; unshared constants count as a single array."""
    best = min(layer, key=lambda c: c.constants)
    rest = best.constants - distinct_bytes(best.arrays)
    return (*best.arrays, Stored(id(best), rest))


def _least(layer: Sequence[Candidate], count: Mapping[Hashable, int]) -> tuple[Stored, ...]:
    """A layer's weights in the model, or its smallest constants where those are fewer.

    Of several layers with the same weights (`count`: how many) those weights alone: their biases differ where zero points were
    folded in, which the model has not.
    """
    weights = layer[0].weights
    if weights and count[weights[0].key] > 1:
        return weights[:1]
    least = min(c.constants for c in layer)
    return weights if weights and sum(w.nbytes for w in weights) <= least else _smallest(layer)
