"""The printer of asm statements: what a block takes of a build, and repetitions that the compiler can count."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from aot.micro.build.toolchain import find_tool, have_tool
from aot.system.files import data_folder
from aot.topi.intrin.asm_text import AsmBlock, count_instructions, counted, counted_offset


def test_what_a_block_takes() -> None:
    block = AsmBlock(
        ["int32_t aot_n = 3;"], ["1:", "subs %[n], %[n], #1", "bne 1b"],
        outs=['[n] "+r"(aot_n)', '[t] "=&r"(aot_t)', '"+r"(aot_x)'], ins=['[end] "m"(aot_end)', '[k] "r"(7)'],
        clobbers=("r4", "r12", "lr", "s15"),
    )  # fmt: skip
    assert (block.registers, block.fpu) == (7, True)
    emitted = block.emit()
    assert (emitted.registers, emitted.fpu) == (7, True)
    assert emitted.text.endswith('      : "r4", "r12", "lr", "s15", "cc", "memory");\n}')
    scaled = AsmBlock([], ["nop"], outs=[], ins=['[scale] "t"(aot_scale)'])
    assert (scaled.registers, scaled.fpu) == (0, True)


@pytest.mark.skipif(not have_tool("arm-none-eabi-gcc"), reason="needs arm gcc")
@pytest.mark.parametrize("count", [2, 32, 33, 48, 100])
def test_counted_lines(count: int, tmp_path: Path) -> None:
    """As many instructions as are counted, each with its own offset."""
    text = counted(count, [f"ldr r1, [r0, #{counted_offset(None, 8, 4)}]", "strb.w r1, [r2]"])
    assert count_instructions(text) == 2 * count
    block = AsmBlock([], text, outs=[], clobbers=("r1",)).emit().text
    source = f'#include "aot/kernel.h"\nvoid f(void);\nvoid f(void) {block}\n'
    (tmp_path / "f.c").write_text(source, encoding="utf-8")
    gcc = [find_tool("arm-none-eabi-gcc").path, "-O2", "-mcpu=cortex-m4", "-mthumb", f"-I{data_folder('crt') / 'include'}"]
    subprocess.run([*gcc, "-c", "f.c"], cwd=tmp_path, check=True)
    dump = [find_tool("arm-none-eabi-objdump").path, "-d", "f.o"]
    listing = subprocess.run(dump, cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    found = [line.partition("[r0, #")[2].partition("]")[0] for line in listing.splitlines() if "ldr" in line]
    assert found == [str(8 * i + 4) for i in range(count)]
