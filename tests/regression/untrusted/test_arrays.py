"""Data files from anywhere: arrays, archives, images and recordings end in codes, and in memory that their size explains."""

from __future__ import annotations

import io
import json
import struct
import subprocess
import sys
import wave
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from aot.cli.__main__ import run
from aot.errors import AotError, UsageError
from aot.report.measure.inputs import (
    Conversion,
    UnpackedError,
    convert,
    golden_sets,
    is_golden,
    load_samples,
    open_npz,
    parse_npz,
    quantize,
)
from aot.testing.text_model import text_model
from tests.regression.untrusted.mutate import mutants

INT8 = {"name": "x", "c_name": "x", "shape": [1, 2, 3, 1], "dtype": "int8", "scale": 0.5, "zero_point": -3}
FLOAT = {**INT8, "dtype": "float32", "scale": None, "zero_point": None}
AUTO = Conversion()


def npy(array: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def header(text: str, body: bytes = b"", version: bytes = b"\1\0") -> bytes:
    return b"\x93NUMPY" + version + struct.pack("<H", len(text)) + text.encode() + body


def described(descr: str, shape: str, body: bytes = b"\0" * 64) -> bytes:
    return header(f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n", body)


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return stream.getvalue()


def test_what_numpy_writes_is_what_is_read(tmp_path: Path) -> None:
    given = {
        "c": np.arange(24, dtype=np.int8).reshape(2, 3, 4), "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "big": np.arange(5, dtype=">i4"), "none": np.zeros((0, 3)), "one": np.float32(3), "text": np.array(["a", "b"]),
        "half": np.ones(3, np.float16), "bool": np.array([True]), "pair": np.zeros(2, np.complex64),
    }  # fmt: skip
    for write in (np.savez, np.savez_compressed):
        write(tmp_path / "a.npz", **given)
        found = open_npz(tmp_path / "a.npz")
        assert found.keys() == given.keys()
        assert all(found[k].dtype == v.dtype and np.array_equal(found[k], v) for k, v in given.items())


HEADERS = {
    "empty": b"",
    "words": b"\x93NUMPY\1\0\x08\0(((((((\n",
    "deep": header("(" * 9000),
    "signs": header("-" * 9000 + "1"),
    "huge": described("'|i1'", "(1073741824, 1073741824)"),
    "negative": described("'|i1'", "(-1, 4)"),
    "far": described("'|i1'", f"({10**30}, 0)"),
    "deep shape": described("'|i1'", "(" + "1, " * 70 + ")"),
    "no bytes": described("'|V0'", "(1073741824, 1073741824)"),
    "no name": described("(None, None)", "(4,)"),
    "tuple": described("('', 1)", "(4,)"),
    "fields": described("[('a', [('b', {})])]", "(4,)"),
    "object": described("'|O'", "(4,)"),
    "number": described("4", "(4,)"),
    "version": header("{}", version=b"\3\0"),
    "long": header("'" * 20_000),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.npy").write_bytes(HEADERS[name])
    (tmp_path / "x.npz").write_bytes(archive({"x.npy": HEADERS[name]}))
    for file in ("x.npy", "x.npz"):
        with pytest.raises(UsageError, match="E501[12]"):  # noqa: RUF043
            load_samples([tmp_path / file], {"inputs": [INT8]}, AUTO)


def _encrypted(data: bytes) -> bytes:
    """The flag that says so, in both places."""
    changed = bytearray(data)
    changed[6] |= 1
    changed[data.index(b"PK\1\2") + 8] |= 1
    return bytes(changed)


GOOD = npy(np.zeros(6, np.int8))
ARCHIVES: dict[str, Callable[[], bytes]] = {
    "zlib": lambda: archive({"x.npy": GOOD}).replace(b"x.npy\x9b", b"x.npy\xff", 1),
    "lzma": lambda: archive({"x.npy": GOOD}, zipfile.ZIP_LZMA),
    "bzip2": lambda: archive({"x.npy": GOOD}, zipfile.ZIP_BZIP2),
    "method": lambda: archive({"x.npy": GOOD}).replace(b"\x08\0", b"\x63\0"),
    "encrypted": lambda: _encrypted(archive({"x.npy": GOOD})),
    "crc": lambda: archive({"x.npy": GOOD}, zipfile.ZIP_STORED).replace(b"NUMPY", b"NUMPX", 1),
    "not an array": lambda: archive({"x.npy": b"text"}),
    "other files": lambda: archive({"x": b"text", "x.txt": b"text"}),
    "many": lambda: archive({"x.npy": GOOD}) + b"PK\1\2" * 70_000,
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_archives(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.npz").write_bytes(ARCHIVES[name]())
    with pytest.raises(UsageError, match="E501[12]"):  # noqa: RUF043
        load_samples([tmp_path / "x.npz"], {"inputs": [INT8]}, AUTO)


def test_archives_that_unpack_to_too_much(tmp_path: Path) -> None:
    large = described("'|i1'", "(1048576,)", bytes(1 << 20))
    with pytest.raises(UnpackedError):
        parse_npz(archive({"x.npy": large}), unpacked=1 << 19)
    with pytest.raises(UnpackedError):
        parse_npz(archive({f"x{i}.npy": large for i in range(3)}), unpacked=2 << 20)
    assert len(parse_npz(archive({"x.npy": large}), unpacked=2 << 20)["x"]) == 1 << 20
    assert len(parse_npz(archive({"x.npy": large}, zipfile.ZIP_STORED), unpacked=0)["x"]) == 1 << 20


def test_an_array_of_more_samples_than_anybody_has(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(3 << 20, np.int8))
    with pytest.raises(UsageError, match="E5002"):
        load_samples([tmp_path / "x.npz"], {"inputs": [{**INT8, "shape": [1]}]}, AUTO)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
from aot.cli.__main__ import run
sys.exit(run(["run", "m.tflite", "--board", "host", "--inputs", "x.npz"]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are Linux's")
def test_a_bomb(tmp_path: Path) -> None:
    """Two gigabytes in a few megabytes, with one and a half for all of the command line."""
    packed = zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with packed, packed.open("x.npy", "w", force_zip64=True) as out:
        out.write(described("'|i1'", f"({1 << 31},)", b""))
        for _ in range(1 << 11):
            out.write(bytes(1 << 20))
    (tmp_path / "m.tflite").write_bytes(text_model("in x float32[1,8]\nout y float32[1,8]\nADD x x -> y"))
    done = subprocess.run([sys.executable, "-c", LIMITED], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr[:5]) == (2, "E5002"), done.stderr


@pytest.mark.parametrize("key", ["out0_²", "out0_" + "9" * 5000, "in0_²", "in0_" + "9" * 5000, "out0_-1", "in0_1_1"])
def test_numbers_of_sets(tmp_path: Path, key: str) -> None:
    arrays = {key: np.zeros(6, np.int8)}
    assert not is_golden(arrays)
    with pytest.raises(UsageError, match="E5011"):
        golden_sets(arrays, tmp_path, inputs=[INT8], outputs=[INT8], oracle="litert")
    (tmp_path / "x.npz").write_bytes(archive({f"{key}.npy": GOOD}))
    with pytest.raises(UsageError, match="E5012"):
        load_samples([tmp_path / "x.npz"], {"inputs": [INT8]}, AUTO)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_integers_have_neither_nan_nor_infinity(value: float) -> None:
    for how in (AUTO, Conversion("always"), Conversion(scale=2.0)):
        with pytest.raises(UsageError, match="E5014"):
            convert(np.array([0, value]), INT8, how)
    with pytest.raises(UsageError, match="E5014"):
        quantize(np.array([value], np.float32), INT8)


def test_values_that_overflow() -> None:
    assert quantize(np.array([3e38], np.float32), INT8).tolist() == [127]
    for how in (AUTO, Conversion(scale=1e30)):
        with pytest.raises(UsageError, match="E5014"):
            convert(np.array([1e38 * 1e10]), FLOAT, how)


def test_floats_that_are_no_numbers_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And printed as JSON that every parser reads."""
    (tmp_path / "m.tflite").write_bytes(text_model("in x float32[1,3]\nout y float32[1,3]\nADD x x -> y"))
    np.savez(tmp_path / "x.npz", x=np.array([[1, np.nan, np.inf]], np.float32))
    words = [str(tmp_path / "m.tflite"), "--board", "host", "--inputs", str(tmp_path / "x.npz"), "--json"]
    for verb in ("run", "verify"):
        assert run([verb, *words]) == 0
        shown = capsys.readouterr()
        assert "note: 2 values of the inputs are NaN or infinite" in shown.err
        data = json.loads(shown.out, parse_constant=lambda text: pytest.fail(text))
        if verb == "run":
            assert data["outputs"][0][0]["values"][:2] == [2.0, "nan"]


def test_an_image_is_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "x.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n")
    with pytest.raises(UsageError, match="E5015"):
        load_samples([tmp_path / "x.png"], {"inputs": [INT8]}, AUTO)


def test_an_image_of_too_many_pixels(tmp_path: Path) -> None:
    head = b"BM" + struct.pack("<IHHI", 62, 0, 0, 62)
    size = struct.pack("<IiiHHIIiiII", 40, 30_000, 30_000, 1, 1, 0, 0, 0, 0, 2, 2)
    (tmp_path / "x.bmp").write_bytes(head + size + bytes(8))
    with pytest.raises(UsageError, match=r"E5015.*pixels"):
        load_samples([tmp_path / "x.bmp"], {"inputs": [INT8]}, AUTO)


def picture(form: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(108, dtype=np.uint8).reshape(6, 6, 3)).save(stream, form)
    return stream.getvalue()


def recording() -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(bytes(24))
    return stream.getvalue()


DOORS: dict[str, Callable[[], bytes]] = {
    "npy": lambda: npy(np.zeros((2, 6), np.float32)),
    "npz": lambda: archive({"in0_0.npy": GOOD, "in0_1.npy": GOOD}),
    "png": lambda: picture("PNG"), "jpg": lambda: picture("JPEG"), "gif": lambda: picture("GIF"),
    "bmp": lambda: picture("BMP"), "ppm": lambda: picture("PPM"), "wav": recording,
}  # fmt: skip


def examine(folder: Path, door: str, data: bytes) -> None:
    path = folder / f"x.{door}"
    path.write_bytes(data)
    for info in (INT8, FLOAT):
        try:
            load_samples([path], {"inputs": [info]}, AUTO)
        except AotError:
            continue


@pytest.mark.parametrize("door", DOORS)
def test_mutations(tmp_path: Path, door: str) -> None:
    examine(tmp_path, door, DOORS[door]())
    for changed in mutants(DOORS[door](), count=150, seed=17):
        examine(tmp_path, door, changed)


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS)
def test_many_mutations(tmp_path: Path, door: str) -> None:
    for changed in mutants(DOORS[door](), count=1_500, seed=18):
        examine(tmp_path, door, changed)
