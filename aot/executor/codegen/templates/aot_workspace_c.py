"""aot_workspace.c.j2 as Python; written by scripts/c_templates.py."""
# ruff: noqa
# fmt: off

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def render(v: Mapping[str, Any]) -> Iterator[str]:
    """The pieces of the file; `v` are the values that the template names."""
    yield from ('/* SPDX-License-Identifier: 0BSD */\n/* ', str(v['note']), ' */\n#include "aot_workspace.h"\n\n#include "aot/kernel.h"\n\nAOT_ALIGN(16) AOT_SECTION(".bss.aot_workspace") uint8_t aot_workspace[AOT_WORKSPACE_SIZE];\n\nstatic volatile uint8_t claimed;\n\nbool aot_workspace_claim(void) {\n#if __GCC_ATOMIC_CHAR_LOCK_FREE == 2\n  return !__atomic_test_and_set(&claimed, __ATOMIC_ACQUIRE);\n#else\n  /* a core without exclusive access (Cortex-M0): right for interrupts, which end before what they interrupted goes on, but not\n     for threads that take turns in here */\n  if (claimed != 0u) {\n    return false;\n  }\n  claimed = 1u;\n  return true;\n#endif\n}\n\nvoid aot_workspace_release(void) {\n#if __GCC_ATOMIC_CHAR_LOCK_FREE == 2\n  __atomic_clear(&claimed, __ATOMIC_RELEASE);\n#else\n  claimed = 0u;\n#endif\n}\n',)
