"""Firmware for the MLPerf Tiny runner: the protocol, its errors, accuracy and time, through QEMU's serial port."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from aot.cli.__main__ import run
from aot.report.measure.reference import graph
from tests.micro.mlperf_runner import Runner
from tests.micro.projects import DIGITS, ROOT, TWO_IO, need, new, sh

SHARED = ROOT.parent / "shared"
ANOTHER = "net_kws_dscnn"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([DIGITS, "--board", "microbit"], "no [uart]"),
        ([TWO_IO], "2 inputs and 2 outputs"),
        ([DIGITS, TWO_IO], "graph_two_inputs_two_outputs has 2 inputs"),
    ],
)
def test_what_it_does_not_take(tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[object], message: str) -> None:
    new(tmp_path / "p", *arguments, "--kind", "mlperf-tiny", code=2)
    text = capsys.readouterr().err
    assert "E5046" in text
    assert message in text


def firmware(folder: Path, *arguments: object) -> Path:
    need("arm-none-eabi-gcc", "qemu-system-arm", "make")
    new(folder, *arguments, "--kind", "mlperf-tiny")
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
    assert device.command("model nobody") == ["e-[There is no model nobody]"]


@pytest.mark.qemu
def test_accuracy_is_that_of_the_reference(device: Runner) -> None:
    pixels, labels = images(12)
    ours = []
    for image in pixels:
        device.load(np.asarray(image, np.uint8).tobytes())
        ours.append(device.infer().results)
    inputs = [[(np.asarray(i, np.int16) - 128).astype(np.int8).reshape(1, 8, 8, 1)] for i in pixels]
    wanted = np.array([o[0][0] for o in graph(DIGITS.read_bytes(), "litert").outputs(inputs)], np.float64)
    np.testing.assert_allclose(ours, (wanted + 128) / 256, atol=6e-7)  # six decimals
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
    one, ten = device.infer(1, None), device.infer(10, 0)  # ten inferences before it, where the runner does not say
    assert ten.results == one.results
    assert (one.edges, ten.edges) == (0, 0)
    assert one.microseconds is not None
    assert ten.microseconds is not None
    assert 9.5 < ten.microseconds / one.microseconds < 10.5
    assert one.microseconds > 20


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an505", "mps3-an547"])
def test_energy_mode_marks_times_by_a_pin(tmp_path: Path, board: str) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm", "make")
    new(tmp_path / "p", DIGITS, "--kind", "mlperf-tiny", "--board", board)
    header = tmp_path / "p" / "src" / "submission.h"
    header.write_text(header.read_text().replace("#define MLPERF_ENERGY 0", "#define MLPERF_ENERGY 1"))
    sh("make -s -j2 WERROR=-Werror", cwd=tmp_path / "p")
    pixels, labels = images(3)
    with Runner(tmp_path / "p", chunk=26) as runner:
        assert runner.greeting == ["m-timestamp-mode-energy", "m-init-done"]
        assert runner.levels() == [1, 0, 1]  # high from the start, and one mark
        assert runner.command("timestamp") == []
        assert runner.levels() == [1, 0, 1, 0, 1]
        for image, label in zip(pixels, labels, strict=True):
            runner.load(np.asarray(image, np.uint8).tobytes())
            done = runner.infer(5, 1)
            assert (done.edges, done.microseconds) == (2, None)
            assert int(np.argmax(done.results)) == label


def test_a_board_without_a_pin_gets_one_to_write(tmp_path: Path) -> None:
    text = (ROOT / "boards" / "mps2-an386" / "board.toml").read_text().replace('name = "mps2-an386"', 'name = "mine"')
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "board.toml").write_text(re.sub(r"\[gpio\]\n(.+\n)+", "", text))
    new(tmp_path / "p", DIGITS, "--kind", "mlperf-tiny", "--board", tmp_path / "mine")
    assert "#error" in (tmp_path / "p" / "src" / "pin.c").read_text()


@pytest.mark.qemu
def test_two_models_in_one_device(tmp_path: Path) -> None:
    pixels, labels = images(1)
    other = ROOT / "tests" / "models" / f"{ANOTHER}.tflite"
    with Runner(firmware(tmp_path / "p", other, DIGITS, "--share-workspace")) as runner:
        assert runner.command("model") == [f"m-model-name-[{ANOTHER}]"]
        assert runner.command("verify") == [f"m-verify-[PASS {ANOTHER}: 0 outputs differ]"]
        assert runner.command("model digits") == ["m-model-name-[digits]"]
        assert runner.command("verify") == ["m-verify-[PASS digits: 0 outputs differ]"]
        assert runner.accuracy([np.asarray(pixels[0], np.uint8).tobytes()], labels) == 1
        assert runner.command(f"model {ANOTHER}") == [f"m-model-name-[{ANOTHER}]"]
        assert runner.command("infer 1") == ["e-[The input is not complete: 0 bytes]"]  # what was loaded was for the other one


def reference_top1() -> list[tuple[str, str, str]]:
    """(samples, model, right/all) of every model that sample data is there for."""
    path = SHARED / "samples" / "SAMPLES.json"
    entries = json.loads(path.read_text()) if path.is_file() else {}
    return [(s, m, top) for s, e in entries.items() for m, top in e.get("reference_top1", {}).items()]


def payload(samples: str, data: np.ndarray, model: Path) -> list[bytes]:
    """The bytes that the host sends for each sample, as SAMPLES.json's notes say."""
    if samples == "mnist":
        return [(x.astype("<f4") / np.float32(255)).tobytes() for x in data]
    if samples == "cifar10" and ("int16" in model.stem or model.stem.endswith("fp32")):
        return [x.astype("<f4").tobytes() for x in data]
    return [x.astype("<f4").tobytes() if x.dtype == np.float32 else x.tobytes() for x in data]


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "name", "wanted"), reference_top1() or [("", "no sample data here", "")])
def test_accuracy_on_samples(tmp_path: Path, samples: str, name: str, wanted: str) -> None:
    file = SHARED / "samples" / f"{samples}.npz"
    model = next(SHARED.glob(f"models/*/{name}.tflite"), None)
    if model is None or not file.is_file():
        pytest.skip(name)
    if run(["check", str(model), "-q"]) == 3:
        pytest.skip(f"{name} is not supported")
    arrays = np.load(file)
    inputs = payload(samples, arrays["x"], model)
    with Runner(firmware(tmp_path / "p", model, "--board", "mps2-an386")) as runner:
        right = runner.accuracy(inputs, [int(y) for y in arrays["y"]])
    assert f"{right}/{len(inputs)}" == wanted
