"""Cascades: row by row equals layer by layer, wherever the planner may put the memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.errors import UsageError
from aot.executor import cascade_search as search
from aot.executor.cascade_nest import Link, Node, Part, RowPropagator, StripeConfig, distances, make_nest, row_form
from aot.executor.lowered import TensorRef
from aot.ir.type import TensorType
from aot.memory.plan import BufferInfo, Conflict
from aot.memory.planner import plan
from aot.op.common.layer import PoolAttrs
from aot.op.tensor import BroadcastToAttrs
from aot.relay.expr import Function, Var, call
from aot.relay.interpreter import evaluate
from aot.report.figures.size import plan_of
from aot.runtime.module import load
from tests.c_tools import INCLUDE
from tests.executor.cascade_nets import Built, build_chain, chains, parts_of, run_chain
from tests.scale import cases

MODELS = Path(__file__).parents[1] / "models"


def image(height: int) -> TensorType:
    return TensorType((1, height, 1, 4), "int8")


def node(height: int, links: tuple[Link, ...], rows: int = 1, fill: int | None = None) -> Node:
    return Node(image(height), rows, links, fill=fill)


def residual_block(height: int = 8) -> tuple[Node, ...]:
    """A copy, two 3 x 3 convolutions, and the sum of the second with what the first read."""
    window = RowPropagator(3, 1, 1, fill=0)
    return (
        node(height, (Link(RowPropagator(), external=0),), fill=0),
        node(height, (Link(window, 0),), fill=0),
        node(height, (Link(window, 1), Link(RowPropagator(), 0))),
    )


def test_windows_of_a_residual_block() -> None:
    """The skip reads the row that the first convolution is about to give up: three rows each, none more."""
    nest = make_nest(residual_block(), [TensorRef("x", image(8))])
    assert nest is not None
    assert nest.windows == (3, 3, 0)
    assert nest.lags == ((0,), (3,), (3, 3))
    assert nest.guards == ((-1, 9), (-1, 8), (0, 7))  # the window of the skip moves on below the image


def test_events_are_in_order_and_complete() -> None:
    """Every row of every tensor is made exactly once, after what it needs."""
    nest = make_nest(residual_block(), [TensorRef("x", image(8))])
    assert nest is not None
    made: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for n, first in nest.events(-nest.lead, nest.steps):
        low, high = nest.guards[n]
        if low <= first <= high:
            made[n].append(first)
    assert made == {0: list(range(-1, 10)), 1: list(range(-1, 9)), 2: list(range(8))}


def test_rates_that_do_not_meet() -> None:
    """A sum of a tensor with itself at half the rate has no constant window."""
    nodes = (
        node(8, (Link(RowPropagator(), external=0),)),
        node(4, (Link(RowPropagator(1, 2), 0),)),
        node(4, (Link(RowPropagator(), 1), Link(RowPropagator(), 0))),
    )
    assert make_nest(nodes, [TensorRef("x", image(8))]) is None


def test_result_may_follow_the_input_down() -> None:
    """In place with one row to spare: row y of the result is written when row y + 1 of the input was copied."""
    nodes = (node(8, (Link(RowPropagator(), external=0),), fill=0), node(8, (Link(RowPropagator(3, 1, 1, fill=0), 0),)))
    nest = make_nest(nodes, [TensorRef("x", image(8))])
    assert nest is not None
    found = distances(nest)
    assert found["out", "external_0"] == -4
    assert found["out", "windows"] == 32  # the last block reads the window
    assert found["windows", "external_0"] == 12


def test_means_with_rows_outside_stay_whole() -> None:
    """How many rows a mean counts depends on the place, so there is no row kernel for it."""
    x = Var("x", TensorType((1, 6, 6, 2), "int8"))
    for padding, local in (((1, 0, 0, 0), False), ((0, 1, 0, 0), True)):
        pool = call("nn.avg_pool2d", [x], PoolAttrs((2, 2), (1, 1), padding, -128, 127))
        assert (row_form(Function((x,), pool)) is not None) == local


def test_broadcasts_along_rows_are_not_local() -> None:
    x = Var("x", TensorType((1, 1, 6, 2), "int8"))
    wide = call("broadcast_to", [x], BroadcastToAttrs((1, 6, 6, 2)))
    assert row_form(Function((x,), wide)) is None


STYLES = (StripeConfig(1), StripeConfig(1, wide=True), StripeConfig(2), StripeConfig(4))


def placed(built: Built) -> tuple[dict[str, int], int]:
    """Starts of external tensor, result and windows as the planner packs them under the distances of the cascade."""
    func = built.func
    buffers = [BufferInfo(b.name, b.nbytes, 8, 0, 0) for b in (*func.inputs, *func.outputs, *func.scratch)]
    known = func.attrs.distances
    assert known is not None
    clashes = []
    for k, a in enumerate(buffers):
        for b in buffers[k + 1 :]:
            pair = next((p for p in ((a.name, b.name), (b.name, a.name)) if p in known), None)
            clashes.append(Conflict(a.name, b.name) if pair is None else Conflict(*pair, known[pair]))
    found = plan(buffers, clashes, effort=2000)
    return dict(found.offset), found.size


def check_chain(parts: list[Part], styles: list[StripeConfig], seed: int, *, target: str, fed: bool) -> bool:
    """Whether there is such a cascade; if so it must compute what the layers do, in overlapping memory too."""
    if any(p.form is None for p in parts):
        return False
    built = build_chain(parts, styles, target=target, fed=fed)
    if built is None:
        return False
    x = np.random.default_rng(seed).integers(-128, 128, parts[0].inputs[0].type.shape).astype(np.int8)
    values = {parts[0].inputs[0]: x}
    for p in parts:
        (values[p.outputs[0]],) = evaluate(p.func, [values[t] for t in p.inputs])
    starts, size = placed(built)
    if fed:  # the input is the caller's
        starts["external_0"] = -(-size // 8) * 8
        size = starts["external_0"] + x.size
    np.testing.assert_array_equal(run_chain(built, x, starts, size), values[parts[-1].outputs[0]])
    return True


@settings(max_examples=3, suppress_health_check=list(HealthCheck))
@given(chains(longest=3), st.data())
def test_a_few_random_chains(main: Function, data: st.DataObject) -> None:
    random_chain(main, data)


@pytest.mark.slow
@settings(max_examples=cases(600), suppress_health_check=list(HealthCheck))
@given(chains(), st.data())
def test_random_chains(main: Function, data: st.DataObject) -> None:
    random_chain(main, data)


def random_chain(main: Function, data: st.DataObject) -> None:
    """Kernels 1 to 5, strides, dilation, uneven padding, residuals, pools, pads, resizes; any style a layer."""
    parts = parts_of(main)
    styles = [data.draw(st.sampled_from(STYLES)) for _ in parts]
    target, fed = data.draw(st.sampled_from(("host", "cortex-m4"))), data.draw(st.booleans())
    assume(check_chain(parts, styles, data.draw(st.integers(0, 99)), target=target, fed=fed))


@pytest.mark.parametrize("model", [pytest.param("graph_residual", marks=pytest.mark.slow), "graph_pad_then_conv"])
def test_small_models_with_least_memory(model: str, tmp_path: Path) -> None:
    """ram computes what balanced does, in no more memory, on this machine and in the interpreter."""
    path = MODELS / f"{model}.tflite"
    usual = compile_model(path, target="host")
    least = compile_model(path, target="host", options=Options(opt="ram"))
    assert least.layout.plan.size <= usual.layout.plan.size
    row = usual.artifact.metadata["inputs"][0]
    x = np.random.default_rng(1).integers(-128, 128, row["shape"]).astype(row["dtype"])
    want = load(usual.artifact, cache=tmp_path / "usual").run([x])
    for got in (load(least.artifact, cache=tmp_path / "least").run([x]), least.interpret([x])):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "most"), [("net_kws_dscnn", 8900), ("net_sww", 5000), ("net_ic_resnet", 17000)])
def test_networks_with_least_memory(model: str, most: int, tmp_path: Path) -> None:
    """The golden outputs, by the host's build of what a Cortex-M4 gets; whole layers in place are kws's least memory."""
    least = compile_model(MODELS / f"{model}.tflite", options=Options(opt="ram"))
    assert least.layout.plan.size <= most
    assert any("cascade(" in layer.func.attrs.kernel for layer in least.layers) == (model != "net_kws_dscnn")
    golden = np.load(MODELS / f"{model}.golden.npz")
    module = load(least.artifact, cache=tmp_path)
    for k in range(sum(name.startswith("in0_") for name in golden)):
        np.testing.assert_array_equal(module.run([golden[f"in0_{k}"]])[0], golden[f"out0_{k}"])


FED = ("depthwise_stride3", *(pytest.param(name, marks=pytest.mark.slow) for name in ("graph_pad_then_conv", "conv2d_same")))


def feeding_program(name: str, rows: int) -> str:
    """C that feeds rows of an input and prints the status of each step and the bytes of the output."""
    return f"""
