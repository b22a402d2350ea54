"""The benchmark of how compilations grow: its networks are what they say, and cost grows with operators, not their square."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aot.driver.build import build
from aot.driver.front import outline
from aot.driver.options import Options
from aot.frontend.problems import Problems
from aot.frontend.tflite.view import parse
from tests.scripts import script
from tests.work import calls

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def scaling() -> ModuleType:
    return script("scaling")


@pytest.mark.parametrize("kind", ["chain", "dense"])
@pytest.mark.parametrize("size", [10, 31])
def test_networks_have_so_many_operators(scaling: ModuleType, kind: str, size: int) -> None:
    data = scaling.network(kind, size)
    view = parse(data, Problems())
    assert view is not None
    assert len(view.subgraphs[0].operators) == size
    found = outline(data, target="cortex-m4", name="m", options=Options())
    assert 0 < found.layers <= size


def test_the_plot_holds_every_measurement(scaling: ModuleType) -> None:
    rows = [{"kind": k, "operators": n, "seconds": n / 20} for k in scaling.KINDS for n in (10, 100)]
    text = scaling.plot(rows)
    assert text.count("<circle") == 4
    assert text.count("<polyline") == 2
    assert "5 s</text>" in text


@pytest.mark.slow
def test_cost_grows_with_operators(scaling: ModuleType) -> None:
    """Ten times the operators take at most twenty times the calls of functions."""
    build(scaling.network("chain", 10))
    small, large = (calls(lambda n=n: build(scaling.network("chain", n))) for n in (15, 150))  # type: ignore[misc]
    assert large < 20 * small


@pytest.mark.slow
def test_a_long_network_needs_little_memory() -> None:
    """In a process of its own, whose memory is its own."""
    command = [sys.executable, str(ROOT / "scripts" / "scaling.py"), "--kinds", "chain", "--sizes", "150"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["mebibytes"] < 500
