"""aot check: where a model fits, in the mode asked for or in another one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.boards import small_board
from tests.cli.helper import Cli

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def test_what_fits_with_fed_rows_only(cli: Cli, tmp_path: Path) -> None:
    """The workspace of a pooling is its input and its output; fed by rows, the output alone."""
    place = small_board(tmp_path, 100)
    done = cli("check", MODELS / "max_pool.tflite", "--board", place, "--json")
    assert done.code == 0, done.err
    assert done.json["fit"]["options"] == "--feed-rows"
    assert done.json["workspace_bytes"] > 100 >= done.json["fit"]["workspace_bytes"]
    text = cli("check", MODELS / "max_pool.tflite", "--board", place).out
    assert re.search(r"small +fits with --feed-rows: workspace 63 B instead of 126 B", text)
    assert cli("check", MODELS / "max_pool.tflite", "--board", place, "--feed-rows", "--json").json["fit"]["options"] == ""


def test_what_fits_in_no_mode(cli: Cli, tmp_path: Path) -> None:
    done = cli("check", MODELS / "max_pool.tflite", "--board", small_board(tmp_path, 50))
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


@pytest.mark.slow
def test_what_fits_with_less_memory_only(cli: Cli, tmp_path: Path) -> None:
    """Nothing is said to be too large that `ram` finds room for."""
    model = MODELS / "net_sww.tflite"
    usual = cli("check", model, "--json").json
    found = cli("check", model, "--board", small_board(tmp_path, usual["workspace_bytes"] - 400), "--json").json
    assert found["fit"]["options"] == "--opt ram"
    assert found["fit"]["instructions"] > 0.9
    assert cli("compile", model, "--board", tmp_path / "small", "--opt", "ram", "-o", tmp_path / "out").code == 0
    assert cli("compile", model, "--board", tmp_path / "small", "-o", tmp_path / "none").code == 4
