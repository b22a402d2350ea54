"""A model tuned on an emulated board: counts, wrong kernels, and what a compilation makes of the records."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aot import build, topi
from aot.driver.options import Options
from aot.driver.plugins import load_installed
from aot.errors import UsageError
from aot.executor.config import ApplyHistoryBest, History
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.relay.analysis import workload_key
from aot.relay.expr import Function
from aot.system.executors import local
from aot.target.target import find_target
from aot.testing.text_model import text_model
from aot.topi import strategy
from aot.topi.strategy import Group, Lowered, OpImplementation, implementations, register_impl
from aot.tune.measure import MeasureInput, drawn, measure
from aot.tune.record import history_of, merged
from aot.tune.task import Task, extract_tasks
from aot.tune.tune import Job, run_job, tune

ROOT = Path(__file__).resolve().parents[2]
BOARD = "mps2-an386"
M4 = find_target("cortex-m4")
MODEL = text_model("""
    in x int8[1,6,6,4] scale=0.05 zero_point=3
    const w int8[8,1,1,4] data=1 scale=0.1
    tensor t int8[1,6,6,8] scale=0.2 zero_point=0
    const v int8[1,3,3,8] data=2 scale=0.1
    out y int8[1,6,6,8] scale=0.9 zero_point=0
    CONV_2D x w - -> t padding=SAME stride_w=1 stride_h=1
    DEPTHWISE_CONV_2D t v - -> y padding=SAME stride_w=1 stride_h=1 depth_multiplier=1
""")
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
    reason="arm-none-eabi-gcc or qemu-system-arm is not installed",
)


@pytest.fixture(scope="module")
def tasks() -> tuple[Task, ...]:
    return extract_tasks(MODEL, M4, name="net", options=Options())


def test_tasks_of_a_model(tasks: tuple[Task, ...]) -> None:
    assert ["nn.conv2d" in t.text for t in tasks] == [True, False]
    for t in tasks:
        assert len(t.choices) > 1
        assert len({c.kernel for c in t.choices}) == len(t.choices), "names tell kernels apart"
        assert [c.estimate for c in t.choices] == sorted(c.estimate for c in t.choices)
        assert t.choices[-1].estimate <= 3 * t.choices[0].estimate


def test_a_task_crosses_the_border_of_a_process(tasks: tuple[Task, ...]) -> None:
    for t in tasks:
        again: Function = pickle.loads(pickle.dumps(t)).func
        assert workload_key(again) == t.workload


def test_records_choose(tasks: tuple[Task, ...]) -> None:
    """A kernel that was counted to take the least is taken, whatever the estimates say; other cores do not care."""
    slow = tasks[0].choices[-1]
    rows = tuple(sorted((M4.name, tasks[0].workload, c.kernel, 1 if c is slow else 1000) for c in tasks[0].choices))
    history = History(rows)
    options = Options(opt="speed", tuning=history)
    tuned, plain = build(MODEL, options=options).metadata, build(MODEL, options=Options(opt="speed")).metadata
    assert tuned["layers"][0]["kernel"] == slow.kernel != plain["layers"][0]["kernel"]
    assert tuned["layers"][1:] == plain["layers"][1:]
    assert tuned["options"]["tuning"] == history.digest
    assert "tuning" not in plain["options"]
    with ApplyHistoryBest(history):
        assert build(MODEL, options=Options(opt="speed")).metadata == tuned
    other = {"target": "cortex-m3", "options": options}
    assert build(MODEL, **other).files == build(MODEL, target="cortex-m3", options=Options(opt="speed")).files  # type: ignore[arg-type]


def test_a_board_that_does_not_count(tasks: tuple[Task, ...]) -> None:
    with pytest.raises(UsageError, match="E5504"):
        tune(tasks, load_board("host"))


def test_a_worker_of_another_version() -> None:
    done = run_job(Job((), BOARD, version="0.0"))
    assert done.kind == "UsageError"
    with pytest.raises(UsageError, match="E5503"):
        done.checked()


@needs_qemu
@pytest.mark.qemu
def test_counts_are_those_of_the_whole_model(tasks: tuple[Task, ...]) -> None:
    """Two processes count what one does; the build that the records choose takes just that."""
    board = load_board(BOARD)
    alone = tune(tasks, board)
    assert alone.measured == sum(len(t.choices) for t in tasks)
    assert not alone.wrong
    assert not alone.left_out
    assert merged(tune(tasks, board, pool=local(2)).records) == merged(alone.records)
    assert tune(tasks, board, known=alone.records).measured == 0
    best = {t.workload: min(r.count for r in alone.records if r.workload == t.workload) for t in tasks}
    artifact = build(MODEL, name="net", options=Options(opt="speed", tuning=history_of(alone.records)))
    result = run(prepare(artifact, board), [[drawn_input(artifact.metadata)]], mode="profile")
    first, second = (layer.instructions for layer in result.layers)
    assert second == best[tasks[1].workload]
    assert first is not None
    assert 0 <= first - best[tasks[0].workload] <= 32, "the way into main counts for the first layer"
    chosen = [
        next(c["instructions"] for c in layer["candidates"] if c["kernel"] == layer["kernel"])
        for layer in artifact.metadata["layers"]
    ]
    assert chosen == [best[t.workload] for t in tasks]


def drawn_input(metadata: Any) -> Any:
    from aot.ir.type import TensorType

    info = metadata["inputs"][0]
    return drawn(TensorType(tuple(info["shape"]), info["dtype"]), seed=0)


def _lower_nothing(group: Group, target: Any, name: str) -> Lowered:
    right = next(i for i in implementations("nn.conv2d") if i.name != "test.nothing" and i.accepts(group, target))
    lowered = right.lower(group, target, name)
    attrs = replace(lowered.func.attrs, kernel="test.nothing")
    return replace(lowered, func=replace(lowered.func, body=(), attrs=attrs))


@needs_qemu
@pytest.mark.qemu
def test_a_wrong_kernel_is_told_and_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    load_installed()
    topi.load_all()  # what is imported later would be entered into the copy
    monkeypatch.setattr(strategy, "_IMPLS", {k: list(v) for k, v in strategy._IMPLS.items()})
    register_impl(OpImplementation("test.nothing", "nn.conv2d", lambda _g, _t: True, _lower_nothing))
    tasks = extract_tasks(MODEL, M4, name="net", options=Options())
    found = tune(tasks[:1], load_board(BOARD))
    (wrong,) = found.wrong
    assert wrong.kernel == "test.nothing"
    assert "of 288 values" in wrong.wrong
    assert wrong.kernel not in {r.kernel for r in found.records}
    assert len(found.records) == len(tasks[0].choices) - 1


@needs_qemu
@pytest.mark.qemu
def test_what_does_not_fit_is_measured_apart(tasks: tuple[Task, ...]) -> None:
    """A board with little memory gets several images; what no image holds is left out with the reason."""
    board = load_board(BOARD)
    small = replace(board, memory=tuple(replace(m, size=min(m.size, 40_000)) for m in board.memory), stack=8192)
    inputs = [MeasureInput(t.workload, t.func, tuple(c.kernel for c in t.choices)) for t in tasks]
    whole = [r.count for r in measure(inputs, board, M4)]
    assert [r.count for r in measure(inputs, small, M4)] == whole
    tiny = replace(board, memory=tuple(replace(m, size=min(m.size, 4500)) for m in board.memory), stack=2048)
    found = measure(inputs[:1], tiny, M4)
    assert [r.count for r in found] == [None] * len(found)
    assert [r.problem for r in found if "E2" not in r.problem and "E3" not in r.problem] == []
