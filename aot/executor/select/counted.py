"""Candidates with what was counted in the place of what is estimated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from aot.executor.select.history import Counts
from aot.executor.select.selection import Candidate


def with_history(found: Sequence[Candidate], counts: Counts) -> list[Candidate]:
    """The candidates with what was counted for estimates.

    Those that were not measured keep their places among the others: their estimates are scaled by the median of what the
    measured ones came to, as an estimate that all are compared with must be wrong in the same way for all.  Cycles are brought
    to the scale of instructions, which other layers are told in.
    """
    known = [c for c in found if c.kernel in counts and c.instructions > 0]
    if not known:
        return list(found)
    ratio = median(counts[c.kernel] / c.instructions for c in known)
    return [
        replace(c, instructions=counts[c.kernel] if c.kernel in counts else max(1, round(c.instructions * ratio))) for c in found
    ]


def scaled_cycles(found: Sequence[Candidate], counts: Counts) -> Counts:
    """Counted cycles in instructions: their order and proportions stay, the cheapest keeps its estimate."""
    known = [c for c in found if c.kernel in counts and c.instructions > 0]
    if not known:
        return {}
    best = min(known, key=lambda c: counts[c.kernel])
    factor = best.instructions / max(1, counts[best.kernel])
    return {c.kernel: max(1, round(counts[c.kernel] * factor)) for c in known}
