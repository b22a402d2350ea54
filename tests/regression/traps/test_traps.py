"""The portable C of the kernels of a core, on this machine: no signed sum overflows (`-ftrapv` ends the program if one does)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.relay.interpreter import evaluate
from aot.testing import Quant
from scripts import corpus
from tests.op._differential import GCC, main_of, same
from tests.op._one_op import Spec, const, one_op

BOARDS = [corpus.TRAPPING, *(f"{corpus.TRAPPING}:cortex-{core}" for core in ("m0plus", "m3", "m4", "m55"))]
SHARED = corpus.ROOT.parent / "shared" / "models"
MODELS = [*corpus.every_model(corpus.ROOT / "tests" / "models", "")][::9]
MODELS += [*corpus.every_model(SHARED / "nets", "int8"), *corpus.every_model(SHARED / "ops", "")][::11]
"""A sample; `scripts/corpus.py --every --boards host-trapv,…` runs all."""


def transposed() -> bytes:
    """One output channel, for which the short requantisation multiplies the sums by 4,096."""
    rng = np.random.default_rng(1)
    weights = rng.integers(-127, 128, (1, 5, 5, 4)).astype(np.int8)
    bias = Spec((1,), "int32", Quant(1.475e-5, 0), np.array([900], np.int32))
    x, w = Spec((1, 4, 4, 4), "int8", Quant(0.00857125, -104)), Spec(weights.shape, "int8", Quant(0.00172089, 0), weights)
    y = Spec((1, 8, 8, 1), "int8", Quant(0.00601445, -128))
    steps = {"stride_h": 2, "stride_w": 2, "padding": "SAME"}
    return one_op("TRANSPOSE_CONV", [const((1, 8, 8, 1)), w, x, bias], [y], version=3, **steps)


@pytest.mark.skipif(GCC is None, reason="gcc is not installed")
def test_transposed_convolution_of_the_m3(tmp_path: Path) -> None:
    artifact = build(transposed(), target="cortex-m3", options=Options(opt="speed"), name="transposed")
    assert any("* 4096" in text or "* 4096u" in text for text in artifact.files.values())
    sets = [(np.full((1, 4, 4, 4), value, np.int8),) for value in (127, -128, 3)]
    project = prepare(artifact, load_board("host"), folder=tmp_path, extra_flags=("-ftrapv",))
    found = run(project, sets)
    for given, outputs in zip(sets, found.outputs, strict=True):
        same(outputs, evaluate(main_of(transposed()), list(given)), "the portable form differs")


@pytest.mark.slow
@pytest.mark.skipif(GCC is None, reason="gcc is not installed")
@pytest.mark.parametrize("opt", ["speed", "size"])
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_sample_of_the_corpus(path: Path, opt: str) -> None:
    rows = corpus.verify_model(path, BOARDS, "litert", opt)
    assert [row for row in rows if not row.ok] == []
