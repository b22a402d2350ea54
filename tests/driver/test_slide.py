"""Models compiled for a window that moves: the C on this machine against whole runs, and what is refused."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aot
from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.driver.slide import slid
from aot.errors import AotError, InternalError
from aot.frontend.tflite import from_tflite
from aot.ir.instrument import CheckSemantics, VerifyIR
from aot.ir.module import IRModule
from aot.ir.transform import Pass, PassContext, PassInstrument
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.relay.expr import Call, Function, is_call, post_order
from aot.relay.interpreter import StatefulFunction, evaluate
from aot.relay.state import STATE, state_of
from aot.relay.transform.sliding import SlidePlan
from aot.relay.transform.stateful import over_new_rows
from aot.report.measure.inputs import Sets, as_windows, fill_count, moved_windows
from aot.runtime.module import load
from aot.testing.reference import reference_sets
from aot.testing.text_model import text_model
from tests.executor.variable_texts import on_a_variable
from tests.relay.slide_nets import SlideNet, slide_net, windows
from tests.scale import cases
from tests.stateful import Tcn, tcn, tcn_by_hand

KWS = Path(__file__).parents[1] / "models" / "net_kws_dscnn.tflite"

needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


def compiled(net: SlideNet, seed: int, *, target: str = "host", **options: Any) -> aot.Artifact | None:
    """None where there is nothing to gain."""
    given = Options(slide=(("x", net.hop),), slide_axis=net.axis, **options)
    try:
        return aot.build(IRModule({"main": net.main}), target=target, name=f"s{seed}", options=given)  # type: ignore[return-value]
    except AotError as error:
        if [p.code for p in error.problems] != ["E1281"]:
            raise
        return None


def drawn(seed: int, *, target: str) -> aot.Artifact | None:
    """A random network in one of the ways to compile it, each third one within less RAM; None where it has nothing to gain."""
    net, kind = slide_net(seed), seed // 3
    ways: dict[str, Any] = {
        "opt": ("balanced", "speed", "size", "ram")[kind % 4],
        "rings": ("auto", "slide", "copy")[kind % 5 % 3],
    }
    artifact = compiled(net, seed, target=target, **ways)
    if artifact is None or seed % 3:
        return artifact
    front, size = artifact.metadata["slide"]["front"], ram(artifact)
    less = front[0]["rows_bytes"] - front[kind % len(front)]["rows_bytes"]
    within = compiled(net, seed, target=target, opt=ways["opt"], ram_budget=max(1, size - less))
    assert within is None or len(front) == 1 or not less or within.metadata["slide"]["rows_bytes"] <= front[0]["rows_bytes"]
    return within


def ram(artifact: aot.Artifact) -> int:
    """Bytes of workspace and state."""
    return int(artifact.metadata["workspace"]["size"] + artifact.metadata["state"]["size"])


def check_runs(seed: int, *, runs: int, board: str) -> bool:
    """Every output of every run on a board ("host": with sanitizers); False where the network has nothing to gain."""
    net = slide_net(seed)
    artifact = drawn(seed, target="host" if board == "host" else "cortex-m4")
    if artifact is None:
        return False
    given = windows(net, runs, seed=seed)
    result = run(prepare(artifact, load_board(board), sanitize=board == "host"), [(rows,) for rows, _ in given])
    for k, (row, (_, window)) in enumerate(zip(result.outputs, given, strict=True)):
        for got, want in zip(row, evaluate(net.main, [window]), strict=True):
            np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, run {k}")
    return True


def check_on_the_host(seed: int, *, runs: int) -> bool:
    """Every output of every run, before and after a reset; False where the network has nothing to gain."""
    net = slide_net(seed)
    opt = ("balanced", "speed", "size", "ram")[seed % 4]
    artifact = compiled(net, seed, opt=opt, io="user" if seed % 5 == 4 else "arena")
    if artifact is None:
        return False
    model = load(artifact)
    for again in range(2):
        for k, (rows, window) in enumerate(windows(net, runs, seed=seed + again)):
            for got, want in zip(model.run([rows]), evaluate(net.main, [window]), strict=True):
                np.testing.assert_array_equal(got, want, err_msg=f"seed {seed}, run {k}")
        model.reset()
    return True


@needs_gcc
def test_a_network_on_the_host() -> None:
    assert all(check_on_the_host(seed, runs=10) for seed in (2,))


@needs_gcc
@pytest.mark.slow
def test_random_networks_on_the_host() -> None:
    gained = sum(check_on_the_host(seed, runs=200) for seed in range(5000, 5000 + cases(100)))
    assert gained > cases(100) // 2


@needs_gcc
@pytest.mark.slow
def test_random_networks_with_sanitizers() -> None:
    gained = sum(check_runs(seed, runs=200, board="host") for seed in range(9000, 9000 + cases(500)))
    assert gained > cases(500) // 2


@needs_qemu
@pytest.mark.qemu
def test_networks_on_a_board() -> None:
    assert check_runs(2, runs=12, board="mps2-an386")


@needs_qemu
@pytest.mark.qemu
@pytest.mark.slow
def test_random_networks_on_a_board() -> None:
    gained = sum(check_runs(seed, runs=200, board="mps2-an386") for seed in range(6000, 6000 + cases(100)))
    assert gained > cases(100) // 2


@needs_gcc
def test_push_takes_rows_and_leaves_the_outputs() -> None:
    net = slide_net(2)
    artifact = compiled(net, 2)
    assert artifact is not None
    info = artifact.metadata["outputs"][0]
    library = ctypes.CDLL(str(load(artifact).library))
    push, output = library.s2_push, library.s2_output_0
    output.restype = ctypes.c_void_p
    for rows, window in windows(net, 4, seed=1):
        data = np.ascontiguousarray(rows)
        assert push(ctypes.c_void_p(data.ctypes.data)) == 0
        got = np.ctypeslib.as_array(ctypes.cast(output(), ctypes.POINTER(ctypes.c_int8)), tuple(info["shape"]))
        np.testing.assert_array_equal(got, evaluate(net.main, [window])[0])


def test_keyword_spotting_computes_what_the_analysis_by_hand_says() -> None:
    """6, 8, 10, 12 and 14 of 25 rows for the five stages: 0.42 of the multiplications."""
    found = slid(from_tflite(KWS.read_bytes()), Options(slide=(("input", 2),)), opt_level=2)
    stages = [found.plan.rows[id(e)].count for e in found.plan.nodes if is_call(e, "nn.conv2d")]
    assert stages == [6, 8, 10, 12, 14]
    assert found.plan.macs() < 0.42 * found.plan.macs_full
    assert found.told()["inputs"] == [{"index": 0, "name": "input", "axis": 1, "rows": 49, "hop": 2}]


SMALL = Tcn(frames=20, features=4, channels=5, classes=3, dilations=(1, 2, 4))


def test_a_network_that_takes_one_frame_is_what_one_writes_by_hand() -> None:
    """One position a layer, as a fully connected layer; once the window is full both files give the same."""
    found = slid(from_tflite(tcn(SMALL)), Options(slide=(("x", 1),)), opt_level=2)
    ours, main = StatefulFunction(found.module["main"]), from_tflite(tcn(SMALL))["main"]
    by_hand = StatefulFunction(from_tflite(tcn_by_hand(SMALL))["main"])
    names = [str(e.op) for e in post_order(ours.main.body) if isinstance(e, Call)]
    assert names.count("nn.dense") == 4
    assert "nn.conv2d" not in names
    assert found.plan.macs() == SMALL.channels * 3 * (SMALL.features + 2 * SMALL.channels) + SMALL.channels * SMALL.classes
    assert found.plan.macs_full == SMALL.macs
    rng = np.random.default_rng(1)
    frames = rng.integers(-128, 128, (60, SMALL.features)).astype(np.int8)
    for k, frame in enumerate(frames):
        given = [frame.reshape(1, 1, 1, -1)]
        (got,), (other,) = ours.run(given), by_hand.run(given)
        if k >= SMALL.frames:
            window = frames[k + 1 - SMALL.frames : k + 1].reshape(1, SMALL.frames, 1, -1)
            np.testing.assert_array_equal(got, evaluate(main, [window])[0])
            np.testing.assert_array_equal(other, got)


def test_the_windows_of_the_reference_begin_with_zeros_and_move_on() -> None:
    info = {"index": 0, "name": "serving_x_0", "shape": [1, 2, 1], "dtype": "int8", "zero_point": 9}
    meta = {"inputs": [info], "slide": {"inputs": [{"index": 0, "name": "serving_x:0", "axis": 1, "rows": 3, "hop": 2}]}}
    rows = [np.array([[[2 * k], [2 * k + 1]]], np.int8) for k in range(2)]
    found = as_windows(Sets(tuple((r,) for r in rows)), meta)
    assert [w[0].ravel().tolist() for w in found.inputs] == [[9, 0, 1], [1, 2, 3]]
    assert fill_count(meta) == 2
    assert fill_count({}) == 0


@needs_gcc
def test_within_a_budget_fewer_rows_are_kept() -> None:
    """The least work that fits, and the same bytes."""
    net = slide_net(3)
    sizes = []
    full = compiled(net, 3)
    assert full is not None
    front = full.metadata["slide"]["front"]
    assert len(front) > 1
    for way in front:
        room = full.metadata["workspace"]["size"] + full.metadata["state"]["size"] - (front[0]["rows_bytes"] - way["rows_bytes"])
        # the workspace grows a little by what is computed again, so the last budgets cannot be kept
        made = compiled(net, 3, ram_budget=room, force_over_budget=True)
        assert made is not None
        model = load(made)
        for rows, window in windows(net, 12, seed=1):
            for got, want in zip(model.run([rows]), evaluate(net.main, [window]), strict=True):
                np.testing.assert_array_equal(got, want)
        sizes.append(made.metadata["slide"]["rows_bytes"])
    assert sizes[0] == front[0]["rows_bytes"]
    assert sizes[-1] < sizes[0]
    assert sizes == sorted(sizes, reverse=True)


def refused(code: str, **options: Any) -> str:
    with pytest.raises(AotError, match=code) as error:
        aot.build(KWS, options=Options(**options))
    return str(error.value)


STRIDED = """
    in serving:x:0 int8[1,24,1,4] scale=0.1 zero_point=3
    const w int8[8,3,1,4] data=1 scale=0.01 zero_point=0
    const b int32[8] data=40 scale=0.001 zero_point=0
    tensor c int8[1,12,1,8] scale=0.05 zero_point=-20
    CONV_2D serving:x:0 w b -> c version=3 stride_w=1 stride_h=2 padding=SAME
    const v int8[5,3,1,8] data=2 scale=0.01 zero_point=0
    const d int32[5] data=-30 scale=0.0005 zero_point=0
    out y int8[1,10,1,5] scale=0.1 zero_point=0
    CONV_2D c v d -> y version=3 stride_w=1 stride_h=1 padding=VALID
