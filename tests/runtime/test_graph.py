"""The graph executor beside the generated main function: the same bytes, and every layer's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aot
from aot.driver.options import Options
from aot.errors import UsageError
from aot.executor.artifact import Artifact
from aot.runtime import GraphModule
from aot.runtime.module import load

MODELS = Path(__file__).parents[1] / "models"
QUICK = ("graph_branches_concat", "reshape")
SLOW = (
    "net_kws_dscnn", "net_ic_resnet", "net_ad_autoencoder", "net_sww", "net_vww_mobilenet", "graph_residual",
    "graph_constant_operands",
    "graph_output_used_inside", "graph_shared_weights", "graph_float_io", "graph_dead_branch", "graph_pad_then_conv",
    "concat_rows", "softmax_wide", "transpose_3d", "resize_nearest", "mean_image", "depthwise_multiplier2", "dense_batch3",
    "quantize_up", "add_broadcast_both",
)  # fmt: skip


def built(name: str, **options: Any) -> Artifact:
    artifact = aot.build(MODELS / f"{name}.tflite", options=Options(**options))
    assert isinstance(artifact, Artifact)
    return artifact


def random_inputs(artifact: Artifact) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return [rng.integers(-100, 100, row["shape"]).astype(row["dtype"]) for row in artifact.metadata["inputs"]]


def check(artifact: Artifact) -> GraphModule:
    g, inputs = GraphModule(artifact), random_inputs(artifact)
    for i, array in enumerate(inputs):
        g.set_input(i, array)
    g.run()
    layers: dict[int, bytes] = {}
    outputs = load(artifact).run(inputs, on_layer=layers.__setitem__)
    for i, wanted in enumerate(outputs):
        assert g.get_output(i).tobytes() == wanted.tobytes()
    for number, wanted_bytes in layers.items():
        assert g.debug_get_output(number).tobytes() == wanted_bytes
    assert len(g.layer_times()) == len(artifact.metadata["layers"])
    return g


@pytest.mark.parametrize("name", QUICK)
def test_same_bytes_as_the_main_function(name: str) -> None:
    check(built(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_same_bytes_as_the_main_function_of_more_models(name: str) -> None:
    check(built(name))


@pytest.mark.slow
@pytest.mark.parametrize("opt", ["speed", "size", "ram"])
def test_same_bytes_whatever_is_favoured(opt: str) -> None:
    check(built("net_kws_dscnn", opt=opt))


def test_inputs_by_name_and_keyword() -> None:
    artifact = built("graph_two_inputs_two_outputs")
    g, inputs = GraphModule(artifact), random_inputs(artifact)
    names = [row["name"] for row in artifact.metadata["inputs"]]
    g.set_input(names[0], inputs[0])
    g.run(**{names[1]: inputs[1]})
    np.testing.assert_array_equal(g.get_input(names[1]), inputs[1])
    first = [g.get_output(i) for i in range(g.get_num_outputs())]
    assert (g.get_num_inputs(), g.get_num_outputs()) == (2, 2)
    other = check(artifact)
    for i, wanted in enumerate(first):
        np.testing.assert_array_equal(other.get_output(i), wanted)


def test_the_graph_as_json() -> None:
    g = GraphModule(built("graph_branches_concat"))
    graph = json.loads(g.get_graph_json())
    assert graph == g.graph
    assert {"nodes", "arg_nodes", "heads", "tensors", "storage"} <= graph.keys()
    for row in graph["tensors"]:
        size = int(np.prod(row["shape"])) * np.dtype(row["dtype"]).itemsize
        assert row["offset"] + size <= graph["storage"][row["storage_id"]]
    assert all(n["function"] for n in graph["nodes"] if n["op"] == "kernel")


def test_wrong_use() -> None:
    artifact = built("graph_two_inputs_two_outputs")
    g = GraphModule(artifact)
    wrong = [
        lambda: g.get_output(0),
        lambda: g.layer_times(),
        lambda: g.debug_get_output(0),
        lambda: g.set_input(),
        lambda: g.set_input("nobody", np.zeros(3)),
        lambda: g.set_input(2, np.zeros(3)),
        lambda: g.set_input(-1, np.zeros(3)),
        lambda: g.set_input(0, "text"),
        lambda: g.get_output("x"),  # type: ignore[arg-type]
        lambda: g.run(nobody=np.zeros(3)),
        lambda: GraphModule("model.tflite"),  # type: ignore[arg-type]
        lambda: GraphModule(replace(artifact, graph=None)),
    ]
    for call in wrong:
        with pytest.raises(UsageError, match="E5079"):
            call()
    with pytest.raises(UsageError, match="E5022"):
        g.set_input(0, np.zeros(3))


def test_a_model_that_is_fed_by_rows_has_no_graph_of_whole_tensors() -> None:
    with pytest.raises(UsageError, match="E5079"):
        GraphModule(built("conv2d_same", feed_rows=True))
