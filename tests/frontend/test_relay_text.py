"""Graphs as text files: what `aot dump --metadata` prints compiles to the same C; texts by hand; texts that are wrong."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import aot
from aot import relay
from aot.driver.options import Options
from aot.errors import UsageError
from aot.frontend.relay_text import macs, module, operators, problems
from aot.frontend.tflite import from_tflite
from aot.ir.module import IRModule
from aot.relay.expr import Function
from aot.relay.state import STATE, StateTensor
from aot.report.measure.reference import find_reference
from tests.cli.helper import Cli

MODELS = Path(__file__).parents[1] / "models"
NETS = ("net_sww", "graph_residual", "graph_signature", "graph_two_inputs_two_outputs")
HAND = b"""// the larger of two, negated
def @main(%x: int8[1, 8], %y: int8[1, 8]) -> int8[1, 8] {
  %0 = maximum(%x, %y)
  %1 = negative(%0)
  %1
}
"""

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def sources(artifact: aot.Artifact) -> dict[str, str]:
    """The files without the lines that name the model."""
    return {name: re.sub(r"(?m)^.*(compiled to C by|model +sha256).*$", "", text) for name, text in artifact.files.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("opt", ["balanced", "ram"])
def test_the_text_of_a_model_compiles_to_the_same_c(name: str, opt: str) -> None:
    model = (MODELS / f"{name}.tflite").read_bytes()
    text = from_tflite(model, name=name).astext(show_meta_data=True).encode()
    options = Options(opt=opt)
    assert sources(aot.build(text, name=name, options=options)) == sources(aot.build(model, name=name, options=options))


@needs_gcc
def test_a_text_by_hand() -> None:
    artifact = aot.build(HAND, target="host", name="hand")
    x, y = np.int8([[1, -2, 3, -4, 5, -128, 7, 0]]), np.int8([[0, 0, 9, -9, 0, -127, 0, 0]])
    (got,) = aot.load(artifact).run([x, y])
    assert got.tolist() == (-np.maximum(x, y)).tolist()
    assert [t["name"] for t in artifact.metadata["outputs"]] == ["output"]
    assert (macs(HAND), operators(HAND)) == (0, 2)
    assert not find_reference(HAND, "litert", outputs=1).independent


def test_a_text_whose_only_result_is_a_state() -> None:
    x = relay.var("x", shape=(4,), dtype="int8")
    state = StateTensor("s", np.zeros(4, np.int8))
    text = IRModule({"main": Function((x,), relay.negative(x), {STATE: (state,)})}).astext(show_meta_data=True)
    main = module(text.encode(), "litert", "m")["main"]
    assert isinstance(main, Function)
    assert main.attrs["outputs"] == ()


def test_on_the_command_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cli = Cli(capsys)
    (tmp_path / "hand.relay").write_bytes(HAND)
    assert "2 operators" in cli("compile", str(tmp_path / "hand.relay"), "-o", str(tmp_path / "out")).out
    assert cli("check", str(tmp_path / "hand.relay")).code == 0


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"def @main(", "E5130"),
        (b"def @main(%x: int8[1]) -> int8[1] {\n  %0 = negative(%x)\n", "E5130"),
        (b"def @main(%x: int8[1]) -> int8[1] {\n  %0 = no_such(%x)\n  %0\n}\n", "E51"),
        (b"def @other(%x: int8[1]) -> int8[1] {\n  %0 = negative(%x)\n  %0\n}\n", "E5105"),
        (b"def @main(%x: int8[1]) -> int8[1] {\n  // \xff\n}\n", "E5130"),
    ],
)
def test_texts_that_are_wrong(text: bytes, code: str) -> None:
    assert all(p.code.startswith(code) for p in problems(text, "litert"))
    assert problems(text, "litert")
    assert (macs(text), operators(text)) == (0, 0)
    with pytest.raises(UsageError, match=code):
        aot.build(text)