"""


def test_an_input_has_its_name_in_the_file_and_that_in_c() -> None:
    model = text_model(STRIDED)
    built = [compile_model(model, options=Options(slide=((n, 2),))).artifact for n in ("serving:x:0", "serving_x_0")]
    assert built[0].files == built[1].files
    assert built[1].metadata["inputs"][0]["name"] == "serving_x_0"
    assert built[1].metadata["slide"]["inputs"][0]["name"] == "serving:x:0"
    with pytest.raises(AotError, match="E5018"):
        compile_model(model, options=Options(slide=(("serving:x:0", 2), ("serving_x_0", 2))))


@needs_gcc
def test_streams_in_turn_are_the_phases_of_a_stride() -> None:
    """One row at a time through a stride of two: each run goes on with the state of the one before last."""
    model, rng = text_model(STRIDED), np.random.default_rng(2)
    host = load(compile_model(model, target="host", options=Options(slide=(("serving_x_0", 2),), io="user")).artifact)
    states, before = [host.new_state(), host.new_state()], np.full((1, 1, 1, 4), 3, np.int8)
    rows = [rng.integers(-128, 128, (1, 1, 1, 4)).astype(np.int8) for _ in range(80)]
    wanted = reference_sets(model, [[w] for w in moved_windows(rows, (1, 24, 1, 4), axis=1, zero=3)])
    for k, (row, want) in enumerate(zip(rows, wanted, strict=True)):
        np.testing.assert_array_equal(host.run([np.concatenate([before, row], axis=1)], state=states[k % 2])[0], want[0])
        before = row


def test_what_cannot_slide_is_refused_with_what_can() -> None:
    assert "there are input" in refused("E5330", slide=(("sound", 1),))
    assert "choose 1 to 49" in refused("E5331", slide=(("input", 50),))
    assert "-axis 7" in refused("E5331", slide=(("input", 1),), slide_axis=7)
    assert "choose 2 rows or a multiple" in refused("E1281", slide=(("input", 1),))
    assert "moves" not in refused("E5017", slide=(("input", 2),), feed_rows=True)
    refused("E5009", slide=(("input", 0),))
    refused("E5009", slide=(("input", 2), ("input", 2)))
    refused("E5009", slide_axis=True, slide=(("input", 2),))


FRONT = """
    in x float32[1,16,1,4]
    in k int32[]
    const w float32[8,3,1,4] data=0.25
    const b float32[8] data=0.5
    tensor c float32[1,14,1,8]
    CONV_2D x w b -> c version=1 stride_w=1 stride_h=1 padding=VALID
    const axes int32[2] data=1,2
    tensor most float32[1,8]
    REDUCE_MAX c axes -> most keep_dims=0
