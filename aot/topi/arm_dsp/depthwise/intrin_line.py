"""Outputs of one channel along one line, by MLA, for cores with Thumb-2 but without DSP instructions.

The data stay where they are: while a tap's weight is in a register, as many bytes are too as there are outputs, of which the next
tap needs all but the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from aot.support.dataclass import dataclass
from aot.tir.builder import IRBuilder
from aot.tir.expr import cast
from aot.tir.intrin import BlockText, COperand, TensorIntrin
from aot.topi.intrin.asm_text import AsmBlock

MAX_OUTPUTS = 5
"""Sums and bytes in registers, beside a weight and two pointers."""
MAX_OFFSET, MAX_STEP = 4095, 255
"""Of LDRSB, and when it moves its pointer on."""


@dataclass(frozen=True, slots=True)
class Line:
    """`taps` weights, `outputs` results, `step` bytes between neighbours of the data."""

    taps: int
    outputs: int
    step: int

    @property
    def bytes_read(self) -> int:
        return self.taps + self.outputs - 1

    @property
    def far(self) -> bool:
        """Whether offsets do not reach the last byte, so that the pointer moves along."""
        return (self.bytes_read - 1) * self.step > MAX_OFFSET

    @property
    def instructions(self) -> int:
        """Of `mla_line`."""
        moves = self.bytes_read if self.far and self.step > MAX_STEP else 0
        return self.taps * (1 + self.outputs) + self.bytes_read + moves


@cache
def mla_line(line: Line) -> TensorIntrin:
    """acc[i] += sum over k < taps of w[k] * x[(i + k) * step], i < outputs; acc int32 in registers, w int32, x int8."""
    b = IRBuilder(f"mla_line_{line.taps}_{line.outputs}_{line.step}")
    w = b.input("w", (line.taps,), "int32", align=4)
    x = b.input("x", ((line.bytes_read - 1) * line.step + 1,), "int8")
    acc = b.output("acc", (line.outputs,), "int32")
    with b.for_("k", line.taps) as k:
        for i in range(line.outputs):
            b.store(acc, i, acc[i] + w[k] * cast("int32", x[(k + i) * line.step]))
    desc = b.finish()
    return TensorIntrin(f"arm_dsp.{desc.name}", desc, lambda ops: _emit(ops, line), requires="thumb2")


def _load(line: Line, n: int) -> list[str]:
    """Byte n, into the register that it has to itself until byte n + outputs comes."""
    register = f"%[x{n % line.outputs}]"
    if not line.far:
        return [f"ldrsb {register}, [%[xp], #{n * line.step}]"]
    if line.step <= MAX_STEP:
        return [f"ldrsb {register}, [%[xp]], #{line.step}"]
    return [f"ldrsb {register}, [%[xp]]", "add %[xp], %[step]"]


def _emit(operands: Mapping[str, COperand], line: Line) -> BlockText:
    text: list[str] = []
    for n in range(line.outputs - 1):
        text += _load(line, n)
    for k in range(line.taps):
        text += [*_load(line, k + line.outputs - 1), f"ldr %[v], [%[w], #{4 * k}]"]
        text += [f"mla %[a{i}], %[x{(k + i) % line.outputs}], %[v], %[a{i}]" for i in range(line.outputs)]
    bytes_ = [f"x{i}" for i in range(line.outputs)]
    step = line.far and line.step > MAX_STEP
    return AsmBlock(
        [
            f"const void *aot_xp = {operands['x'].pointer};",
            f"const void *const aot_w = {operands['w'].pointer};",
            f"uint32_t {', '.join(f'aot_{n}' for n in (*bytes_, 'v'))};",
        ],
        text,
        outs=[
            *(f'[a{i}] "+r"({s})' for i, s in enumerate(operands["acc"].scalars)),
            '[xp] "+r"(aot_xp)',
            *(f'[{n}] "=&r"(aot_{n})' for n in (*bytes_, "v")),
        ],
        ins=['[w] "r"(aot_w)', *([f'[step] "r"({line.step})'] if step else [])],
    ).emit()
