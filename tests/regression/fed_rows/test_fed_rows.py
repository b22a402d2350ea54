"""A model that is fed by rows runs where its input would not fit: the harness reads the rows from the host, one at a time."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.errors import TargetError
from aot.micro.board import load_board
from aot.micro.build.project import choose_places, prepare
from aot.micro.run.runner import run
from aot.report.figures.attribution import attribute, by_layer
from aot.report.measure.inputs import rule_set
from aot.report.measure.reference import graph
from tests.cli.boards import small_board

MODELS = Path(__file__).resolve().parents[2] / "models"
MODEL = MODELS / "depthwise_multiplier8.tflite"
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
    reason="arm-none-eabi-gcc or qemu-system-arm is not installed",
)


def test_the_input_is_not_charged_to_the_board(tmp_path: Path) -> None:
    """One row is: the product needs one, too."""
    fed, whole = (build(MODEL, options=Options(feed_rows=on)).metadata for on in (True, False))
    row = -(-fed["feed"]["row_size"] // 16) * 16
    need = fed["workspace"]["size"] + row
    assert need < whole["workspace"]["size"]
    choose_places(load_board(str(small_board(tmp_path, need))), fed)
    (tmp_path / "less").mkdir()
    with pytest.raises(TargetError):
        choose_places(load_board(str(small_board(tmp_path / "less", need - 1))), fed)


@pytest.mark.qemu
@needs_qemu
def test_it_runs_there_and_is_measured(tmp_path: Path) -> None:
    """Exact, and what reading the rows takes is neither in the instructions nor in the stack."""
    fed = build(MODEL, options=Options(feed_rows=True))
    row = -(-fed.metadata["feed"]["row_size"] // 16) * 16
    small = load_board(str(small_board(tmp_path, fed.metadata["workspace"]["size"] + row)))
    sets = [rule_set(fed.metadata["inputs"], k) for k in range(3)]
    project = prepare(fed, small, folder=tmp_path / "build")
    found, profile = run(project, sets), run(project, sets, mode="profile")
    for got, want in zip(found.outputs, graph(MODEL.read_bytes(), "litert").outputs(sets), strict=True):
        assert [a.tobytes() for a in got] == [b.tobytes() for b in want]
    assert found.instructions is not None
    assert profile.instructions == pytest.approx(found.instructions, abs=40)
    calls = fed.metadata["feed"]["rows"] + 2
    inner = sum(layer.instructions or 0 for layer in profile.layers)
    assert found.instructions - 40 * calls < inner <= found.instructions
    (code,) = by_layer(attribute(project, project.model_image()), fed.metadata["layers"])
    assert code["code"] > 300  # its row kernel
    assert found.stack_bytes is not None
    assert 0 < found.stack_bytes < 400
