"""Channel removal and window shrinking on whole models: the same results, all tensors, and how much is saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.errors import AotError
from aot.frontend.tflite import from_tflite
from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.relay.analysis import Cost, cost
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate_all
from aot.relay.transform import (
    canonicalize,
    dead_code,
    eliminate_common_subexpr,
    fold_constant,
    fold_zero_taps,
    remove_constant_channels,
)
from aot.relay.verify import verify
from tests.relay.channel_nets import assert_same_results, inputs_of

OWN = Path(__file__).parents[2] / "models"
NETS = Path(__file__).parents[4] / "shared" / "models" / "nets"

SAVED = {
    "mlperf_vww_mobilenet_int8": Cost(3_727_313, 29_066),
    "mlperf_ic_resnet_int8": Cost(12_501_632, 77_360),
    "mlperf_kws_dscnn_int8": Cost(2_656_768, 22_016),
    "mlperf_ad01_int8": Cost(264_192, 264_192),
    "mlperf_sww_int8": Cost(826_368, 46_040),
    "person_detect": Cost(7_077_246, 207_676),
    "micro_speech_quantized": Cost(336_000, 16_640),
    "tinyengine_vww_int8": Cost(10_869_117, 387_714),
    "tinyengine_detection_int8": Cost(18_202_380, 159_192),
    "emza_ssd_slim_int8": Cost(19_196_084, 248_158),
    "emza_yolo_fastest_320_int8": Cost(107_664_800, 267_671),
    "mcunet_320kb_imagenet_int8": Cost(76_339_961, 686_507),
}
"""What is left when every removable channel goes: of mlperf_vww_mobilenet_int8 half the MACs and a seventh of the weights."""


def passes(module: IRModule) -> tuple[Function, Function]:
    """The function before and after both passes."""
    for step in (fold_constant, canonicalize, eliminate_common_subexpr, dead_code):
        module = step(module)
    before = module["main"]
    with PassContext(config={"channels.align": 1}):
        after = fold_zero_taps(remove_constant_channels(module))["main"]
    assert isinstance(before, Function)
    assert isinstance(after, Function)
    verify(after)
    return before, after


def convertible(path: Path) -> IRModule | None:
    try:
        return from_tflite(path.read_bytes())
    except AotError:
        return None


@pytest.mark.parametrize("name", ["net_kws_dscnn", "graph_residual", "conv2d_dead_channels"])
def test_own_models(name: str) -> None:
    before, after = passes(from_tflite((OWN / f"{name}.tflite").read_bytes()))
    assert_same_results(before, after)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(OWN.glob("*.tflite")), ids=lambda p: p.stem)
def test_all_own_models(path: Path) -> None:
    module = convertible(path)
    if module is None:
        pytest.skip("not supported yet")
    before, after = passes(module)
    assert_same_results(before, after)


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_shared_models(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = NETS / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the shared models are not there")
    before, after = passes(from_tflite(path.read_bytes()))
    old, new = cost(before), cost(after)
    with capsys.disabled():
        print(f"\n{name:30} MACs {old.macs:>11,} -> {new.macs:>11,}   weights {old.weight_bytes:>9,} -> {new.weight_bytes:>9,} B")
    assert new == SAVED[name]
    kept = after.attrs.get("channels", {})
    for inputs in inputs_of(before, count=1):
        (results, reference), (new_results, values) = evaluate_all(before, inputs), evaluate_all(after, inputs)
        for a, b in zip(results, new_results, strict=True):
            np.testing.assert_array_equal(a, b)
        for tensor, value in values.items():
            whole = reference[tensor]
            np.testing.assert_array_equal(whole[..., list(kept[tensor])] if tensor in kept else whole, value, err_msg=str(tensor))
