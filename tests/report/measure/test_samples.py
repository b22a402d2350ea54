"""Real data as input: conversion, shapes, files of every kind."""

from __future__ import annotations

import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aot.errors import ToolchainError, UsageError
from aot.report.measure.inputs import Conversion, convert, dequantize, golden_sets, load_samples, quantize, read_image

INT8 = {"name": "x", "c_name": "x", "shape": [1, 2, 3, 1], "dtype": "int8", "scale": 0.5, "zero_point": -3}
FLOAT = {**INT8, "dtype": "float32", "scale": None, "zero_point": None}
AUTO = Conversion()


def test_quantize_rounds_halves_away_from_zero_and_clamps() -> None:
    real = np.array([0.25, -0.25, 0.75, 0.74, 1e9, -1e9, 0.0], np.float32)
    assert quantize(real, INT8).tolist() == [1 - 3, -1 - 3, 2 - 3, 1 - 3, 127, -128, -3]


def test_quantize_of_the_largest_value_below_one_half_rounds_down() -> None:
    below = np.nextafter(np.float32(0.5), np.float32(0))
    assert quantize(np.array([below]), {**INT8, "scale": 1.0, "zero_point": 0}).tolist() == [0]


def test_dequantize_inverts() -> None:
    values = np.arange(-128, 128).astype(np.int8)
    assert (quantize(dequantize(values, INT8), INT8) == values).all()


def test_auto_takes_integers_shifts_pixels_and_quantises_floats() -> None:
    assert convert(np.array([-128, 127]), INT8, AUTO).tolist() == [-128, 127]
    assert convert(np.array([0, 255], np.uint8), INT8, AUTO).tolist() == [-128, 127]
    assert convert(np.array([1.0]), INT8, AUTO).tolist() == [-1]
    assert convert(np.array([0, 255], np.uint8), FLOAT, AUTO).tolist() == [0.0, 1.0]


def test_scale_and_mean_make_real_values() -> None:
    conversion = Conversion(scale=1 / 127.5, mean=127.5)
    assert convert(np.array([0, 255], np.uint8), FLOAT, conversion).tolist() == [-1.0, 1.0]
    assert convert(np.array([0, 255], np.uint8), INT8, conversion).tolist() == [-5, -1]
    assert convert(np.array([2], np.uint8), INT8, Conversion("always")).tolist() == [1]


def test_values_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="E5014"):
        convert(np.array([128]), INT8, AUTO)
    with pytest.raises(UsageError, match="E5014"):
        convert(np.array([0.5]), INT8, Conversion("never"))
    with pytest.raises(UsageError, match="E5014"):
        convert(np.array([200], np.uint8), INT8, Conversion("never"))
    with pytest.raises(UsageError, match="E5013"):
        quantize(np.array([0.5]), {**INT8, "scale": None})


