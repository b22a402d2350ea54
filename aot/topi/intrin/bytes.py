"""Intrinsics on the four bytes of a word, for every core: `aot/bytes.h` has the DSP instructions and portable C."""

from __future__ import annotations

from collections.abc import Callable

from aot.tir.arith import wrap
from aot.tir.intrin import Intrin


def _bytewise(name: str, dtype: str, choose: Callable[[int, int], int]) -> Intrin:
    def meaning(a: int, b: int) -> int:
        pairs = [(wrap(a >> (8 * k), dtype), wrap(b >> (8 * k), dtype)) for k in range(4)]
        return sum((choose(x, y) & 0xFF) << (8 * k) for k, (x, y) in enumerate(pairs))

    return Intrin(name, ("uint32", "uint32"), "uint32", f"aot_{name}({{0}}, {{1}})", meaning, header="aot/bytes.h")


SMAX8 = _bytewise("smax8", "int8", max)
SMIN8 = _bytewise("smin8", "int8", min)
UMAX8 = _bytewise("umax8", "uint8", max)
UMIN8 = _bytewise("umin8", "uint8", min)

LARGER = {"int8": SMAX8, "uint8": UMAX8}
SMALLER = {"int8": SMIN8, "uint8": UMIN8}


def splat(value: int) -> int:
    """The word of four such bytes."""
    return (value & 0xFF) * 0x01010101
