"""Poisoned runs: dead bytes of the workspace change between layers, results must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.executor.artifact import Artifact
from aot.micro.board import load_board
from aot.micro.build.poison import dead_intervals
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.report.measure.divergence import compare_sets
from aot.report.measure.inputs import golden_sets, open_npz
from tests.micro.fake import expected, input_sets, tiny

MODELS = Path(__file__).resolve().parents[2] / "models"


def buffer(name: str, offset: int, size: int, *, first: int, last: int) -> dict[str, Any]:
    return {"name": name, "offset": offset, "size": size, "first": first, "last": last, "kind": "tensor"}


def planned(*, last_of_t: int) -> Artifact:
    """The tiny model with its plan; `t` is read by layer 1."""
    artifact = tiny()
    artifact.metadata["workspace"]["buffers"] = [
        buffer("a", 0, 8, first=-1, last=0),
        buffer("b", 16, 16, first=-1, last=1),
        buffer("t", 32, 8, first=0, last=last_of_t),
        buffer("y", 0, 16, first=1, last=2),
    ]
    return artifact


def test_dead_is_what_no_buffer_carries_over_a_step() -> None:
    workspace = planned(last_of_t=1).metadata["workspace"]
    assert dead_intervals(workspace, 2) == [[(0, 16), (40, 64)], [(16, 64)]]
    assert dead_intervals({"size": 64}, 2) == [[], []]  # no plan, nothing known


@pytest.mark.parametrize(("last", "same"), [(1, True), (0, False)])
def test_a_plan_that_gives_memory_away_too_early_is_found(last: int, same: bool, tmp_path: Path) -> None:
    sets = input_sets(2)
    project = prepare(planned(last_of_t=last), load_board("host"), folder=tmp_path)
    outputs = run(project, sets, mode="poison").outputs
    assert all(np.array_equal(o[0], expected(*s)[1]) for o, s in zip(outputs, sets, strict=True)) == same


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "opt"),
    [
        *((name, opt) for name in ("net_sww", "net_ad_autoencoder") for opt in ("balanced", "speed", "size", "ram")),
        *((name, "balanced") for name in ("net_ic_resnet", "net_kws_dscnn")),
        ("net_ic_resnet", "ram"),
    ],
)
def test_our_networks_are_exact_when_poisoned(name: str, opt: str, tmp_path: Path) -> None:
    artifact = build(MODELS / f"{name}.tflite", target="cortex-m4", options=Options(opt=opt))
    meta = artifact.metadata
    sets = golden_sets(
        open_npz(MODELS / f"{name}.golden.npz"), MODELS / f"{name}.golden.npz", inputs=meta["inputs"], outputs=meta["outputs"],
        oracle="litert",
    )  # fmt: skip
    assert sets.expected is not None
    project = prepare(artifact, load_board("mps2-an386"), folder=tmp_path)
    plain, poisoned = (run(project, sets.inputs[:2], mode=mode) for mode in ("measure", "poison"))
    for got in (plain, poisoned):
        assert compare_sets(sets.expected[:2], got.outputs).exact
    assert plain.workspace_extent == meta["workspace"]["size"], "the plan is touched to its last byte"
