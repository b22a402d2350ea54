"""Functions of 16-bit numbers from a table of half of them: a base for each run of arguments and a byte for each argument.

f(-x) = mirror - f(x), as sigmoid and tanh have it in either arithmetic, so the table is of sizes of arguments alone.  gemmlowp's
functions are off by several steps here and there, so that no shorter table has them exactly; within a run the values differ by
less than 256.  About 33 KiB for sigmoid, 36 KiB for tanh, and 8 instructions a value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import numpy as np

from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast, imm, select
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock

SIZES = 32769
"""Of arguments, 0 and 32768 too."""

_MOST_SHIFT = 8
_SIGNS = {
    0: ["eor r9, r9, {v}, asr #31", "add {v}, r9, {v}, lsr #31"],
    32767: ["eor r9, r9, {v}, asr #31", "ubfx {v}, r9, #0, #15"],
    32768: ["eor r9, r9, {v}, asr #31", "add {v}, r9, {v}, lsr #31", "ubfx {v}, {v}, #0, #15"],
}
"""From the value of the argument's size in r9 to that of the argument in {v}, by the mirror; other ones have no code."""


@dataclass(frozen=True, slots=True)
class HalfTable:
    """f(x) = base[x >> shift] + rest[x] for 0 <= x <= 32768, f(-x) = mirror - f(x)."""

    base: Array
    rest: Array
    shift: int
    mirror: int

    @property
    def instructions(self) -> int:
        """Of one value."""
        return 6 + len(_SIGNS[self.mirror])


def half_table(function: Callable[[Array], Array]) -> HalfTable | None:
    """The table of a function of int16 arrays, with as few bases as there can be; None if it has no such form."""
    x = np.arange(-32768, 32768)
    values = function(x.astype(np.int16)).astype(np.int64)
    above, below = values[32769:], values[32767:0:-1]
    mirror = int(above[0] + below[0])
    if mirror not in _SIGNS or (above + below != mirror).any():
        return None
    sizes = np.append(values[32768:], mirror - values[0])
    for shift in range(_MOST_SHIFT, -1, -1):
        runs = np.pad(sizes, (0, -SIZES % (1 << shift)), mode="edge").reshape(-1, 1 << shift)
        base = runs.min(axis=1)
        rest = (runs - base[:, None]).reshape(-1)[:SIZES]
        if rest.max() < 256 and base.max() < 1 << 15:
            return HalfTable(base.astype(np.int16), rest.astype(np.uint8), shift, mirror)
    return None


@cache
def look_up(count: int, shift: int, mirror: int) -> TensorIntrin:
    """values[i] = f(values[i]); operands: base and rest of a HalfTable, values int32[count] within int16."""
    b = IRBuilder(f"look_up_{count}_s{shift}_m{mirror}")
    base, rest = b.input("base", (UNKNOWN_EXTENT,), "int16"), b.input("rest", (UNKNOWN_EXTENT,), "uint8")
    values = b.output("values", (count,), "int32")
    for i in range(count):
        x = b.let("x", values[i])
        size = b.let("size", select(x < 0, imm(0) - x, x))
        value = b.let("value", cast("int32", base[size >> shift]) + cast("int32", rest[size]))
        b.store(values, i, select(x < 0, imm(mirror) - value, value))
    name = f"arm_dsp.look_up_{count}_s{shift}_m{mirror}"
    return TensorIntrin(name, b.finish(), lambda ops: _emit(ops, shift, mirror), requires="thumb2")


def _emit(operands: Mapping[str, COperand], shift: int, mirror: int) -> BlockText:
    lines = []
    for i in range(len(operands["values"].scalars)):
        v = f"%[v{i}]"
        lines += [f"eor r8, {v}, {v}, asr #31", f"add r8, r8, {v}, lsr #31", "ldrb r9, [%[rest], r8]", f"lsr r8, r8, #{shift}"]
        lines += ["ldrsh r8, [%[base], r8, lsl #1]", "add r9, r9, r8", *(line.format(v=v) for line in _SIGNS[mirror])]
    return AsmBlock(
        [
            f"const void *const aot_base = {operands['base'].pointer};",
            f"const void *const aot_rest = {operands['rest'].pointer};",
        ],
        lines,
        outs=[f'[v{i}] "+&r"({value})' for i, value in enumerate(operands["values"].scalars)],
        ins=['[base] "r"(aot_base)', '[rest] "r"(aot_rest)'],
        clobbers=["r8", "r9"],
    ).emit()
