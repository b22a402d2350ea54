"""Targets: what the code generator and the kernels need to know of a processor."""

from __future__ import annotations

from dataclasses import dataclass

from aot.errors import Problem, UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """A processor kind by name.

    `features`: "dsp" (SMLAD and friends), "mve" (Helium), "mull" (32x32->64 multiply), "thumb2" (the full
    instruction set of Armv7-M), "fpu", "unaligned" (word access at any address).
    `gcc_flags` select the core; `has_div` whether there is a divide instruction.
    """

    name: str
    features: frozenset[str]
    gcc_flags: tuple[str, ...]
    description: str

    def has(self, feature: str) -> bool:
        return feature in self.features


def find_target(name: str) -> Target:
    """The known target of that name (E5010 otherwise)."""
    from aot.target.cpu import TARGETS

    try:
        return TARGETS[name]
    except KeyError:
        raise UsageError(Problem("E5010", f"unknown target '{name}'; known: {', '.join(TARGETS)}")) from None
