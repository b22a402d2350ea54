"""What `balanced` promises of flash, by the bytes of the linked image: weights and code within twice the weights and 12 KB.

With AOT_FULL=1 also for every integer model of the shared corpus, else for our own networks.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.errors import AotError
from aot.frontend.problems import Problems
from aot.frontend.tflite.view import parse
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.report.figures.attribution import attribute, group_sizes
from tests.topi.intrin.test_intrin import needs_board

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared" / "models"
ALLOWANCE = 12 * 1024
LAYERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL"})
KINDS = {"int8 per-channel", "int8 per-tensor", "uint8 legacy"}


def models() -> list[Path]:
    own = sorted((ROOT / "tests" / "models").glob("net_*.tflite"))
    if os.environ.get("AOT_FULL") != "1" or not SHARED.is_dir():
        return own
    entries = json.loads((SHARED / "MANIFEST.json").read_text())["models"]
    bytes_only = [e for e in entries if e["group"] == "nets" and e["expected"] == "runs" and set(e["quantisation"]) <= KINDS]
    return own + [SHARED / e["file"] for e in bytes_only]


def weight_bytes(data: bytes) -> int:
    """Constant operands of the layers as the file stores them: int8 weights and their int32 biases."""
    graph = parse(data, Problems()).subgraphs[0]
    found = {i for op in graph.operators if op.kind in LAYERS for i in op.inputs if i >= 0 and graph.tensors[i].data is not None}
    return sum(graph.tensors[i].nbytes for i in found)


def flash_of(data: bytes, folder: Path, *, opt: str) -> dict[str, int]:
    """Bytes of each group of the model's own image on a Cortex-M4."""
    board = load_board("mps2-an386")
    project = prepare(build(data, target=board.cpu, options=Options(opt=opt)), board, folder=folder)
    return group_sizes(attribute(project, project.model_image()))


@pytest.mark.slow
@needs_board
@pytest.mark.parametrize("path", models(), ids=lambda p: p.stem)
def test_balanced_keeps_its_promise(path: Path, tmp_path: Path) -> None:
    data = path.read_bytes()
    try:
        groups = flash_of(data, tmp_path, opt="balanced")
    except AotError as error:
        pytest.skip(f"{path.stem}: {error}")
    weights, code = groups["weights"], sum(groups[k] for k in ("kernels", "main", "runtime", "other"))
    limit = 2 * weight_bytes(data) + ALLOWANCE
    print(f"{path.stem}: weights {weights:,} + code {code:,} of {limit:,}, tables {groups['tables']:,}")
    assert weights + code <= limit
