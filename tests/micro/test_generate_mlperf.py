"""Firmware for the MLPerf Tiny runner: the protocol, its errors, accuracy and time, through QEMU's serial port."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aot.report.reference import graph
from tests.micro.mlperf_runner import Runner
from tests.micro.projects import DIGITS, ROOT, TWO_IO, need, new, sh

SHARED = ROOT.parent / "shared"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([DIGITS, "--board", "microbit"], "no [uart]"),
        ([TWO_IO], "2 inputs and 2 outputs"),
        ([DIGITS, TWO_IO], "one model"),
    ],
)
def test_what_it_does_not_take(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[object], message: str) -> None:
    new(tmp_path / "p", *arguments, "--kind", "mlperf-tiny", code=2)
    text = capsys.readouterr().err
    assert "E5046" in text
    assert message in text


def firmware(folder: Path, model: Path, *arguments: object) -> Path:
    need("arm-none-eabi-gcc", "qemu-system-arm", "make")
    new(folder, model, "--kind", "mlperf-tiny", *arguments)
    sh("make -s -j2 WERROR=-Werror", cwd=folder)
    return folder


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    with Runner(firmware(tmp_path_factory.mktemp("mlperf") / "digits", DIGITS)) as runner:
        yield runner


def images(count: int) -> tuple[np.ndarray, list[int]]:
    data = np.load(ROOT / "examples" / "digits" / "test_images.npz")
    return data["x"][:count], [int(v) for v in data["y"][:count]]


@pytest.mark.qemu
def test_greeting_and_names(device: Runner) -> None:
    assert device.greeting[0] == "m-timestamp-mode-performance"
    assert device.greeting[1].startswith("m-lap-us-")
    assert device.greeting[2] == "m-init-done"
    assert device.command("name") == ["m-name-dut-[unspecified]"]
    assert device.command("profile")[1] == "m-model-[digits]"
    assert device.command("timestamp")[0].startswith("m-lap-us-")
    assert "infer" in device.command("help")[0]


@pytest.mark.qemu
def test_errors(device: Runner) -> None:
    assert device.command("warp 9") == ["e-[Unknown command: warp]"]
    assert device.command("") == ["e-[Empty command]"]
    assert device.command("x" * 300) == ["e-[Command too long]"]
    assert device.command("db") == ["e-[Command 'db' requires a subcommand]"]
    for size in ("", " 0", " -4", " 99999999", " 1x"):
        assert device.command(f"db load{size}")[0].startswith("e-["), size
    device.command("db load 64")
    assert device.command("db 0") == ["e-[Invalid hex digits]"]
    assert device.command("db 0001fF") == []
    assert device.command("db print") == ["m-buffer-00-01-ff"]
    assert device.command("infer 1")[0].startswith("e-[The input is not complete")
    assert device.command("infer 0") == ["e-[Inference iterations must be >0]"]
    assert device.command("infer 1 -1") == ["e-[Inference warmup must be >=0]"]


@pytest.mark.qemu
def test_accuracy_is_that_of_the_reference(device: Runner) -> None:
    pixels, labels = images(12)
    ours = []
    for image in pixels:
        device.load(np.asarray(image, np.uint8).tobytes())
        ours.append(device.infer().results)
    inputs = [[(np.asarray(i, np.int16) - 128).astype(np.int8).reshape(1, 8, 8, 1)] for i in pixels]
    wanted = np.array([o[0][0] for o in graph(DIGITS.read_bytes(), "litert").outputs(inputs)], np.float64)
    np.testing.assert_allclose(ours, (wanted + 128) / 256, atol=0.00051)  # three decimals
    assert sum(int(np.argmax(o)) == y for o, y in zip(ours, labels, strict=True)) >= 11


@pytest.mark.qemu
def test_floats_are_quantised_on_the_device(device: Runner) -> None:
    pixels, _ = images(1)
    device.load(np.asarray(pixels[0], np.uint8).tobytes())
    wanted = device.infer().results
    device.load(np.asarray(pixels[0], "<f4").tobytes())
    assert device.infer().results == wanted


@pytest.mark.qemu
def test_time_is_that_of_the_inferences(device: Runner) -> None:
    pixels, _ = images(1)
    device.load(np.asarray(pixels[0], np.uint8).tobytes())
    one, ten = device.infer(1, 3), device.infer(10, 0)
    assert ten.results == one.results
    assert 9.5 < ten.microseconds / one.microseconds < 10.5
    assert one.microseconds > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "samples", "known_as"),
    [("mlperf_kws_dscnn_int8", "kws", "kws01"), ("mlperf_ic_resnet_int8", "cifar10", "ic01")],
)
def test_official_models_on_samples(tmp_path: Path, name: str, samples: str, known_as: str) -> None:
    model, data = SHARED / "models" / "nets" / f"{name}.tflite", SHARED / "samples" / f"{samples}.npz"
    if not (model.is_file() and data.is_file()):
        pytest.skip("the sample data is not here")
    wanted = json.loads((SHARED / "samples" / "SAMPLES.json").read_text())[samples]["reference_top1"][name]
    arrays = np.load(data)
    payload = [x.astype("<f4").tobytes() if x.dtype == np.float32 else x.tobytes() for x in arrays["x"]]
    with Runner(firmware(tmp_path / "p", model, "--board", "mps2-an385")) as runner:
        assert f"m-model-[{known_as}]" in runner.command("profile")
        right = runner.accuracy(payload, [int(y) for y in arrays["y"]])
    assert f"{right}/{len(payload)}" == wanted
