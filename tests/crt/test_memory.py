"""memcpy, memset and memmove of the runtime, over all alignments, lengths and overlaps: on the host and on every core."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.micro.board import emulated_names, load_board
from aot.micro.build import project as project_module
from aot.micro.build.project import prepare
from aot.micro.build.toolchain import have_tool
from aot.micro.run.runner import run
from tests.micro import fake

CHECK = """\
#include <string.h>
int32_t tiny_check(void);
static uint8_t a[160], b[160];
static uint8_t rule(uint32_t i) { return (uint8_t)(i * 37u + 11u); }
static void fill(void) {
  for (uint32_t i = 0; i < sizeof a; i++) { a[i] = rule(i); b[i] = (uint8_t)~rule(i); }
}
int32_t tiny_check(void) {
  void *(*volatile copy)(void *, const void *, size_t) = memcpy;
  void *(*volatile move)(void *, const void *, size_t) = memmove;
  void *(*volatile set)(void *, int, size_t) = memset;
  for (uint32_t to = 0; to < 5u; to++) {
    for (uint32_t from = 0; from < 5u; from++) {
      for (uint32_t n = 0; n < 70u; n++) {
        fill();
        if (copy(b + 20 + to, a + 20 + from, n) != b + 20 + to) return -100;
        for (uint32_t i = 0; i < sizeof b; i++) {
          const uint32_t k = i - 20u - to;
          if (b[i] != (k < n ? rule(20u + from + k) : (uint8_t)~rule(i))) return -101;
        }
        const uint32_t at = 20u + from * 5u;
        fill();
        if (move(a + 30 + to, a + at, n) != a + 30 + to) return -102;
        for (uint32_t i = 0; i < sizeof a; i++) {
          const uint32_t k = i - 30u - to;
          if (a[i] != (k < n ? rule(at + k) : rule(i))) return -103;
        }
      }
    }
    for (uint32_t n = 0; n < 70u; n++) {
      fill();
      if (set(a + 20 + to, (int)(n + 0x3c0u), n) != a + 20 + to) return -104;
      for (uint32_t i = 0; i < sizeof a; i++) {
        if (a[i] != (i - 20u - to < n ? (uint8_t)(n + 0xc0u) : rule(i))) return -105;
      }
    }
  }
  return 0;
}
"""


def _artifact():
    return fake.tiny(status="tiny_check()", extra_kernel=CHECK, kernel_prototypes="int32_t tiny_check(void);")


@pytest.mark.skipif(not have_tool("gcc"), reason="gcc is not installed")
def test_on_the_host_with_sanitizers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The portable paths: memory.c under other names, so that the C library's own are not what is tested."""
    monkeypatch.setattr(project_module, "BOARD_ONLY", project_module.BOARD_ONLY - {"memory.c"})
    renames = [f"-D{name}=aot_test_{name}" for name in ("memcpy", "memmove", "memset")]
    project = prepare(_artifact(), load_board("host"), folder=tmp_path, sanitize=True, extra_flags=renames)
    assert "crt/src/memory.c" in project.files
    assert len(run(project, fake.input_sets(1)).outputs) == 1


@pytest.mark.qemu
@pytest.mark.skipif(
    not (have_tool("arm-none-eabi-gcc") and have_tool("qemu-system-arm")), reason="the cross compiler or QEMU is not installed"
)
@pytest.mark.parametrize("board", emulated_names())
def test_on_every_core(board: str, tmp_path: Path) -> None:
    project = prepare(_artifact(), load_board(board), folder=tmp_path)
    assert len(run(project, fake.input_sets(1)).outputs) == 1
