"""The index of kernels by operator is what importing all of them enters."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aot import op as operators
from aot import topi
from aot.driver.front import front
from aot.driver.options import Options
from aot.executor.candidates import accepting, group_of
from aot.relay.expr import Call, Function, post_order
from aot.target.target import find_target
from aot.topi.strategy import NEEDS

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
operators.load_all()


@pytest.mark.slow
def test_is_current() -> None:
    done = subprocess.run([sys.executable, "scripts/kernel_index.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("model", ["net_kws_dscnn", "graph_float_io", "net_ic_resnet"])
@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m3", "cortex-m4", "cortex-m55"])
def test_what_a_core_lacks_rules_out_no_kernel_that_accepts(core: str, model: str) -> None:
    """The folders that are not imported for a core have no kernel that would take a layer of a network on it."""
    topi.load_all()
    target = find_target(core)
    main = front((MODELS / f"{model}.tflite").read_bytes(), target, name="net", options=Options()).main
    layers = [group_of(e.op) for e in post_order(main.body) if isinstance(e, Call) and isinstance(e.op, Function)]
    assert layers
    kernels = {i.name for layer in layers for i in accepting(layer, target)}
    prefixes = {k.partition(".")[0] for k in kernels}
    assert not {folder for folder, feature in NEEDS.items() if not target.has(feature)} & prefixes
