"""Equal groups have one key, and whatever a kernel may depend on changes it."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from aot.frontend.tflite import from_tflite
from aot.op import load_all
from aot.op.tensor import TransposeAttrs
from aot.relay.analysis import group_key
from aot.relay.expr import Call, Function, call, const, post_order, var
from aot.relay.transform import pipeline

MODELS = Path(__file__).resolve().parents[1] / "models"


def _func(value: int = 1, name: str = "x", rows: int = 2, axes: tuple[int, ...] = (1, 0)) -> Function:
    x = var(name, (rows, 4), dtype="int32")
    biased = call("nn.bias_add", [x, const(np.full(4, value, np.int32))])
    return Function((x,), call("transpose", [biased], TransposeAttrs(axes)), {"Primitive": 1})


def test_names_do_not_count_and_all_else_does() -> None:
    load_all()
    key = group_key(_func())
    assert key == group_key(_func(name="y"))
    assert len({key, *map(group_key, (_func(2), _func(rows=3), _func(axes=(0, 1))))}) == 4


def test_layers_of_a_network_differ() -> None:
    """Layers with weights of their own are no kernel of each other."""
    main = pipeline(3)(from_tflite((MODELS / "net_kws_dscnn.tflite").read_bytes()))["main"]
    assert isinstance(main, Function)
    groups = [e.op for e in post_order(main.body) if isinstance(e, Call) and isinstance(e.op, Function)]
    assert len({group_key(g) for g in groups}) == len(groups)
    assert None not in map(group_key, groups)