def test_images_are_resized_and_made_grey_or_rgb(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    Image.fromarray(np.full((4, 6, 3), (255, 0, 0), np.uint8)).save(path)
    grey = read_image(path, INT8)
    assert grey.shape == (1, 2, 3, 1)
    assert set(grey.ravel().tolist()) == {76}  # ITU-R 601 luma of pure red
    colour = read_image(path, {**INT8, "shape": [1, 2, 3, 3]})
    assert colour.reshape(-1, 3).tolist() == [[255, 0, 0]] * 6
    with pytest.raises(UsageError, match="E5015"):
        read_image(path, {**INT8, "shape": [1, 6]})
    (tmp_path / "no.png").write_bytes(b"no image")
    with pytest.raises(UsageError, match="E5015"):
        read_image(tmp_path / "no.png", INT8)
    with pytest.raises(UsageError, match="E5001"):
        read_image(tmp_path / "absent.png", INT8)


def test_npz_of_samples_with_labels(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    np.savez(tmp_path / "s.npz", x=x, y=np.array([3, 1, 2, 0]))
    found = load_samples([tmp_path / "s.npz"], {"inputs": [INT8]}, AUTO)
    assert len(found.sets) == 4
    assert found.labels == (3, 1, 2, 0)
    assert (found.sets.inputs[2][0].reshape(2, 3) == x[2].astype(int) - 128).all()


def test_npz_by_input_names(tmp_path: Path) -> None:
    other = {**INT8, "name": "serving:0", "c_name": "serving_0", "shape": [1, 2]}
    np.savez(tmp_path / "s.npz", x=np.zeros((3, 6), np.int8), serving_0=np.ones((3, 2), np.int8))
    found = load_samples([tmp_path / "s.npz"], {"inputs": [INT8, other]}, AUTO)
    assert [a.shape for a in found.sets.inputs[0]] == [(1, 2, 3, 1), (1, 2)]
    np.savez(tmp_path / "t.npz", x=np.zeros((3, 6), np.int8), serving_0=np.ones((2, 2), np.int8))
    with pytest.raises(UsageError, match="different numbers"):
        load_samples([tmp_path / "t.npz"], {"inputs": [INT8, other]}, AUTO)


def test_golden_files_serve_as_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "g.npz", in0_0=np.zeros(6, np.int8), in0_1=np.ones(6, np.int8), out0_0=np.zeros(1))
    found = load_samples([tmp_path / "g.npz"], {"inputs": [INT8]}, AUTO)
    assert [int(s[0].max()) for s in found.sets.inputs] == [0, 1]


INDEX = {"name": "i", "c_name": "i", "shape": [3], "dtype": "int32", "scale": None, "zero_point": None}
REAL = {**INDEX, "dtype": "float32"}


@pytest.mark.parametrize(
    ("given", "info", "wanted"),
    [
        (np.array([1, 2, 3], np.int64), INDEX, np.int32),
        (np.array([1, 2, 3], np.uint8), INDEX, np.int32),
        (np.array([1, 0, 1], np.int64), {**INDEX, "dtype": "bool"}, np.bool_),
        (np.array([0.5, np.nan, np.inf], np.float64), REAL, np.float32),
        (np.array([1, 2, 3], np.int64), REAL, np.float32),
    ],
)
def test_golden_inputs_of_another_type(tmp_path: Path, given: np.ndarray, info: dict[str, object], wanted: type) -> None:
    """The same numbers in the model's type, with and without the outputs in the file."""
    np.savez(tmp_path / "g.npz", in0_0=given)
    ((found,),) = load_samples([tmp_path / "g.npz"], {"inputs": [info]}, AUTO).sets.inputs
    assert found.dtype == wanted
    assert np.array_equal(found.astype(given.dtype), given, equal_nan=given.dtype.kind == "f")
    out = {**INT8, "shape": [1]}
    both = golden_sets({"in0_0": given, "out0_0": np.zeros(1, np.int8)}, tmp_path, inputs=[info], outputs=[out], oracle="litert")
    assert both.inputs[0][0].tobytes() == found.tobytes()


@pytest.mark.parametrize(
    ("given", "info", "code"),
    [
        (np.zeros(3, np.float32), {**INT8, "shape": [3]}, "E5012"),
        (np.array(["a", "b", "c"]), INDEX, "E5012"),
        (np.zeros(3, np.complex64), REAL, "E5012"),
        (np.array([1, 2, 1 << 40], np.int64), INDEX, "E5014"),
        (np.array([1, 2, -1], np.int32), {**INDEX, "dtype": "uint32"}, "E5014"),
        (np.array([1, 2, 3], np.int64), {**INDEX, "dtype": "bool"}, "E5014"),
        (np.array([0.1, 2, 3], np.float64), REAL, "E5014"),
    ],
)
def test_golden_inputs_that_are_no_values_of_the_model(
    tmp_path: Path, given: np.ndarray, info: dict[str, object], code: str
) -> None:
    np.savez(tmp_path / "g.npz", in0_0=given)
    with pytest.raises(UsageError, match=code):
        load_samples([tmp_path / "g.npz"], {"inputs": [info]}, AUTO)
    with pytest.raises(UsageError, match=code):
        golden_sets(
            {"in0_0": given, "out0_0": np.zeros(1)}, tmp_path, inputs=[info], outputs=[{**REAL, "shape": [1]}], oracle="litert"
        )


@pytest.mark.parametrize("values", [np.array(["a", "b", "c"]), np.zeros(3, np.complex64), np.zeros(3, "datetime64[s]")])
@pytest.mark.parametrize("info", [INDEX, REAL, {**INT8, "shape": [3]}, {**INDEX, "dtype": "bool"}])
@pytest.mark.parametrize("how", [AUTO, Conversion("always"), Conversion("never")])
def test_what_are_no_numbers(values: np.ndarray, info: dict[str, object], how: Conversion) -> None:
    with pytest.raises(UsageError, match="E501"):
        convert(values, info, how)


def test_npy_raw_bytes_and_several_files(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.zeros((2, 3), np.int8))
    (tmp_path / "two.bin").write_bytes(bytes(range(12)))
    found = load_samples([tmp_path / "one.npy", tmp_path / "two.bin"], {"inputs": [INT8]}, AUTO)
    assert [s[0].ravel().tolist() for s in found.sets.inputs] == [[0] * 6, list(range(6)), list(range(6, 12))]


@pytest.mark.parametrize("content", [b"", bytes(7)])
def test_raw_bytes_of_a_wrong_length(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.bin").write_bytes(content)
    with pytest.raises(UsageError, match="E5012"):
        load_samples([tmp_path / "x.bin"], {"inputs": [INT8]}, AUTO)


def test_what_does_not_match_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 4), np.int8))
    with pytest.raises(UsageError, match="E5012"):
        load_samples([tmp_path / "x.npy"], {"inputs": [INT8]}, AUTO)
    with pytest.raises(UsageError, match="2 inputs, but 1 files"):
        load_samples([tmp_path / "x.npy"], {"inputs": [INT8, INT8]}, AUTO)
    np.savez(tmp_path / "z.npz", z=np.zeros(6, np.int8))
    with pytest.raises(UsageError, match="none of the arrays"):
        load_samples([tmp_path / "z.npz"], {"inputs": [INT8]}, AUTO)
    np.savez(tmp_path / "y.npz", x=np.zeros((2, 6), np.int8), y=np.zeros(3, np.int64))
    with pytest.raises(UsageError, match="labels"):
        load_samples([tmp_path / "y.npz"], {"inputs": [INT8]}, AUTO)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY nonsense")
    with pytest.raises(UsageError, match="E5011"):
        load_samples([tmp_path / "bad.npy"], {"inputs": [INT8]}, AUTO)


