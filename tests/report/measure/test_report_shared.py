"""All models of the corpus: every byte that the linker placed has an owner."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from aot.driver.build import build
from aot.errors import TargetError
from aot.micro.board import load_board
from aot.micro.build.project import Project, prepare
from aot.report.figures.attribution import attribute, by_layer, group_sizes
from scripts.corpus import SHARED

MODELS = Path(__file__).resolve().parent.parent.parent.parent.parent / "shared" / "models"


def project_of(name: str) -> Project:
    """On the first board that the model fits on."""
    (path,) = MODELS.glob(f"*/{name}.tflite")
    for board in ("mps2-an386", "mps2-an500", "mps3-an547"):
        place = load_board(board)
        try:
            project = prepare(build(path, target=place.cpu), place)
            project.model_image()
        except TargetError:
            continue
        return project
    raise AssertionError(f"{name} fits on no board")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")
@pytest.mark.skipif(not MODELS.is_dir(), reason="the shared models are not here")
@pytest.mark.parametrize("name", SHARED)
def test_all_bytes_are_the_linkers(name: str) -> None:
    project = project_of(name)
    elf = project.model_image()
    done = subprocess.run(["arm-none-eabi-size", elf.name], cwd=elf.parent, capture_output=True, text=True, check=True)
    text, data = map(int, done.stdout.splitlines()[1].split()[:2])
    symbols = attribute(project, elf)
    groups = group_sizes(symbols)
    assert sum(s.bytes for s in symbols) == sum(groups.values()) == text + data
    assert groups["other"] < (text + data) / 100
    rows = by_layer(symbols, project.artifact.metadata["layers"])
    for column, group in (("code", "kernels"), ("weights", "weights"), ("tables", "tables")):
        assert sum(row[column] for row in rows) == groups[group], column
