"""The files to copy for a new operator work as they stand. In a process of its own, as they register an operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import numpy as np
from aot.op import _template as t
from aot.ir.type import TensorType
from aot.relay.expr import Function, Var, call
from tests.op._differential import check_lowering, evaluate
x = Var("x", TensorType((2, 3), "int8"))
func = Function((x,), call("template.negate", [x], t.NegateAttrs(3, -5)))
data = np.array([[-128, 127, 0], [3, -5, 1]], np.int8)
outputs = evaluate(func, [data])
assert outputs[0].tolist() == [[126, -128, -2], [-5, 3, -3]], outputs
check_lowering(func, [[data]], [outputs], host=True)
"""


@pytest.mark.slow
def test_template() -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=root, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
