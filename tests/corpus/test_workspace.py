"""What `balanced` promises of RAM: a workspace, scratch memory included, within the bound of whole tensors; by compilation only.

Our own networks, and every integer model of the shared corpus.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.executor.select_kernels import MOST_SLOWDOWN
from aot.ir.module import IRModule
from aot.relay.expr import Function
from tests.corpus.test_corpus import SHARED, entries
from tests.scale import cases
from tests.topi.layers import Layer
from tests.topi.layers import build as build_layer

OWN = sorted((Path(__file__).parents[1] / "models").glob("net_*.tflite"))
CLOSE = frozenset(
    {"arm_kws_cnn_s_int8", "micro_speech_quantized", "tinymaix_cifar10_int8", "tinymaix_mnist_resnet_int8", "rnnoise_int8"}
    | {"silabs_magic_wand_int8", "mlperf_ad01_int8", "tinyengine_vww_int8", "adi_dtln_2_int8", "gen_gru_unrolled_int8"}
    | {"mlperf_kws_dscnn_w4a8"}
)
"""Models whose fastest kernels need more: these are always looked at, of the others every sixth without AOT_FULL=1."""


def models() -> list[Path]:
    shared = [SHARED / e["file"] for e in entries()]
    step = 1 if cases(10) == 10 else 6
    return OWN + [p for i, p in enumerate(shared) if p.stem in CLOSE or i % step == 0]


@pytest.mark.slow
@pytest.mark.parametrize("path", models(), ids=lambda p: p.stem)
def test_the_workspace_stays_within_whole_tensors(path: Path) -> None:
    workspace = build(path).metadata["workspace"]
    assert workspace["size"] <= workspace["liveness_bound"]


def test_scratch_memory_gives_way() -> None:
    """A fully connected layer: unpacked data where the packed ones would double the workspace; with `speed` they do."""
    func = build_layer(Layer("dense", (1, 96), (16, 96)))
    module = IRModule({"main": Function(func.params, func.body)})
    usual, small, least = (compile_model(module, options=Options(opt=opt)) for opt in ("speed", "balanced", "ram"))
    assert least.layout.plan.size <= small.layout.plan.size <= 96 + 16 < usual.layout.plan.size
    assert usual.lowered.estimate < small.lowered.estimate < MOST_SLOWDOWN * usual.lowered.estimate
