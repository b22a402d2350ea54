"""Models that broke something once: each ends in a result or in codes, in little memory, and soon."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.regression.untrusted.test_sizes_in_models import counter

FAULTS = Path(__file__).resolve().parents[4] / "shared" / "notes" / "faults"
MEMORY = 1 << 30
"""Bytes that a process may ever have in memory."""
ADDRESSES = 1 << 32
"""And of addresses, most of which libraries never use."""
CPU_SECONDS = 60
"""A hang, on a machine however loaded: the commands need two or three."""
VERBS = (("check",), ("compile", "-o", "out", "--force"), ("compile", "-o", "out", "--force", "--opt", "ram"))
LIMITED = f"""
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({ADDRESSES}, {ADDRESSES}))
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_SECONDS}, {CPU_SECONDS}))
from aot.cli.__main__ import run
code = run(sys.argv[1:])
with open("/proc/self/status") as status, open("peak", "w") as peak:
    peak.write(next(line for line in status if line.startswith("VmHWM:")).split()[1])
sys.exit(code)
"""
"""The peak of this process alone: what wait4 tells is at least that of its parent, from before the program was loaded."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's"),
]


def files() -> list[Path]:
    return sorted(FAULTS.glob("*.tflite"))


def end(folder: Path, model: Path) -> None:
    """All verbs on a file: success, or codes that are none of our own faults."""
    for verb, *options in VERBS:
        command = [sys.executable, "-c", LIMITED, verb, str(model), *options]
        with (folder / "err").open("w+b") as err:
            process = subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=err, env={**os.environ, "AOT_NO_CACHE": "1"}
            )
            process.wait()
            err.seek(0)
            said = err.read().decode("utf-8", "replace")
        assert process.returncode in (0, 3, 4), said
        codes = re.findall(r"^(E\d{4}) ", said, re.MULTILINE)
        assert process.returncode == 0 or (codes and not any(c.startswith("E9") for c in codes)), said
        peak = int((folder / "peak").read_text(encoding="utf-8"))
        assert peak * 1024 <= MEMORY, (verb, model.name, peak)


@pytest.mark.skipif(not FAULTS.is_dir(), reason="the files are not here")
@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_files_that_broke_something(tmp_path: Path, path: Path) -> None:
    end(tmp_path, path)


def test_handles_that_would_fill_any_memory(tmp_path: Path) -> None:
    (tmp_path / "m.tflite").write_bytes(counter((65536, 65536)))
    end(tmp_path, tmp_path / "m.tflite")