#include <stdio.h>
#include "{name}.h"
int main(void) {{
  static int8_t input[{name.upper()}_INPUT_0_SIZE];
  static int8_t row[{name.upper()}_FEED_ROW_SIZE] __attribute__((aligned(4)));
  struct {name}_outputs out = {{0}};
  for (unsigned i = 0; i < sizeof input; ++i) input[i] = (int8_t)(i * 37u + i / 11u);
  printf("%d ", (int){name}_feed_row(row));
  for (int round = 0; round < 2; ++round) {{
    int status = {name}_feed_begin();
    for (int y = 0; y < {rows}; ++y) {{
      if (y == 1) printf("%d ", (int){name}_feed_end(&out));
      for (unsigned i = 0; i < sizeof row; ++i) row[i] = input[y * sizeof row + i];
      status |= {name}_feed_row(row);
      for (unsigned i = 0; i < sizeof row; ++i) row[i] = 99;
    }}
    printf("%d ", (int){name}_feed_row(row));
    status |= {name}_feed_end(&out);
    printf("%d %d ", status, (int){name}_feed_end(&out));
  }}
  for (unsigned i = 0; i < {name.upper()}_OUTPUT_0_SIZE; ++i) printf("%d ", {name}_output_0()[i]);
  return 0;
}}
"""


@pytest.mark.parametrize("model", FED)
def test_rows_fed_one_by_one(model: str, tmp_path: Path) -> None:
    """The same result as from the whole input, twice; rows out of order are refused; the input takes no memory."""
    path = MODELS / f"{model}.tflite"
    whole = compile_model(path, target="host", name="m")
    fed = compile_model(path, target="host", name="m", options=Options(feed_rows=True))
    assert all(b.kind != "input" for b in fed.layout.buffers)
    row = whole.artifact.metadata["inputs"][0]
    size = int(row["size"])
    i = np.arange(size)
    x = (i * 37 + i // 11).astype(np.uint8).view(np.int8).reshape(row["shape"])
    (want,) = whole.interpret([x])
    np.testing.assert_array_equal(fed.interpret([x])[0], want)
    for name, text in fed.artifact.files.items():
        (tmp_path / name).write_text(text)
    rows = fed.artifact.metadata["feed"]["rows"]
    assert fed.artifact.metadata["feed"]["row_size"] * rows == size
    (tmp_path / "main.c").write_text(feeding_program("m", rows))
    sources = [tmp_path / n for n in ("main.c", "m.c", "m_kernels.c", "m_params.c")]
    program = tmp_path / "main"
    flags = ["gcc", "-std=gnu99", "-O1", "-fsanitize=undefined,address", INCLUDE, f"-I{tmp_path}", "-o", str(program)]
    subprocess.run([*flags, *map(str, sources)], check=True)
    got = [int(v) for v in subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()]
    state = -3
    assert got[:9] == [state] + 2 * [state, state, 0, state]
    np.testing.assert_array_equal(np.array(got[9:], np.int8), want.reshape(-1))


def test_a_model_that_cannot_be_fed() -> None:
    """A fully connected layer wants all of its input."""
    with pytest.raises(UsageError, match="E5054"):
        compile_model(MODELS / "dense.tflite", target="host", options=Options(feed_rows=True))


@pytest.mark.qemu
@pytest.mark.parametrize(("model", "most", "options"), [("net_kws_dscnn", 9800, ()), ("net_sww", 5000, ("--feed-rows",))])
def test_cascades_on_a_board(model: str, most: int, options: tuple[str, ...]) -> None:
    """Bit-exact in QEMU, with dead memory poisoned too; workspace and stack as promised."""
    if shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None:
        pytest.skip("needs qemu-system-arm and arm-none-eabi-gcc")
    golden = MODELS / f"{model}.golden.npz"
    command = [sys.executable, "-m", "aot", "verify", str(MODELS / f"{model}.tflite"), "--board", "mps2-an386", "--opt", "ram"]
    command += ["--inputs", str(golden), "--no-profile", "--poison", "--json", *options]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=MODELS.parents[1]).stdout)
    assert found["exact"]
    assert found["workspace_bytes"] <= most
    assert found["stack_bytes"] <= 400


@pytest.mark.slow
def test_cascades_that_are_too_long_to_be_tried_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS / "net_sww.tflite"
    proven = build(model, options=Options(opt="ram")).metadata
    assert "cascades" not in proven["workspace"]
    monkeypatch.setattr(search, "LONGEST", 2)
    metadata = build(model, options=Options(opt="ram")).metadata
    runs = metadata["workspace"]["cascades"]
    assert 0 < runs["tried"] < runs["possible"]
    assert not runs["optimal"]
    assert f"{runs['tried']} of {runs['possible']} runs of layers were tried" in plan_of(metadata)
    budget = build(model, options=Options(ram_budget=metadata["workspace"]["size"])).metadata["workspace"]
    assert budget["cascades"]["tried"] < budget["cascades"]["possible"]
    assert "cascades" not in build(model).metadata["workspace"]  # none were looked for