def test_images_need_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ToolchainError, match=r"E3030.*Pillow"):
        read_image(tmp_path / "any.png", INT8)


def recording(path: Path, *, channels: int = 1, width: int = 2, frames: int = 20) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(16000)
        file.writeframes(np.arange(frames * channels * width // 2, dtype="<i2").tobytes())
    return path


def test_a_recording_is_as_many_inputs_as_are_in_it(tmp_path: Path) -> None:
    info = {**FLOAT, "shape": [1, 6], "dtype": "int16"}
    found = load_samples([recording(tmp_path / "a.wav")], {"inputs": [info]}, AUTO).sets.inputs
    assert [row[0].tolist() for row in found] == [[list(range(k, k + 6))] for k in (0, 6, 12)]


@pytest.mark.parametrize(("code", "form"), [("E5011", {"channels": 2}), ("E5011", {"width": 4}), ("E5012", {"frames": 5})])
def test_a_recording_of_another_form_is_refused(tmp_path: Path, code: str, form: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=code):
        load_samples([recording(tmp_path / "a.wav", **form)], {"inputs": [{**FLOAT, "shape": [1, 6], "dtype": "int16"}]}, AUTO)


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    with pytest.raises(UsageError, match="E5011"):
        load_samples([tmp_path / "a.wav"], {"inputs": [INT8]}, AUTO)
