"""Whether a build's flags keep core registers from the compiler that blocks of inline assembly need.

-ffixed-r9 takes one away, and no predefined macro says so, unlike of position-independent code: the kernels are to be told by
-DAOT_REGISTERS=0 (aot/kernel.h), with which all blocks are compiled in their C form.  Whether a build needs that is tried, as a
flag may also come from a file of specs or from an option that this compiler alone has.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from aot.micro.build.toolchain import Tool, run_tool

NO_BLOCKS = "-DAOT_REGISTERS=0"
_PLAIN = re.compile(r"-(?:mcpu=|march=|mthumb|mfloat-abi=|mfpu=|[OgDUWI])")
"""Flags that take no register from anybody."""
_PROBE = """
void probe(void);
__attribute__((optimize("omit-frame-pointer"))) void probe(void) {
  unsigned a, b, c, d, e, f, g, h, i, j, k, l, m;
#ifdef __thumb2__
  unsigned n;
#define LAST , "=&h"(n)
#else
#define LAST
#endif
  __asm volatile("" : "=&l"(a), "=&l"(b), "=&l"(c), "=&l"(d), "=&l"(e), "=&l"(f), "=&l"(g), "=&l"(h),
                 "=&h"(i), "=&h"(j), "=&h"(k), "=&h"(l), "=&h"(m) LAST);
}
"""
"""All that a block can get where GCC optimises: r0 to r12 and lr, but that one on Armv6-M."""


def register_flags(tool: Tool, flags: Sequence[str]) -> list[str]:
    """What a compilation of kernels needs beside `flags`: NO_BLOCKS where these keep a register from GCC, else nothing.

    A flag that GCC does not know gives nothing: the compilation says so itself.
    """
    if any(f.startswith("-DAOT_REGISTERS=") for f in flags) or all(map(_PLAIN.match, flags)):
        return []
    return [NO_BLOCKS] if _lacks_registers(tool.path, tuple(flags)) else []


def named_register_flags(flags: Sequence[str]) -> list[str]:
    """The same by what the flags are called, for files that are written where no compiler need be."""
    given = any(f.startswith("-DAOT_REGISTERS=") for f in flags)
    return [NO_BLOCKS] if not given and any(f.startswith("-ffixed-") for f in flags) else []


@lru_cache(maxsize=64)
def _lacks_registers(path: str, flags: tuple[str, ...]) -> bool:
    with tempfile.TemporaryDirectory(prefix="aot-registers-") as name:
        (Path(name) / "probe.c").write_text(_PROBE, encoding="utf-8")
        # the levels of the user's flags have registers of their own, which kernel.h knows of
        command = [path, *flags, "-O2", "-fomit-frame-pointer", "-w", "-c", "probe.c", "-o", "probe.o"]
        done = run_tool(command, Path(name))
        return done.code != 0 and "impossible constraints" in done.err
