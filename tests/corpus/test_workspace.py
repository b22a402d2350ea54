"""What `balanced` promises of RAM: a workspace, scratch memory included, within the bound of whole tensors; by compilation only.

Our own networks, and every integer model of the shared corpus.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.build import MOST_SLOWDOWN, Options, build, compile_model
from aot.errors import AotError
from aot.ir.module import IRModule
from aot.relay.expr import Function
from tests.corpus.test_corpus import SHARED, entries
from tests.topi.layers import Layer
from tests.topi.layers import build as build_layer

OWN = sorted((Path(__file__).parents[1] / "models").glob("net_*.tflite"))
BEYOND = {
    "mlperf_kws_dscnn_w4a8": "float tensors between the layers: an int8 tensor cannot lie over both of its neighbours, and"
    " kernels without scratch memory would cost far more than the one per cent that they save",
}
"""Models above the bound, with the reason."""


def models() -> list[Path]:
    return OWN + [SHARED / e["file"] for e in entries()]


@pytest.mark.slow
@pytest.mark.parametrize("path", models(), ids=lambda p: p.stem)
def test_the_workspace_stays_within_whole_tensors(path: Path) -> None:
    try:
        workspace = build(path).metadata["workspace"]
    except AotError as error:
        pytest.skip(str(error).splitlines()[0])
    assert (workspace["size"] <= workspace["lower_bound"]) == (path.stem not in BEYOND), BEYOND.get(path.stem, "")


def test_scratch_memory_gives_way() -> None:
    """A fully connected layer: unpacked data where the packed ones would double the workspace; with `speed` they do."""
    func = build_layer(Layer("dense", (1, 96), (16, 96)))
    module = IRModule({"main": Function(func.params, func.body)})
    usual, small, least = (compile_model(module, options=Options(opt=opt)) for opt in ("speed", "balanced", "ram"))
    assert least.layout.plan.size <= small.layout.plan.size <= 96 + 16 < usual.layout.plan.size
    assert usual.schedule.estimate < small.schedule.estimate < MOST_SLOWDOWN * usual.schedule.estimate
