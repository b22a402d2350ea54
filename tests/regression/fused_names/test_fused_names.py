"""A layer of several operators is named by all of them: a convolution with a sum behind it is not an ADD."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import aot
from aot.cli.app import make_app
from aot.driver.options import Options
from aot.executor.artifact import Artifact
from aot.report.figures.size import choice_rows, compile_report, layer_rows, slowest_of
from aot.support.text import does_of, operators_text

RESNET = Path(__file__).parents[2] / "models" / "net_ic_resnet.tflite"
FUSED = "CONV_2D + ADD"


@pytest.fixture(scope="module")
def resnet() -> Artifact:
    return aot.build(RESNET, target="cortex-m4")


@pytest.mark.slow
def test_metadata_say_what_a_layer_does(resnet: Artifact) -> None:
    """`op` stays the operator of the result, by which older files are compared."""
    fused = [x for x in resnet.metadata["layers"] if len(x["ops"]) > 1 and x["op"] == "ADD"]
    assert len(fused) == 3
    assert {x["does"] for x in fused} == {FUSED}
    assert all(x["does"] == x["op"] for x in resnet.metadata["layers"] if len(x["ops"]) == 1)
    assert [x["does"] for x in compile_report(resnet.metadata)["layers"]] == [x["does"] for x in resnet.metadata["layers"]]


def test_tables_and_comments_do(resnet: Artifact) -> None:
    layers = [{**x, "instructions": 100 - x["index"]} for x in resnet.metadata["layers"]]
    index = next(x["index"] for x in layers if x["does"] == FUSED)
    for rows in (choice_rows(layers), layer_rows(layers)):
        assert rows[index][1] == FUSED
    assert f"L{index} {FUSED} " in slowest_of([layers[index]])
    name = layers[index]["name"]
    assert f"/* {index}: {FUSED} {name}" in resnet.files["net_ic_resnet.c"]
    first, last = layers[index]["ops"]
    assert f'layer {index} ops {first}, {last} {FUSED} "{name}"' in resnet.files["net_ic_resnet_params.c"]


@pytest.mark.slow
def test_the_command_line_does(tmp_path: Path) -> None:
    done = CliRunner().invoke(make_app(), ["compile", str(RESNET), "-o", str(tmp_path / "out"), "-v"])
    assert done.exit_code == 0, done.output
    assert FUSED in done.output
    rows = json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["layers"]
    assert FUSED in [row["does"] for row in rows]


@pytest.mark.slow
def test_a_cascade_names_its_operators() -> None:
    artifact = aot.build(RESNET, target="cortex-m4", options=Options(opt="ram"))
    cascade = next(x for x in artifact.metadata["layers"] if x["kernel"].startswith("cascade"))
    assert cascade["does"].startswith("3 x CONV_2D + ADD")


def test_names_of_many_operators_are_counted() -> None:
    assert operators_text(["CONV_2D"]) == "CONV_2D"
    assert operators_text(["CONV_2D", "CONV_2D", "ADD"]) == "2 x CONV_2D + ADD"
    assert operators_text(["PAD", "CONV_2D", "MUL", "ADD", "ADD", "TANH"]) == "PAD + CONV_2D + MUL + 3 more"


def test_rows_of_older_files_have_their_operator() -> None:
    assert does_of({"op": "ADD"}) == "ADD"
    assert does_of({"op": "ADD", "does": FUSED}) == FUSED