"""
BACK = """
    out y float32[1,8]
    MUL sum most -> y
"""


def behind(kind: str) -> bytes:
    """A convolution over a window, its maxima over time, and behind them a variable that a branch or a loop works on."""
    first = "k" if kind == "unbounded" else "zero"
    return text_model(on_a_variable(FRONT, width=8, other="most", loop=kind != "branch", first=first, back=BACK))


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize("rings", ["slide", "copy"])
@pytest.mark.parametrize("kind", ["branch", "loop", "unbounded"])
def test_state_and_control_flow_behind_what_slides(kind: str, rings: Any) -> None:
    """200 runs, a reset, and two streams that take turns, against whole windows in the reference."""
    model, rng = behind(kind), np.random.default_rng(4)
    given = Options(slide=(("x", 2),), rings=rings, io="user")
    artifact = compile_model(model, target="host", options=given).artifact
    info = artifact.metadata["state"]
    streams = []
    for _ in range(2):
        rows = [
            (rng.standard_normal((1, 2, 1, 4)).astype(np.float32), np.array(rng.integers(-3, 4), np.int32)) for _ in range(200)
        ]
        whole = as_windows(Sets(tuple(rows)), artifact.metadata).inputs
        streams.append(list(zip(rows, reference_sets(model, [list(w) for w in whole]), strict=True)))
    host = load(artifact)
    states = [host.new_state(), host.new_state()]
    for pairs in zip(*streams, strict=True):
        for (rows, want), state in zip(pairs, states, strict=True):
            np.testing.assert_array_equal(host.run(rows, state=state)[0], want[0])
    again = host.new_state()
    for rows, want in streams[0][:20]:
        np.testing.assert_array_equal(host.run(rows, state=again)[0], want[0])
    if rings == "slide":
        assert info["bytes_moved"] <= 1.2 * info["bytes_new"]


class _Ran(PassInstrument):
    def __init__(self) -> None:
        self.names: list[str] = []

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        self.names.append(info.name)


def test_instruments_see_the_window_slide() -> None:
    """slide_window is a pass like all others, and CheckSemantics holds it to its law: the same bytes, run after run."""
    net, ran, check = slide_net(3), _Ran(), CheckSemantics()
    with PassContext(instruments=[ran, VerifyIR(), check]):
        assert compiled(net, 3) is not None
    assert ran.names[ran.names.index("slide_window") :][:4] == ["slide_window", "narrow_windows", "infer_type", "narrow_states"]


def test_a_slide_that_loses_a_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept row of another value is no fault of types; only the law finds it."""
    net = slide_net(3)

    def broken(main: Function, plan: SlidePlan) -> Function:
        good = over_new_rows(main, plan)
        states = tuple(replace(s, initial=s.initial ^ 1) for s in state_of(good))
        return Function(good.params, good.body, {**good.attrs, STATE: states})

    monkeypatch.setattr("aot.relay.transform.stateful.over_new_rows", broken)
    with PassContext(instruments=[CheckSemantics()]), pytest.raises(InternalError, match=r"E9004.*slide_window.*run 0"):
        compiled(net, 3)
