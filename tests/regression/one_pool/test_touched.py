"""The harness painted, counted and poisoned the first pool only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.support.memory_pool import Pool
from tests.regression.one_pool.test_one_pool import KWS, ROOMY, compiled


@pytest.mark.slow
def test_touched_counts_all_pools(tmp_path: Path) -> None:
    found = compiled(KWS, Pool("FAST", 1 << 14, speed=2), ROOMY, pins={"conv_2d_1": "SLOW"})
    pools = found.artifact.metadata["workspace"]["pools"]
    assert len(pools) == 2
    (info,) = found.artifact.metadata["inputs"]
    x = np.random.default_rng(0).integers(-128, 128, info["shape"]).astype(info["dtype"])
    project = prepare(found.artifact, load_board("host"), folder=tmp_path)
    result = run(project, [[x]])
    assert result.workspace_touched == result.workspace_extent == sum(p["used"] for p in pools)
    np.testing.assert_array_equal(result.outputs[0][0].reshape(-1), found.interpret([x])[0].reshape(-1))
    np.testing.assert_array_equal(run(project, [[x]], mode="poison").outputs[0][0], result.outputs[0][0])
