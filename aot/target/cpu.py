"""The known cores."""

from __future__ import annotations

from dataclasses import replace

from aot.errors import Problem, UsageError
from aot.support.caller import call_place
from aot.support.dataclass import dataclass
from aot.support.near import did_you_mean


@dataclass(frozen=True, slots=True)
class Core:
    """A processor core.

    `features`: "v6m" (Thumb instructions of Armv6-M and no others), "dsp" (SMLAD and friends), "mve" (Helium), "mull"
    (32x32->64 multiply), "thumb2" (the full instruction set of Armv7-M),
    "fpu" (float32 in hardware), "vfp" (an Arm FPU, and "dsp"), "unaligned" (word access
    at any address), "div" (a divide instruction); "ftz" is a permission: numbers below 2^-126 may be taken for zero, as vectors
    of float32 do (--fast-float).
    `gcc_flags` select the core, or its architecture where GCC 12 does not know the core.
    """

    name: str
    features: frozenset[str]
    gcc_flags: tuple[str, ...]
    description: str


def _core(name: str, features: str, flags: str, description: str) -> Core:
    return Core(name, frozenset(features.split()), tuple(flags.split()), description)


CORES: dict[str, Core] = {
    c.name: c
    for c in (
        _core("cortex-m0", "v6m", "-mcpu=cortex-m0 -mthumb -mfloat-abi=soft", "Armv6-M"),
        _core("cortex-m0plus", "v6m", "-mcpu=cortex-m0plus -mthumb -mfloat-abi=soft", "Armv6-M"),
        _core("cortex-m3", "mull thumb2 unaligned div", "-mcpu=cortex-m3 -mthumb -mfloat-abi=soft", "Armv7-M"),
        _core(
            "cortex-m4",
            "mull thumb2 unaligned div dsp fpu vfp",
            "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
            "Armv7E-M, DSP, single-precision FPU",
        ),
        _core(
            "cortex-m7",
            "mull thumb2 unaligned div dsp fpu vfp",
            "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16",
            "Armv7E-M, DSP, double-precision FPU",
        ),
        _core(
            "cortex-m33",
            "mull thumb2 unaligned div dsp fpu vfp",
            "-mcpu=cortex-m33 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16",
            "Armv8-M Mainline, DSP, single-precision FPU",
        ),
        _core(
            "cortex-m55",
            "mull thumb2 unaligned div dsp mve fpu vfp",
            "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
            "Armv8.1-M, Helium (MVE)",
        ),
        _core(
            "cortex-m85",
            "mull thumb2 unaligned div dsp mve fpu vfp",
            "-march=armv8.1-m.main+dsp+mve.fp+fp.dp -mthumb -mfloat-abi=hard",
            "Armv8.1-M, Helium (MVE), double-precision FPU",
        ),
        _core("host", "mull unaligned div fpu", "", "this machine"),
    )
}
"""name -> Core, in the order in which they are listed."""


def register_core(core: Core) -> Core:
    """Enter a core for `--target`; UsageError E5102 if there is one of the name, E5112 if it is not a Core."""
    if not isinstance(core, Core) or not core.name or "+" in core.name or " " in core.name:
        raise UsageError(Problem("E5112", f"register_core takes a Core with a name of one word, not {core!r}", call_place()))
    if core.name in CORES:
        raise UsageError(Problem("E5102", f"the core {core.name} is registered twice", call_place()))
    CORES[core.name] = core
    return core


_WITHOUT = {"fpu": "fpu vfp mve", "dsp": "dsp vfp mve", "mve": "mve"}
"""What a core can be had without -> the features that go with it."""


def find_core(name: str) -> Core:
    """The core of that name (E5010 otherwise).

    `cortex-m33+nodsp+nofpu` is a core without what it may lack, or what a build does not let it use: fpu, dsp, mve.
    """
    base, *modifiers = name.split("+")
    if base not in CORES:
        raise UsageError(Problem("E5010", f"unknown target '{name}'{did_you_mean(base, CORES)}; known: {', '.join(CORES)}"))
    core = CORES[base]
    for modifier in modifiers:
        feature = modifier.removeprefix("no")
        if feature == modifier or feature not in _WITHOUT or feature not in core.features:
            raise UsageError(Problem("E5010", f"unknown target '{name}': there is no {base} with +{modifier}"))
        core = _without(core, feature)
    return replace(core, name=name)


def _without(core: Core, feature: str) -> Core:
    flags = core.gcc_flags
    if feature == "fpu":
        flags = tuple("-mfloat-abi=soft" if f.startswith("-mfloat-abi") else f for f in flags if not f.startswith("-mfpu"))
    flags = tuple(_narrower(f, feature) for f in flags)
    if any(f.startswith("-mcpu") for f in flags) and (feature != "fpu" or "mve" in core.features):
        gone = "mve" if feature == "fpu" else feature
        flags = tuple(f"{f}+no{gone}" if f.startswith("-mcpu") else f for f in flags)
    return replace(core, features=core.features - frozenset(_WITHOUT[feature].split()), gcc_flags=flags)


_EXTENSIONS = {"fpu": {"mve.fp", "fp.dp"}, "dsp": {"dsp", "mve.fp"}, "mve": {"mve.fp"}}
"""Feature -> the extensions of an architecture that go with it."""


def _narrower(flag: str, feature: str) -> str:
    """-march=... without what goes with a feature; other flags unchanged."""
    if not flag.startswith("-march="):
        return flag
    base, *extensions = flag.split("+")
    return "+".join([base, *(e for e in extensions if e not in _EXTENSIONS[feature])])
