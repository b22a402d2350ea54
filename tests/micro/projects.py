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
