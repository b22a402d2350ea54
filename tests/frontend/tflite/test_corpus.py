"""All models at hand: those that run have no structural problem, those to be refused are refused for the right reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aot.frontend.formats import Choice
from aot.frontend.tflite import check_model
from aot.frontend.tflite.check import check_structure
from aot.frontend.tflite.specialize import specialize

OWN = Path(__file__).parents[2] / "models"
SHARED = Path(__file__).parents[4] / "shared" / "models"
HAVE_SHARED = (SHARED / "MANIFEST.json").is_file()

REASONS = {
    "Flex": "E1211",
    "custom operator": "E1210",
    "string tensors": "E1212",
    "run-time values": "E1213",
    "not known at compile time": "E1213",
    "depends on the data": "E1213",
    "no operators": "E1102",
    "no subgraph": "E1101",
    "has no data": "E1106",
    "SQUEEZE": "E1115",
    "SVDF": "E1114",
}
"""Words of the manifest -> the code that must be among the answers."""


def entries(*, expected: str) -> list[dict[str, Any]]:
    """The shared manifest's models that run (or not), empty where it is not there."""
    if not HAVE_SHARED:
        return []
    models = json.loads((SHARED / "MANIFEST.json").read_text())["models"]
    return [m for m in models if m["expected"].startswith(expected)]


@pytest.mark.slow
@pytest.mark.skipif(not HAVE_SHARED, reason="the shared models are not there")
def test_models_that_run_have_no_structural_problem() -> None:
    models = entries(expected="runs")
    assert len(models) > 100
    found = {m["file"]: check_structure(sized(m)) for m in models}
    assert {name: list(map(str, problems)) for name, problems in found.items() if problems} == {}


def sized(entry: dict[str, Any]) -> bytes:
    """The model; of one that takes images of any size, that for the size of its golden inputs."""
    data = (SHARED / entry["file"]).read_bytes()
    if {p.code for p in check_structure(data)} != {"E1214"}:
        return data
    return specialize(data, Choice(shapes=tuple((i["name"], tuple(i["shape"])) for i in entry["inputs"])))


@pytest.mark.parametrize("entry", entries(expected="rejected"), ids=lambda e: Path(e["file"]).stem)
def test_shared_models_to_refuse(entry: dict[str, str]) -> None:
    wanted = {code for words, code in REASONS.items() if words in entry["expected"]}
    assert wanted, entry["expected"]
    codes = {p.code for p in check_model((SHARED / entry["file"]).read_bytes())}
    assert wanted <= codes


def test_own_models_have_no_structural_problem() -> None:
    models = sorted(OWN.glob("*.tflite"))
    assert models
    found = {m.name: check_structure(m.read_bytes()) for m in models}
    assert {name: list(map(str, problems)) for name, problems in found.items() if problems} == {}


def test_own_models_to_refuse() -> None:
    from tests.models.reject import rejects

    for reject in rejects():
        codes = [p.code for p in check_model((OWN / "reject" / f"{reject.name}.tflite").read_bytes())]
        assert codes, f"{reject.name} is accepted"
        assert any(c.startswith(reject.families) for c in codes), f"{reject.name}: {codes}, {reject.why}"
        assert "E1124" not in codes, reject.name


ISSUE_MODELS = [
    "mlperf_ad01_int8",
    "mlperf_ic_resnet_int8",
    "mlperf_kws_dscnn_int8",
    "mlperf_vww_mobilenet_int8",
    "mlperf_sww_int8",
    "hello_world_int8",
    "micro_speech_quantized",
    "person_detect",
    "tinymaix_mnist_valid_int8",
    "tinymaix_mnist_resnet_int8",
    "tinymaix_cifar10_int8",
    "mnist_conv_fc_int8",
    "silabs_image_example1_int8",
    "silabs_fingerprint_int8",
    "silabs_people_flow_int8",
    "arm_kws_ds_cnn_s_int8",
    "micro_kws_m_int8",
    "mlperf_ad_toycar_int8_float_io",
    "mcunet_320kb_imagenet_int8",
    "tinyengine_vww_int8",
    "tinyengine_detection_int8",
    "emza_ssd_slim_int8",
    "emza_yolo_fastest_320_int8",
]


@pytest.mark.skipif(not HAVE_SHARED, reason="the shared models are not there")
@pytest.mark.parametrize("name", ISSUE_MODELS)
def test_converted_network_equals_the_golden_output(name: str) -> None:
    """Set 0 through the operators' `evaluate`."""
    import numpy as np

    from aot.frontend.tflite import from_tflite
    from tests.frontend.tflite.test_graph import run
    from tests.models.golden import make_input

    function = from_tflite((SHARED / "nets" / f"{name}.tflite").read_bytes())["main"]
    golden = np.load(SHARED / "nets" / f"{name}.golden.npz")
    inputs = []
    for i, p in enumerate(function.params):
        made = make_input(p.type.shape, p.type.dtype, index=i, number=0)
        inputs.append(golden.get(f"in{i}_0", made))
    for i, found in enumerate(run(function, inputs)):
        wanted = golden[f"out{i}_0"]
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
        else:
            np.testing.assert_array_equal(found, wanted)
