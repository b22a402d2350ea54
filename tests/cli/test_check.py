"""aot check: where a model fits, in the mode asked for or in another one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aot import op as operators
from aot.driver.build import build
from aot.driver.front import outline
from aot.driver.options import Options
from aot.executor import candidates
from aot.frontend.tflite import unary, view
from aot.frontend.tflite.specialize import specialize
from aot.topi.strategy import OpImplementation
from tests.cli.boards import small_board
from tests.cli.helper import Cli
from tests.work import calls

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def test_what_fits_with_fed_rows_only(cli: Cli, tmp_path: Path) -> None:
    """The workspace of a pooling is its input and its output; fed by rows, the output alone."""
    place = small_board(tmp_path, 100)
    done = cli("check", MODELS / "max_pool.tflite", "--board", place, "--no-modes", "--json")
    assert done.code == 0, done.err
    assert done.json["fit"]["options"] == "--feed-rows"
    assert done.json["workspace_bytes"] > 100 >= done.json["fit"]["workspace_bytes"]
    text = cli("check", MODELS / "max_pool.tflite", "--board", place, "--no-modes").out
    assert re.search(r"small +fits with --feed-rows: workspace 63 B instead of 126 B", text)
    assert (
        cli("check", MODELS / "max_pool.tflite", "--board", place, "--feed-rows", "--no-modes", "--json").json["fit"]["options"]
        == ""
    )


def test_what_fits_in_no_mode(cli: Cli, tmp_path: Path) -> None:
    done = cli("check", MODELS / "max_pool.tflite", "--board", small_board(tmp_path, 50), "--no-modes")
    assert done.code == 4
    assert done.err.startswith("E2010 workspace of 126 bytes does not fit")


def test_budgets(cli: Cli) -> None:
    model = MODELS / "max_pool.tflite"
    assert cli("check", model, "--ram-budget", "126", "--json").json["fit"]["options"] == ""
    assert cli("check", model, "--ram-budget", "125", "--json").json["fit"]["options"] == "--feed-rows"
    assert cli("check", model, "--ram-budget", "60").err.startswith("E2021 max_pool: the workspace takes 126 B")
    done = cli("check", MODELS / "dense.tflite", "--flash-budget", "100")
    assert done.code == 4
    assert done.err.startswith("E2022 dense: constants take ")
    assert "--force" not in done.err  # check writes nothing


def test_bounds_are_those_of_the_compilation(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a board no kernel is made, and what is said of the graph is what a compilation says."""
    model = MODELS / "net_kws_dscnn.tflite"
    meta = build(model).metadata
    monkeypatch.setattr(candidates, "lower_group", None)
    monkeypatch.setattr(OpImplementation, "lower", None)
    found = cli("check", model, "--json").json
    keys = ("liveness_bound", "streaming_bound")
    assert {k: found[k] for k in keys} == {k: meta["workspace"][k] for k in keys}
    assert (found["layers"], found["macs"], found["macs_nominal"]) == (len(meta["layers"]), meta["macs"], meta["macs_nominal"])
    assert found["inputs"] == [{k: t[k] for k in found["inputs"][0]} for t in meta["inputs"]]
    assert found["weight_bytes"] <= meta["constants"]["size"] < 2.5 * found["weight_bytes"]


def test_a_bound_of_rows_that_may_be_lower_says_so(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS / "net_kws_dscnn.tflite"
    assert "streaming_lower_bound" not in cli("check", model, "--json").json
    monkeypatch.setattr("aot.memory.streaming.WORK", 0)
    found = cli("check", model, "--json").json
    assert found["streaming_lower_bound"] < found["streaming_bound"] == found["liveness_bound"]
    assert "(the search stopped at its limit, 16,000 B is at most" in cli("check", model).out


def test_bounds_judge_boards(cli: Cli) -> None:
    """A board whose memory is below every bound is unlikely, as it turns out."""
    found = cli("check", MODELS / "net_vww_mobilenet.tflite", "--json").json
    verdicts = {b["board"]: b["fits"] for b in found["boards"]}
    assert verdicts["microbit"] == "unlikely"
    assert verdicts["mps2-an386"] == "likely"


@pytest.mark.parametrize("name", ["net_kws_dscnn", "net_vww_mobilenet"])
def test_check_without_a_board_takes_limited_work(name: str) -> None:
    """At most a million calls of functions, which is about a second; these two have 130,000 and 350,000."""
    operators.load_all()
    for known in (specialize, view._sound, unary.float_table):
        known.cache_clear()
    model = (MODELS / f"{name}.tflite").read_bytes()
    calls(lambda: outline(specialize(model), target="cortex-m4", name="m", options=Options()), most=1_000_000)


@pytest.mark.slow
def test_what_fits_with_less_memory_only(cli: Cli, tmp_path: Path) -> None:
    """What is free is the budget, for check and compile alike; `ram` by itself fits as well."""
    model = MODELS / "net_sww.tflite"
    usual = cli("check", model, "--ram-budget", "1M", "--json").json
    found = cli("check", model, "--board", small_board(tmp_path, usual["workspace_bytes"] - 400), "--json").json
    budget = re.fullmatch(r"--ram-budget ([0-9]+)", found["fit"]["options"])
    assert budget is not None
    assert found["fit"]["instructions"] > 0.9
    assert cli("compile", model, "--board", tmp_path / "small", "--opt", "ram", "-o", tmp_path / "out").code == 0
    same = cli("compile", model, "--board", tmp_path / "small", "-o", tmp_path / "none", "--json").json
    assert same["metadata"]["board_fit"]["options"] == budget[0]
    assert same["metadata"]["workspace"]["size"] <= int(budget[1])


@pytest.mark.qemu
def test_every_mode_on_a_board(cli: Cli, tmp_path: Path) -> None:
    """What is said of a mode is what its own image has, and what is short is short."""
    model, place = MODELS / "graph_residual.tflite", small_board(tmp_path, 8000, layers=40)
    done = cli("check", model, "--board", place, "--json")
    assert done.code == 0, done.err
    rows = {r["mode"]: r for r in done.json["modes"]}
    assert {"balanced", "speed", "size", "ram"} <= set(rows)
    assert rows["size"]["flash"] <= rows["speed"]["flash"]
    assert rows["ram"]["ram"] <= rows["balanced"]["ram"]
    for row in rows.values():
        assert row["image_ram"] > row["ram"] - row["stack"]
        assert row["image_flash"] > row["flash"]
    built = cli("build", model, "--board", place, "-o", tmp_path / "out", "--json").json
    assert rows["balanced"]["flash"] - built["code_bytes"] - built["constant_bytes"] in range(0, 64)
    text = cli("check", model, "--board", place).out
    assert re.search(r"balanced +[\d,]+ +[\d,]+ +fits", text)


@pytest.mark.qemu
def test_modes_that_do_not_fit(cli: Cli, tmp_path: Path) -> None:
    done = cli("check", MODELS / "max_pool.tflite", "--board", small_board(tmp_path, 20))
    assert done.code == 4
    assert "too large" in done.out
