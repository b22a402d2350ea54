"""The example scripts of registered operators and partitioned graphs run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("registered_operator.py", "[[-20 -20 -16  -8   0   8  16  20]]"),
        ("partitioned_graph.py", "cmsis-nn.conv2d, cmsis-nn.add, cmsis-nn.avg_pool2d"),
    ],
)
def test_script(script: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "python" / script)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout
