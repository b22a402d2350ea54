"""The records that come with the package: which are taken, which are left out, and what a compilation makes of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from aot import build
from aot.driver.options import Options
from aot.executor.candidates import accepting, group_of
from aot.micro.board import load_board
from aot.target.target import find_target
from aot.tune import tophub
from aot.tune.measure import MeasureInput, measure
from aot.tune.task import Task, extract_tasks
from aot.tune.tophub import FOLDER, VERSION, load_tophub, source_digest
from tests.cli.helper import Cli
from tests.tune.test_tune import BOARD, M4, MODEL

NETWORKS = sorted((Path(__file__).resolve().parents[1] / "models").glob("net_*.tflite"))


@pytest.fixture(scope="module")
def task() -> Task:
    return extract_tasks(MODEL, M4, name="net", options=Options(opt="speed"))[0]


def write(folder: Path, task: Task, **changes: object) -> None:
    """Records that say the worst kernel by estimates were the best one."""
    group = group_of(task.func)
    modules = {i.lower(group, M4, "layer").func.attrs.kernel.partition("(")[0]: i.module for i in accepting(group, M4)}
    own = {c.kernel.partition("(")[0]: modules[c.kernel.partition("(")[0]] for c in task.choices}
    data = {
        "v": VERSION, "target": M4.name, "board": BOARD, "compiler": "gcc", "kernels": own,
        "sources": {m: source_digest(m) for m in own.values()},
        "tasks": {task.workload: {"text": task.text, "kernels": {c.kernel: 1_000 - i for i, c in enumerate(task.choices)}}},
        **changes,
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    (folder / "cortex-m4.json").write_text(json.dumps(data))


def kernel(history: Any) -> str:
    layers = build(MODEL, target="cortex-m4", name="net", options=Options(opt="speed", tuning=history)).metadata["layers"]
    return str(layers[0]["kernel"])


def test_kernels_are_chosen_by_the_records(tmp_path: Path, task: Task) -> None:
    write(tmp_path, task)
    found = load_tophub(tmp_path)
    assert found.notes == ()
    assert kernel(found.history) == task.choices[-1].kernel != kernel(None)


def test_records_of_changed_kernels_are_left_out(tmp_path: Path, task: Task) -> None:
    best = task.choices[-1].kernel
    group = group_of(task.func)
    module = next(i.module for i in accepting(group, M4) if i.lower(group, M4, "layer").func.attrs.kernel == best)
    write(tmp_path, task, sources={module: "0" * 16})
    found = load_tophub(tmp_path)
    assert best not in found.history.counts("cortex-m4", task.workload)
    assert found.notes[0].startswith("1 records of ")
    assert all("older than the kernel" in note for note in found.notes)
    write(tmp_path, task, v=VERSION + 1)
    assert load_tophub(tmp_path).history.rows == ()
    assert "version" in load_tophub(tmp_path).notes[0]


def test_a_digest_changes_with_what_a_kernel_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "topi" / "x"
    folder.mkdir(parents=True)
    (folder / "a.py").write_text("from aot.topi.x.b import f\nfrom aot.topi.y.c import g\n")
    (folder / "b.py").write_text("f = 1\n")
    monkeypatch.setattr(tophub, "_PACKAGE", tmp_path)
    digest = source_digest.__wrapped__
    before = digest("aot.topi.x.a")
    (folder / "b.py").write_text("f = 2\n")
    assert digest("aot.topi.x.a") != before
    assert digest("aot.topi.x.gone") == ""


def test_the_package_has_records_and_few_bytes() -> None:
    files = sorted(FOLDER.glob("*.json"))
    assert files
    assert sum(f.stat().st_size for f in files) <= 64 << 10
    for path in files:
        data = json.loads(path.read_text())
        board = load_board(data["board"])
        assert (data["target"], data["unit"]) == (board.cpu, "instructions")
        assert path.stem == data["target"] == find_target(data["target"]).name
        assert data["compiler"]
        assert {k.partition("(")[0] for t in data["tasks"].values() for k in t["kernels"]} == set(data["kernels"])
        assert set(data["kernels"].values()) == set(data["sources"])


def test_the_packages_records_are_of_todays_kernels() -> None:
    """None is left out; after a change of a kernel, or of what it imports, they are counted anew."""
    found = load_tophub()
    assert found.notes == (), "python scripts/tophub.py"
    counted = [t["kernels"] for f in FOLDER.glob("*.json") for t in json.loads(f.read_text())["tasks"].values()]
    assert len(found.history.rows) == sum(map(len, counted)) > 0


def test_the_doctor_tells_of_records_that_are_left_out(
    tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:  # fmt: skip
    group = group_of(task.func)
    best = task.choices[0].kernel
    module = next(i.module for i in accepting(group, M4) if i.lower(group, M4, "layer").func.attrs.kernel == best)
    write(tmp_path, task, sources={module: "0" * 16})
    monkeypatch.setattr("aot.tune.tophub.load_tophub", lambda: load_tophub(tmp_path))
    found = Cli(capsys)("doctor", "--json").json["records"]
    assert 0 <= found["count"] < len(task.choices)
    assert any(note.endswith("are older than the kernel, and left out") for note in found["notes"])
    shown = Cli(capsys)("doctor").out
    assert f"records for --tuning tophub: {found['count']}\n  {found['notes'][0]}\n" in shown


def test_the_command_line_takes_them(tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    write(tmp_path / "records", task, v=VERSION + 1)
    monkeypatch.setattr("aot.tune.tophub.load_tophub", lambda: load_tophub(tmp_path / "records"))
    (tmp_path / "net.tflite").write_bytes(MODEL)
    done = Cli(capsys)("compile", tmp_path / "net.tflite", "--tuning", "tophub", "-o", tmp_path / "out")
    assert done.code == 0, done.err
    assert done.err.startswith("note: cortex-m4.json is of version 2, and left out")


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
    reason="arm-none-eabi-gcc or qemu-system-arm is not installed",
)
def test_the_records_are_true() -> None:
    """Those that are not left out, counted again: of all workloads of the smallest network, with AOT_FULL=1 of all networks."""
    history = load_tophub().history
    models = NETWORKS if os.environ.get("AOT_FULL") == "1" else [m for m in NETWORKS if "ad_autoencoder" in m.name]
    compared = 0
    for model in models:
        tasks = extract_tasks(model.read_bytes(), M4, name="net", options=Options(opt="speed"))
        told = {t.workload: history.counts(M4.name, t.workload) for t in tasks}
        inputs = [
            MeasureInput(t.workload, t.func, tuple(c.kernel for c in t.choices if c.kernel in told[t.workload])) for t in tasks
        ]
        for result in measure([i for i in inputs if i.kernels], load_board(BOARD), M4):
            assert result.count == pytest.approx(told[result.workload][result.kernel], rel=0.03), result
            compared += 1
    assert compared or not history.rows
