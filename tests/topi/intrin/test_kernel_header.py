"""kernel.h: clean under the project's warnings with every compiler, and typed access to any memory."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from aot.micro.build.project import WARNINGS
from aot.system.files import data_folder

TYPES = {"I8": "int8_t", "U8": "uint8_t", "I16": "int16_t", "U16": "uint16_t", "I32": "int32_t", "U32": "uint32_t",
         "I64": "int64_t", "U64": "uint64_t", "F16": "uint16_t", "F32": "float", "F64": "double"}  # fmt: skip

COMPILERS = {
    "gcc": "gcc",
    "clang": "clang",
    "m0": "arm-none-eabi-gcc -mcpu=cortex-m0 -mthumb",
    "m3": "arm-none-eabi-gcc -mcpu=cortex-m3 -mthumb",
    "m4": "arm-none-eabi-gcc -mcpu=cortex-m4 -mthumb",
    "m55": "arm-none-eabi-gcc -mcpu=cortex-m55 -mthumb",
}

ROUND_TRIP = """\
static int32_t check_%(name)s(void *memory, %(type)s value) {
  uint8_t *bytes = memory;
  memset(bytes, 0x5a, 64);
  AOT_ST_%(name)s(bytes, 2, value);
  return AOT_LD_%(name)s(bytes, 2) == value && bytes[2 * sizeof value - 1] == 0x5a && bytes[3 * sizeof value] == 0x5a ? 0 : 1;
}
"""


def source() -> str:
    checks = "".join(ROUND_TRIP % {"name": n, "type": t} for n, t in TYPES.items())
    calls = " + ".join(f"check_{n}(at, ({t})-3)" for n, t in TYPES.items())
    return f"""\
#include "aot/kernel.h"

#include <string.h>
{checks}
static uint32_t memory[20];
int main(void) {{
  /* one word in: 64-bit accesses need alignment to 4 bytes only */
  void *at = &memory[((uintptr_t)memory & 4u) == 0u ? 1 : 0];
  int32_t bad = {calls};
  bad += aot_min_f32(1.0f, 2.0f) < 2.0f ? 0 : 1;
  bad += aot_max_i64(INT64_MIN, -1) == -1 && aot_min_u32(0xffffffffu, 1u) == 1u ? 0 : 1;
  return (int)bad;
}}
"""


def build(tmp_path: Path, compiler: str, *flags: str) -> Path:
    command = COMPILERS[compiler].split()
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    (tmp_path / "check.c").write_text(source(), encoding="utf-8")
    include = data_folder("crt") / "include"
    warnings = [w for w in WARNINGS if not (compiler == "clang" and w == "-Wcast-align=strict")]
    args = [*command, "-std=c99", "-pedantic", *warnings, f"-I{include}", "check.c", "-o", "check", *flags]
    done = subprocess.run(args, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return tmp_path / "check"


@pytest.mark.parametrize("compiler", sorted(COMPILERS))
@pytest.mark.parametrize("level", ["-O0", "-O2"])
def test_header_is_free_of_warnings(tmp_path: Path, compiler: str, level: str) -> None:
    build(tmp_path, compiler, "-c", level)


def test_typed_access(tmp_path: Path) -> None:
    program = build(tmp_path, "gcc", "-O2", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    assert subprocess.run([program], check=False).returncode == 0


def test_no_helper_macro_escapes() -> None:
    """What the header defines for itself it undefines; the rest carries its prefix."""
    text = (data_folder("crt") / "include" / "aot" / "kernel.h").read_text(encoding="utf-8")
    defined = set(re.findall(r"#define (\w+)", text))
    kept = defined - set(re.findall(r"#undef (\w+)", text))
    assert all(name.startswith("AOT_") for name in defined)
    short = {name for name in kept if len(name) <= len("AOT_ACC32")} - {"AOT_DSP", "AOT_FPU", "AOT_SAT", "AOT_ALIGN", "AOT_V6M"}
    short -= {"AOT_FP16"}
    assert not {n for n in short | kept if n.startswith("AOT_DEFINE_")}
    assert not {n for n in short if not n.startswith(("AOT_LD_", "AOT_ST_"))}
