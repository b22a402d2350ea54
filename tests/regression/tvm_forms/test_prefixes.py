"""`relay.PREFIX.NAME` builds a call of any operator: `relay.signal.rfft`, a plug-in's `relay.mine.mirror`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aot import relay
from aot.ir.op import Op, OpPattern, register_op, reset_op

ROOT = Path(__file__).resolve().parents[3]

PLUGIN_IN_PYTHON = """
from aot import relay
import aot_mine.mirror
print(relay.mine.mirror(relay.var("x", shape=(1, 8), dtype="int8")).op, dir(relay.mine))
"""


@pytest.fixture
def deep() -> Iterator[str]:
    """An operator of a plug-in, with two prefixes."""
    op = register_op(
        "mine.deep.mirror",
        1,
        arguments=[("data", "int8", "the operand")],
        attrs_type=None,
        pattern=OpPattern.ELEMWISE,
        infer_type=lambda types, attrs: types[0],
        evaluate=lambda data, **_: -1 - data,
        doc="-1 - x",
    )
    yield op.name
    reset_op(op.name)


@pytest.mark.parametrize("name", Op.list_op_names())
def test_every_operator_has_its_constructor(name: str) -> None:
    found: Any = relay
    for part in name.split("."):
        found = getattr(found, part)
    assert callable(found)


def test_an_operator_of_a_plugin(deep: str) -> None:
    x = relay.var("x", shape=(4,), dtype="int8")
    assert str(relay.mine.deep.mirror(x).op) == deep
    assert dir(relay.mine) == ["deep.mirror"]


def test_a_prefix_is_gone_with_its_operators() -> None:
    assert not hasattr(relay, "mine")


def test_the_example_plugin() -> None:
    """In a process of its own, as importing it registers things."""
    path = f"{ROOT}:{ROOT / 'examples' / 'plugin'}"
    done = subprocess.run(
        [sys.executable, "-c", PLUGIN_IN_PYTHON], env={"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("mine.mirror ['mirror']\n", "")
