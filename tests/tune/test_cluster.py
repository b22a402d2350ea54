"""Tuning on a cluster of Dask: worker processes and a scheduler on the loopback address."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aot.driver.options import Options
from aot.errors import UsageError
from aot.micro.board import load_board
from aot.system.executors import dask
from aot.tune.record import merged
from aot.tune.task import extract_tasks
from aot.tune.tune import tune
from aot.tune.worker import EMULATOR, resource_of
from tests.tune.test_tune import BOARD, M4, MODEL

MODELS = Path(__file__).resolve().parents[1] / "models"

distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(
        shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
        reason="arm-none-eabi-gcc or qemu-system-arm is not installed",
    ),
]


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two workers of a machine with tools, and one of a machine without."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0",
        preload=["aot.tune.worker"],
    ) as found:  # fmt: skip
        bare = [
            sys.executable,
            "-m",
            "dask",
            "worker",
            found.scheduler_address,
            "--nthreads",
            "1",
            "--host",
            "127.0.0.1",
            "--dashboard-address",
            "127.0.0.1:0",
            "--no-nanny",
        ]
        process = subprocess.Popen(bare, stderr=subprocess.DEVNULL)
        try:
            with distributed.Client(found, set_as_default=False) as client:
                client.wait_for_workers(3, timeout=600)
            yield found
        finally:
            process.terminate()
            process.wait()


def resources(client: Any) -> dict[str, dict[str, float]]:
    return {address: w["resources"] for address, w in client.scheduler_info()["workers"].items()}


def test_a_cluster_measures_as_one_process(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records are those of a serial run, byte by byte (tests/regression/killed_worker: with a worker that is killed)."""
    monkeypatch.setattr("aot.tune.tune.MOST_KERNELS", 2)
    tasks = extract_tasks(MODEL, M4, name="net", options=Options())
    board = load_board(BOARD)
    serial = merged(tune(tasks, board).records)
    with distributed.Client(cluster, set_as_default=False) as client:
        able = sorted(address for address, has in resources(client).items() if has == {EMULATOR: 1})
        assert len(able) == 2, "the worker without the preload announces nothing"
        pool = dask(cluster.scheduler_address, resource_of(board.name, emulated=True))
        found = tune(tasks, board, pool=pool)
        assert [r.line() for r in merged(found.records)] == [r.line() for r in serial]
        assert not found.wrong
    with pytest.raises(UsageError, match="E5507"), dask(cluster.scheduler_address, "board:none")():
        pass


def test_a_report_of_several_models(cluster: Any, tmp_path: Path) -> None:
    """Its file is that of a serial run, byte by byte."""
    models = [MODELS / "conv2d_same.tflite", MODELS / "dense.tflite"]
    command = [sys.executable, "-m", "aot", "report", *map(str, models), "--board", f"{BOARD},host", "--format", "json"]
    for name, more in (("cluster", ["--scheduler", cluster.scheduler_address]), ("serial", [])):
        subprocess.run([*command, *more, "-o", str(tmp_path / name), "--quiet"], check=True, timeout=300)
    texts = [(tmp_path / name / "report.json").read_bytes() for name in ("cluster", "serial")]
    assert texts[0] == texts[1]
    assert len(json.loads(texts[0])["reports"]) == 4
