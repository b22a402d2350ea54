"""Making, building and running generated projects in tests."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aot.cli.__main__ import run

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
TWO_IO = ROOT / "tests" / "models" / "graph_two_inputs_two_outputs.tflite"


def need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


def need_arm_cxx() -> None:
    """Headers of C++ for Arm, which Debian has apart from the compiler (libstdc++-arm-none-eabi-newlib)."""
    need("arm-none-eabi-g++")
    command = ["arm-none-eabi-g++", "-x", "c++", "-fsyntax-only", "-"]
    if subprocess.run(command, input="#include <cstdint>\n", capture_output=True, text=True, check=False).returncode:
        pytest.skip("the C++ headers for Arm are not installed (libstdc++-arm-none-eabi-newlib)")


def new(folder: Path, *arguments: object, code: int = 0) -> None:
    """Run `aot new folder ...` in this process."""
    assert run(["new", str(folder), *map(str, arguments), "-q"]) == code


def sh(command: str, *, cwd: Path) -> str:
    """Run a command as a reader of a README would; its output."""
    done = subprocess.run(["sh", "-euc", command], cwd=cwd, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def snapshot(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


_ARDUINO = """\
#pragma once
#include <cstdint>
#include "OUTPUT.h"
struct Port {
  void begin(long) {}
  explicit operator bool() const { return true; }
  void print(const char *text) { put_text(text); }
  void print(unsigned long value) {
    char text[21], *digit = text + 20;
    *digit = 0;
    do {
      *--digit = (char)('0' + value % 10);
    } while ((value /= 10) != 0);
    put_text(digit);
  }
  void println(const char *text) {
    put_text(text);
    put_text("\\n");
  }
};
static Port Serial;
static inline unsigned long micros() { return 0; }
static inline void delay(int) { finish(); }
"""
_OUTPUTS = {
    "host": ("cstdio>\n#include <cstdlib", "std::fputs(text, stdout)", "std::exit(0)"),
    "semihosting": ('cstddef>\nextern "C" void aot_puts(const char *text);\n#include <cstdint', "aot_puts(text)", ""),
}


def arduino_header(output: str) -> str:
    """A stand-in for Arduino.h; its serial port is the program's output, on the "host" or by "semihosting".

    delay(), which ends every loop() of ours, ends the program on the host.
    """
    include, put, end = _OUTPUTS[output]
    helpers = f"#include <{include}>\nstatic inline void put_text(const char *text) {{ {put}; }}\n"
    return _ARDUINO.replace('#include "OUTPUT.h"\n', f"{helpers}static inline void finish() {{ {end}; }}\n")
