"""`aot tune` whose process or worker is killed while it measures: the file is that of a run without, byte by byte.

The kill is in the middle of a job by its place, not by the clock: a plug-in counts the runs of images over all processes, and the
process that ends the third one is killed before it can say what came of it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from aot.testing.text_model import text_model

pytestmark = [
    pytest.mark.qemu,
    pytest.mark.skipif(
        shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
        reason="arm-none-eabi-gcc or qemu-system-arm is not installed",
    ),
]

MODEL = text_model("""
    in x int8[1,4,4,4] scale=0.05 zero_point=3
    const u int8[8,1,1,4] data=1 scale=0.1
    tensor s int8[1,4,4,8] scale=0.2 zero_point=0
    const v int8[4,1,1,8] data=2 scale=0.1
    tensor t int8[1,4,4,4] scale=0.4 zero_point=0
    const w int8[12,1,1,4] data=3 scale=0.1
    tensor r int8[1,4,4,12] scale=0.8 zero_point=0
    const z int8[4,1,1,12] data=4 scale=0.1
    out y int8[1,4,4,4] scale=1.6 zero_point=0
    CONV_2D x u - -> s padding=SAME stride_w=1 stride_h=1
    CONV_2D s v - -> t padding=SAME stride_w=1 stride_h=1
    CONV_2D t w - -> r padding=SAME stride_w=1 stride_h=1
    CONV_2D r z - -> y padding=SAME stride_w=1 stride_h=1
""")
"""Four layers that differ, so four jobs at least."""
SPLIT = "from aot.tune import tune\ntune.MOST_KERNELS = 2\n"
KILLER = """
import os, signal
from aot.micro.run import qemu

def numbered(folder):
    n = 1
    while True:
        try:
            os.close(os.open(f"{folder}/{n}", os.O_CREAT | os.O_EXCL))
            return n
        except FileExistsError:
            n += 1

def execute(*given, real=qemu.execute, **named):
    done = real(*given, **named)
    if numbered(RUNS) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return done

qemu.execute = execute
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model, and the records of a run in one process that nobody disturbs."""
    path = tmp_path_factory.mktemp("tune")
    (path / "net.tflite").write_bytes(MODEL)
    (path / "split.py").write_text(SPLIT)
    done = tune(path, "split.py", "serial.jsonl")
    assert done.returncode == 0, done.stderr
    return path


def tune(folder: Path, plugin: str, output: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "aot", "tune", "net.tflite", "--plugin", plugin, "-o", output, "--json", *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def killer(folder: Path, name: str) -> str:
    """A plug-in that kills one process of the run `name`; folder/name has a file for each run of an image."""
    (folder / name).mkdir()
    (folder / f"{name}.py").write_text(f"{SPLIT}RUNS = {str(folder / name)!r}\n{KILLER}")
    return f"{name}.py"


def check(folder: Path, name: str, done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stderr
    assert (folder / f"{name}.jsonl").read_bytes() == (folder / "serial.jsonl").read_bytes()
    assert len(list((folder / name).iterdir())) > 3, "the killed job and what came after it were run"


def test_a_process_of_this_machine(folder: Path) -> None:
    check(folder, "local", tune(folder, killer(folder, "local"), "local.jsonl", "-j", "2"))


@pytest.fixture
def scheduler() -> Iterator[str]:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0",
        preload=["aot.tune.worker"],
    ) as cluster:  # fmt: skip
        with distributed.Client(cluster, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=120)
        yield cluster.scheduler_address


def test_a_worker_of_a_cluster(folder: Path, scheduler: str) -> None:
    check(folder, "cluster", tune(folder, killer(folder, "cluster"), "cluster.jsonl", "--scheduler", scheduler))


def test_the_command_itself(folder: Path) -> None:
    """What it had measured is in the file, and the next run goes on from there."""
    name = killer(folder, "whole")
    assert tune(folder, name, "whole.jsonl").returncode == -signal.SIGKILL
    assert len(os.listdir(folder / "whole")) == 3
    kept = (folder / "whole.jsonl").read_text().splitlines()
    whole = (folder / "serial.jsonl").read_text().splitlines()
    assert set(kept) < set(whole)
    assert kept
    done = tune(folder, name, "whole.jsonl")
    check(folder, "whole", done)
    assert json.loads(done.stdout)["measured"] == len(whole) - len(kept)
