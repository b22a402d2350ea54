"""The TOML file of a chain: what it says, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.driver.model_file import read_chain, read_model
from aot.errors import UsageError
from aot.frontend.chain import Chain, Stage, pack, unpack


def written(folder: Path, text: str) -> Path:
    (folder / "models").mkdir(exist_ok=True)
    (folder / "models" / "ears.tflite").write_bytes(b"first")
    (folder / "net.tflite").write_bytes(b"second model")
    path = folder / "all.toml"
    path.write_text(text, encoding="utf-8")
    return path


GOOD = """
rate = 16000
[[stage]]
model = "models/ears.tflite"
[[stage]]
model = "net.tflite"
slide = 2
axis = 0
output = "scores"
[[stage]]
model = "net.tflite"
"""


def test_a_chain_and_back_from_bytes(tmp_path: Path) -> None:
    chain = read_chain(written(tmp_path, GOOD))
    assert chain == Chain(
        (
            Stage("ears", b"first"),
            Stage("net", b"second model", slide=2, axis=0, output="scores"),
            Stage("net_2", b"second model"),
        ),
        16000.0,
    )
    data = read_model(tmp_path / "all.toml").data
    assert unpack(data) == chain
    assert unpack(pack(chain)) == chain
    assert unpack(b"TFL3") is None
    assert unpack(data[:40]) is None


def test_a_model_is_read_as_it_is(tmp_path: Path) -> None:
    written(tmp_path, GOOD)
    assert read_model(tmp_path / "net.tflite").data == b"second model"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rate = ", "is no TOML"),
        ("rate = 16000", "has no [[stage]]"),
        ("rates = 1", "did you mean rate?"),
        ("rate = true", "rate is a number"),
        ("rate = 0\n[[stage]]\nmodel = 'net.tflite'", "above 0"),
        ("stage = 3", "stage is tables [[stage]]"),
        ("stage = [3]", "stage 0 is no table"),
        ("[[stage]]\nslide = 2", 'stage 0 has no model = "FILE.tflite"'),
        ("[[stage]]\nmodel = 'net.tflite'\nslides = 2", "stage 0: there is no slides (did you mean slide?)"),
        ("[[stage]]\nmodel = 'net.tflite'\nslide = 'x'", "slide is a whole number"),
        ("[[stage]]\nmodel = 'net.tflite'\nslide = 0", "one row at least"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UsageError, match="E1300") as error:
        read_chain(written(tmp_path, text))
    assert said in str(error.value)


def test_a_stage_whose_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="E5001"):
        read_chain(written(tmp_path, "[[stage]]\nmodel = 'none.tflite'"))
