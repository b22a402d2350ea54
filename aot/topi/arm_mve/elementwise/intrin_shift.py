"""Bytes plus a number, sixteen at a time: QUANTIZE between codes of one scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.tir.buffer import UNKNOWN_EXTENT
from aot.tir.builder import IRBuilder
from aot.tir.expr import Var, cast, clamp
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock

_HALF = 128


@dataclass(frozen=True, slots=True)
class Shift:
    """out = saturated(x + delta); dtypes int8 or uint8."""

    dtype: str
    out_dtype: str
    delta: int

    @property
    def rest(self) -> int:
        """What is added after a change of the type, which is 128 modulo 256."""
        return self.delta - int_range(self.out_dtype)[0] + int_range(self.dtype)[0]

    @property
    def fits(self) -> bool:
        """Whether saturating instructions of the result's type take `rest`."""
        low, high = int_range(self.out_dtype)
        return low <= self.rest <= high if low else abs(self.rest) <= high

    @property
    def steps(self) -> list[str]:
        """What becomes of q0."""
        lines = ["vadd.i8 q0, q0, %[half]"] if self.dtype != self.out_dtype else []
        if not self.rest:
            return lines
        if self.out_dtype == "int8":
            return [*lines, "vqadd.s8 q0, q0, %[by]"]
        return [*lines, f"{'vqadd' if self.rest > 0 else 'vqsub'}.u8 q0, q0, %[by]"]


@cache
def shift(numbers: Shift) -> TensorIntrin:
    """out[i] = clamp(x[i] + delta) to the result's type, of `count` elements.

    Operands: x, out (x too, or apart from it), count.  Four or five instructions for sixteen.
    """
    count = Var("count")
    b = IRBuilder(f"shift_{numbers.dtype}_{numbers.out_dtype}")
    x = b.input("x", (UNKNOWN_EXTENT,), numbers.dtype)
    out = b.output("out", (UNKNOWN_EXTENT,), numbers.out_dtype)
    with b.for_("i", count) as i:
        b.store(out, i, cast(numbers.out_dtype, clamp(cast("int32", x[i]) + numbers.delta, *int_range(numbers.out_dtype))))
    # sixteen bytes are read before the sixteen are written that belong to them
    desc = replace(b.finish(), scalars=(count,))
    return TensorIntrin(
        f"arm_mve.{desc.name}_{numbers.delta}", desc, lambda ops: _emit(ops, numbers), requires="mve", ordered=True
    )


def _emit(operands: Mapping[str, COperand], numbers: Shift) -> BlockText:
    steps = numbers.steps
    values = {"half": _HALF, "by": numbers.rest if numbers.out_dtype == "int8" else abs(numbers.rest)}
    text = ["wlstp.8 lr, %[n], 2f", "1:", "vldrb.u8 q0, [%[x]], #16", *steps, "vstrb.8 q0, [%[out]], #16", "letp lr, 1b", "2:"]
    used = [f'[{name}] "r"({value})' for name, value in values.items() if any(f"%[{name}]" in line for line in steps)]
    return AsmBlock(
        [f"const void *aot_x = {operands['x'].pointer};", f"void *aot_out = {operands['out'].pointer};"],
        text,
        outs=['[x] "+&r"(aot_x)', '[out] "+&r"(aot_out)'],
        ins=[f'[n] "r"({operands["count"].value})', *used],
        clobbers=["lr", "q0"],
    ).emit()


def shift_instructions(numbers: Shift, count: int) -> int:
    return (3 + len(numbers.steps)) * -(-count // 16) + 8
