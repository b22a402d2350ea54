"""Targets: what the code generator and the kernels need to know of a processor."""

from __future__ import annotations

from dataclasses import dataclass, replace

from aot.errors import Problem, UsageError


@dataclass(frozen=True, slots=True)
class Target:
    """A processor kind by name.

    `features`: "dsp" (SMLAD and friends), "mve" (Helium), "mull" (32x32->64 multiply), "thumb2" (the full
    instruction set of Armv7-M), "fpu" (float32 in hardware), "vfp" (an Arm FPU, and "dsp"), "unaligned" (word access
    at any address).
    `gcc_flags` select the core; `has_div` whether there is a divide instruction.
    """

    name: str
    features: frozenset[str]
    gcc_flags: tuple[str, ...]
    description: str

    def has(self, feature: str) -> bool:
        return feature in self.features


_WITHOUT = {"fpu": "fpu vfp mve", "dsp": "dsp vfp mve", "mve": "mve"}
"""What a core can be had without -> the features that go with it."""


def find_target(name: str) -> Target:
    """The known target of that name (E5010 otherwise).

    `cortex-m33+nodsp+nofpu` is a core without what it may lack, or what a build does not let it use: fpu, dsp, mve.
    """
    from aot.target.cpu import TARGETS

    base, *modifiers = name.split("+")
    if base not in TARGETS:
        raise UsageError(Problem("E5010", f"unknown target '{name}'; known: {', '.join(TARGETS)}"))
    target = TARGETS[base]
    for modifier in modifiers:
        feature = modifier.removeprefix("no")
        if feature == modifier or feature not in _WITHOUT or not target.has(feature):
            raise UsageError(Problem("E5010", f"unknown target '{name}': there is no {base} with +{modifier}"))
        target = _without(target, feature)
    return replace(target, name=name)


def _without(target: Target, feature: str) -> Target:
    flags = target.gcc_flags
    if feature == "fpu":
        flags = tuple("-mfloat-abi=soft" if f.startswith("-mfloat-abi") else f for f in flags if not f.startswith("-mfpu"))
    if feature != "fpu" or target.has("mve"):
        gone = "mve" if feature == "fpu" else feature
        flags = tuple(f"{f}+no{gone}" if f.startswith("-mcpu") else f for f in flags)
    return replace(target, features=target.features - frozenset(_WITHOUT[feature].split()), gcc_flags=flags)
