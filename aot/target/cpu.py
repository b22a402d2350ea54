"""The known cores, in one table with everything that differs between cores.

A core with a known instruction set is one row.  Values that only some kinds of projects need (names in CMSIS packs, Rust targets,
Zephyr's options) follow from its name and architecture.
"""

from __future__ import annotations

from dataclasses import replace

from aot.errors import Problem, UsageError, call_place
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean


@dataclass(frozen=True, slots=True)
class Timing:
    """Cycles of a core's instructions, without wait states.

    `load`: a single load; `paired_load` and `paired_store` (register offset): directly after a load that they do not depend on;
    `taken`: in addition to 1 for a taken branch; `wide_target`: in addition if the branch target is a 32-bit instruction across a
    word boundary; LDM, STM and LDRD take `transfer_start` cycles and move `transfer` words per cycle; `load_use`: if the next
    instruction reads the loaded value; `pairing`: which neighbours issue together: "" none, "narrow" 16-bit ones, "any" most.
    `timed_as`: a core with the same instructions whose timings replace unpublished ones.

    Cortex-M0, -M0+, -M3 and -M4: Arm's Technical Reference Manuals.  Cortex-M7, -M33 and -M55 have no published tables; their
    rows are approximations from published measurements and descriptions (docs/cycles.md names the sources).
    """

    load: int = 2
    paired_load: int = 1
    store_register: int = 2
    paired_store: int = 1
    store: int = 1
    taken: int = 1
    wide_target: int = 1
    call: int = 2
    divide: int = 6
    multiply_add: int = 1
    long_multiply: int = 1
    long_accumulate: int = 1
    transfer: int = 1
    transfer_start: int = 1
    load_use: int = 0
    pairing: str = ""
    timed_as: str = ""


@dataclass(frozen=True, slots=True)
class Core:
    """A processor core.

    `features`: "v6m" (only the Thumb instructions of Armv6-M), "dsp" (SMLAD and friends), "mve" (Helium), "mull" (32x32->64
    multiply), "thumb2" (the full instruction set of Armv7-M), "fpu" (float32 in hardware), "vfp" (an Arm FPU, and "dsp"),
    "unaligned" (word access at any address), "div" (a divide instruction); "ftz" is a permission to flush numbers below 2^-126
    to zero, as vectors of float32 do (--fast-float).
    `gcc_flags` select the core, or its architecture if GCC 12 does not know the core.
    `description` starts with the architecture.  `timing`: None if cycles cannot be estimated.  `caches`: parts may have caches.
    """

    name: str
    features: frozenset[str]
    gcc_flags: tuple[str, ...]
    description: str
    timing: Timing | None = None
    caches: bool = False

    @property
    def architecture(self) -> str:
        """The architecture, such as `Armv7E-M`."""
        return self.description.partition(",")[0]

    @property
    def has_trace(self) -> bool:
        """Whether the core has a cycle counter (DWT) and an instrumentation trace (ITM)."""
        return "thumb2" in self.features


def _core(name: str, features: str, flags: str, description: str, timing: Timing | None = None, *, caches: bool = False) -> Core:
    return Core(name, frozenset(features.split()), tuple(flags.split()), description, timing, caches)


_V7M = "mull thumb2 unaligned div"
_DSP = f"{_V7M} dsp fpu vfp"
_MVE = f"{_DSP} mve"
_M0 = Timing(paired_load=2, store=2, paired_store=2, wide_target=0, taken=2, call=3, divide=1)
_M7 = Timing(load=1, store_register=1, taken=0, wide_target=0, call=1, transfer=2, transfer_start=0, load_use=1, pairing="any")
_M33 = Timing(load=1, store_register=1, transfer_start=0, load_use=1, pairing="narrow")
_M55 = replace(_M33, transfer=2)

CORES: dict[str, Core] = {
    c.name: c
    for c in (
        _core("cortex-m0", "v6m", "-mcpu=cortex-m0 -mthumb -mfloat-abi=soft", "Armv6-M", _M0),
        _core("cortex-m0plus", "v6m", "-mcpu=cortex-m0plus -mthumb -mfloat-abi=soft", "Armv6-M", replace(_M0, taken=1, call=2)),
        _core("cortex-m3", _V7M, "-mcpu=cortex-m3 -mthumb -mfloat-abi=soft", "Armv7-M",
              Timing(multiply_add=2, long_multiply=4, long_accumulate=5)),
        _core("cortex-m4", _DSP, "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
              "Armv7E-M, DSP, single-precision FPU", Timing()),
        _core("cortex-m7", _DSP, "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16",
              "Armv7E-M, DSP, double-precision FPU", _M7, caches=True),
        _core("cortex-m33", _DSP, "-mcpu=cortex-m33 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16",
              "Armv8-M Mainline, DSP, single-precision FPU", _M33),
        _core("cortex-m55", _MVE, "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard", "Armv8.1-M, Helium (MVE)", _M55, caches=True),
        _core("cortex-m85", _MVE, "-march=armv8.1-m.main+dsp+mve.fp+fp.dp -mthumb -mfloat-abi=hard",
              "Armv8.1-M, Helium (MVE), double-precision FPU", replace(_M55, timed_as="cortex-m55"), caches=True),
        _core("host", "mull unaligned div fpu", "", "this machine"),
    )
}  # fmt: skip
"""Name -> Core, in the order of `aot targets`."""


def register_core(core: Core) -> Core:
    """Register a core for `--target`; UsageError E5102 if the name is in use, E5112 if it is not a Core."""
    if not isinstance(core, Core) or not core.name or "+" in core.name or " " in core.name:
        raise UsageError(Problem("E5112", f"register_core needs a Core whose name is one word, not {core!r}", call_place()))
    if core.name in CORES:
        raise UsageError(Problem("E5102", f"the core {core.name} is registered twice", call_place()))
    CORES[core.name] = core
    return core


_OTHER_ARCHITECTURES = {
    "cortex-m1": "Armv6-M", "cortex-m23": "Armv8-M Baseline", "cortex-m35p": "Armv8-M Mainline", "cortex-m52": "Armv8.1-M",
}  # fmt: skip
"""Cores without a row that compilers know: a board with one of these builds for a core in the table."""


def architecture_of(mcpu: str) -> str:
    """The architecture of a value of -mcpu, with or without modifiers; "" if it is unknown."""
    name = mcpu.partition("+")[0]
    return CORES[name].architecture if name in CORES else _OTHER_ARCHITECTURES.get(name, "")


_WITHOUT = {"fpu": "fpu vfp mve", "dsp": "dsp vfp mve", "mve": "mve"}
"""Feature that can be removed from a core -> all features that are removed with it."""


def find_core(name: str) -> Core:
    """The core with this name (E5010 if it is unknown).

    `cortex-m33+nodsp+nofpu` is a core without features that the part lacks or the build does not enable: fpu, dsp, mve.
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
"""Feature -> architecture extensions that are removed with it."""


def _narrower(flag: str, feature: str) -> str:
    """-march=... without the extensions of a feature; other flags unchanged."""
    if not flag.startswith("-march="):
        return flag
    base, *extensions = flag.split("+")
    return "+".join([base, *(e for e in extensions if e not in _EXTENSIONS[feature])])
