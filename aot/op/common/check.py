"""Checks that several converters make, each ending in a coded refusal."""

from __future__ import annotations

from dataclasses import replace
from typing import Self


class Clamped:
    """Attributes, a frozen dataclass, of an operator that clamps its result to [lo, hi]."""

    __slots__ = ()

    lo: int
    hi: int

    def clipped(self, lo: int, hi: int) -> Self:
        """The same followed by a clamp to [lo, hi]."""
        return replace(self, lo=min(max(self.lo, lo), hi), hi=max(min(self.hi, hi), lo))  # type: ignore[type-var]
