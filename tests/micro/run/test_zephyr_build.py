"""What a failed Zephyr build says, and the check that a board has room, on what Zephyr 3.4.99 printed and generated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aot.errors import TargetError, ToolchainError
from aot.micro.run.zephyr import STACK, build_step, check_room, telling_lines

DTS = """
/dts-v1/;
/ {
  chosen { zephyr,flash = &flash0; zephyr,sram = &sram0; };
  sram0: memory@20000000 { compatible = "mmio-sram"; reg = < 0x20000000 0x8000 >; };
  flash0: flash@0 { reg = < 0x0 0x4000 >; };
};
"""
COMPILE = """\
[1/150] Preparing syscall dependency handling
[17/150] Building C object zephyr/CMakeFiles/zephyr.dir/lib/libc/minimal/source/string/strerror_table.h.obj
[101/150] Building C object CMakeFiles/app.dir/kws.c.obj
FAILED: CMakeFiles/app.dir/kws.c.obj
ccache /usr/bin/arm-none-eabi-gcc -DKERNEL -Wno-error=x -c /tmp/a/kws.c -o CMakeFiles/app.dir/kws.c.obj
/tmp/a/kws.c: In function 'kws_run':
/tmp/a/kws.c:12:3: error: expected ';' before 'return'
   12 |   return 0;
      |   ^~~~~~
[102/150] Building C object zephyr/CMakeFiles/zephyr.dir/misc/generated/configs.c.obj
ninja: build stopped: subcommand failed.
"""
OVERFLOW = """\
[141/147] Linking C executable zephyr/zephyr_pre0.elf
FAILED: zephyr/zephyr_pre0.elf zephyr/zephyr_pre0.map
: && ccache /usr/bin/arm-none-eabi-gcc -gdwarf-4 zephyr/CMakeFiles/zephyr_pre0.dir/empty_file.c.obj -o zephyr/zephyr_pre0.elf && :
/usr/lib/gcc/arm-none-eabi/12.2.1/arm-none-eabi/bin/ld: zephyr/zephyr_pre0.elf section `text' will not fit in region `FLASH'
/usr/lib/gcc/arm-none-eabi/12.2.1/arm-none-eabi/bin/ld: region `FLASH' overflowed by 27670 bytes
collect2: error: ld returned 1 exit status
"""
NO_BOARD = """\
Loading Zephyr default modules (Zephyr base).
-- Application: /tmp/a
No board named 'desk' found.

Please choose one of the following boards:

arm:
  96b_aerocore2
  96b_argonkey
CMake Error at /z/cmake/modules/boards.cmake:190 (message):
  Invalid BOARD; see above.
Call Stack (most recent call first):
  /z/cmake/modules/zephyr_default.cmake:129 (include)
"""


def meta(workspace: int, constants: int, state: int = 0) -> dict[str, Any]:
    return {"workspace": {"size": workspace}, "constants": {"size": constants}, "state": {"size": state} if state else {}}


def test_lines_of_a_compiler() -> None:
    lines = telling_lines(COMPILE)
    assert lines[0] == "/tmp/a/kws.c:12:3: error: expected ';' before 'return'"
    assert lines[1:] == ["   12 |   return 0;", "      |   ^~~~~~"]


def test_lines_of_an_unknown_board() -> None:
    lines = telling_lines(NO_BOARD)
    assert lines[0] == "No board named 'desk' found."
    assert lines[1] == "CMake Error at /z/cmake/modules/boards.cmake:190 (message):"
    assert lines[2] == "  Invalid BOARD; see above."
    assert not any("argonkey" in line for line in lines)


def test_lines_where_none_tells() -> None:
    assert telling_lines("[1/2] a error.c\nninja: x\n" + "\n".join(map(str, range(20)))) == [str(n) for n in range(8, 20)]
    assert telling_lines("") == []


def program(folder: Path, text: str) -> list[str]:
    (folder / "text").write_text(text)
    return ["sh", "-c", f"cat {folder / 'text'}; exit 1"]


def test_what_the_linker_says_is_a_matter_of_the_board(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="E2012 region FLASH of the board overflows by 27,670 bytes"):
        build_step(program(tmp_path, OVERFLOW), tmp_path)
    with pytest.raises(ToolchainError, match=r"E3021 sh failed:\s+No board named 'desk' found"):
        build_step(program(tmp_path, NO_BOARD), tmp_path)
    build_step(["true"], tmp_path)


def test_room_by_the_devicetree(tmp_path: Path) -> None:
    (tmp_path / "zephyr").mkdir()
    (tmp_path / "zephyr" / "zephyr.dts").write_text(DTS)
    check_room("zephyr:b", tmp_path, meta(0x8000 - STACK, 0x4000))
    with pytest.raises(TargetError) as error:
        check_room("zephyr:b", tmp_path, meta(0x8000 - STACK, 0x4000, 1), data=1)
    assert [p.code for p in error.value.problems] == ["E2010", "E2011"]
    assert "zephyr:b has 32,768 bytes of RAM (zephyr,sram); the model needs more: workspace 16,384, state 1" in str(error.value)
    part = "zephyr,code-partition = &slot0; slot0: p@0 { reg = < 0x1000 0x3000 >; }; };"
    (tmp_path / "zephyr" / "zephyr.dts").write_text(DTS.replace("};", part, 1))
    with pytest.raises(TargetError, match="E2011 zephyr:b has 12,288 bytes of flash"):
        check_room("zephyr:b", tmp_path, meta(1, 0x3001))


@pytest.mark.parametrize("dts", [None, "/ { broken", "/ { chosen { }; };"])
def test_room_by_the_configuration(tmp_path: Path, dts: str | None) -> None:
    (tmp_path / "zephyr").mkdir()
    if dts is not None:
        (tmp_path / "zephyr" / "zephyr.dts").write_text(dts)
    check_room("zephyr:b", tmp_path, meta(1 << 30, 1 << 30))
    (tmp_path / "zephyr" / ".config").write_text("CONFIG_FLASH_SIZE=0\nCONFIG_SRAM_SIZE=64\n")
    check_room("zephyr:b", tmp_path, meta(65536 - STACK, 1 << 30))
    with pytest.raises(TargetError, match="E2010"):
        check_room("zephyr:b", tmp_path, meta(65537 - STACK, 1))
