"""The known cores."""

from __future__ import annotations

from aot.target.target import Target


def _target(name: str, features: str, flags: str, description: str) -> Target:
    return Target(name, frozenset(features.split()), tuple(flags.split()), description)


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        _target("cortex-m0", "", "-mcpu=cortex-m0 -mthumb -mfloat-abi=soft", "Armv6-M"),
        _target("cortex-m0plus", "", "-mcpu=cortex-m0plus -mthumb -mfloat-abi=soft", "Armv6-M"),
        _target("cortex-m3", "mull thumb2 unaligned div", "-mcpu=cortex-m3 -mthumb -mfloat-abi=soft", "Armv7-M"),
        _target(
            "cortex-m4",
            "mull thumb2 unaligned div dsp fpu vfp",
            "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16",
            "Armv7E-M, DSP, single-precision FPU",
        ),
        _target(
            "cortex-m7",
            "mull thumb2 unaligned div dsp fpu vfp",
            "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-d16",
            "Armv7E-M, DSP, double-precision FPU",
        ),
        _target(
            "cortex-m33",
            "mull thumb2 unaligned div dsp fpu vfp",
            "-mcpu=cortex-m33 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16",
            "Armv8-M Mainline, DSP, single-precision FPU",
        ),
        _target(
            "cortex-m55",
            "mull thumb2 unaligned div dsp mve fpu vfp",
            "-mcpu=cortex-m55 -mthumb -mfloat-abi=hard",
            "Armv8.1-M, Helium (MVE)",
        ),
        _target("host", "mull unaligned div fpu", "", "this machine"),
    )
}
"""name -> Target, in the order in which they are listed."""
