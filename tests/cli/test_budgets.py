"""--ram-budget and --flash-budget on the command line: what is over them exits 4 and writes nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.helper import Cli

MODEL = Path(__file__).resolve().parents[1] / "models" / "max_pool.tflite"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def workspace(cli: Cli) -> int:
    return int(cli("compile", MODEL, "-o", "free", "--json").json["metadata"]["workspace"]["size"])


@pytest.mark.parametrize("more", [(), (MODEL.with_name("max_pool_same.tflite"),), ("--format", "mlf", "--plan", "plan.svg")])
def test_compile_over_a_budget_writes_nothing(cli: Cli, more: tuple[object, ...]) -> None:
    done = cli("compile", MODEL, *more, "-o", "made", "--ram-budget", "1")
    assert done.code == 4
    assert done.err.startswith("E2021 max_pool: the workspace takes ")
    assert "--ram-budget is 1 B: nothing smaller was found; the peak is at " in done.err
    assert not list(Path().iterdir())
    assert cli("compile", MODEL, *more, "-o", "made", "--ram-budget", "1", "--force-over-budget").code == 0
    assert Path("made").exists()


def test_a_budget_that_is_met_changes_nothing(cli: Cli) -> None:
    size = workspace(cli)
    assert cli("compile", MODEL, "-o", "made", "--ram-budget", size).code == 0
    assert cli("compile", MODEL, "-o", "none", "--ram-budget", size - 1, "--json").json["exit_code"] == 4
    assert not Path("none").exists()
    assert Path("made/max_pool_kernels.c").read_bytes() == Path("free/max_pool_kernels.c").read_bytes()


def test_compile_knows_the_constants(cli: Cli) -> None:
    model = MODEL.with_name("dense.tflite")
    done = cli("compile", model, "-o", "made", "--flash-budget", "1")
    assert done.code == 4
    assert done.err.startswith("E2022 dense: constants take ")
    assert not Path("made").exists()
    assert cli("compile", model, "-o", "made", "--flash-budget", "1", "--force-over-budget").code == 0


def test_new_over_a_budget_writes_nothing(cli: Cli) -> None:
    assert cli("new", "project", MODEL, "--ram-budget", "1").code == 4
    assert not Path("project").exists()
    assert cli("new", "project", MODEL, "--ram-budget", "1", "--force-over-budget").code == 0
    assert "--force-over-budget" in Path("project/regenerate.sh").read_text()


@pytest.mark.qemu
@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="arm-none-eabi-gcc is not installed")
def test_build_knows_the_code(cli: Cli) -> None:
    """A model without constants still has code."""
    done = cli("build", MODEL, "-o", "made", "--flash-budget", "8")
    assert done.code == 4
    assert done.err.startswith("E2022 max_pool: constants take 0 B and code ")
    assert not Path("made").exists()
    assert cli("build", MODEL, "-o", "made", "--flash-budget", "8", "--force-over-budget").code == 0
    assert cli("build", MODEL, "-o", "small", "--flash-budget", "32K").code == 0


def test_a_budget_file(cli: Cli, tmp_path: Path) -> None:
    file, model = tmp_path / "budget.toml", MODEL.with_name("dense.tflite")
    file.write_text('workspace = "64 KiB"\nconstants = "64 KiB"\ninstructions = 1\nflash = "+1 %"\n', encoding="utf-8")
    done = cli("compile", model, "--budget", file, "-o", tmp_path / "fits")
    assert done.code == 0, done.err
    assert "2 of 2 limits met, 2 left to aot report" in done.out
    file.write_text('["dense@cortex-m4"]\nworkspace = 1\nconstants = 1\n', encoding="utf-8")
    done = cli("compile", model, "--budget", file, "-o", tmp_path / "over")
    assert done.code == 4
    assert done.err.count("E5387 dense@cortex-m4: ") == 2
    assert not (tmp_path / "over").exists()
    assert cli("compile", model, "--budget", file, "-o", tmp_path / "over", "--force-over-budget").code == 0


@pytest.mark.qemu
def test_a_budget_file_of_a_build(cli: Cli, tmp_path: Path) -> None:
    file, model = tmp_path / "budget.toml", MODEL.with_name("dense.tflite")
    report = cli("report", model, "--board", "mps2-an386", "-o", tmp_path / "r", "--json").json
    totals = report["reports"][0]["totals"]
    names = ("flash", "code", "constants", "ram", "workspace", "stack_bound")
    for less, code in ((0, 0), (1, 4)):
        file.write_text("".join(f"{n} = {totals[n] - less}\n" for n in names), encoding="utf-8")
        done = cli("build", model, "--board", "mps2-an386", "--budget", file, "-o", tmp_path / f"b{less}")
        assert done.code == code, done.err
        assert done.err.count("E5387 dense@mps2-an386: ") == less * len(names)


def test_the_options_of_a_budget_file(cli: Cli, tmp_path: Path) -> None:
    """As `aot report` compiles the model: with what its tables say for model and board, whose word is the last."""
    file = tmp_path / "budget.toml"
    file.write_text('options = "--io arena"\n[b]\noptions = "--io user"\n["b@host"]\noptions = "--opt size"\n', encoding="utf-8")
    done = cli("compile", MODEL, "--name", "b", "--board", "host", "--budget", file, "-o", tmp_path / "b", "--json")
    assert done.code == 0, done.err
    meta = done.json["metadata"]
    assert (meta["name"], meta["io"], meta["opt"]) == ("b", "user", "size")
    meta = cli("compile", MODEL, "--opt", "speed", "--budget", file, "-o", tmp_path / "m", "--json").json["metadata"]
    assert (meta["name"], meta["io"], meta["opt"]) == ("max_pool", "arena", "speed")
    file.write_text('options = "--no-such"\n', encoding="utf-8")
    assert cli("compile", MODEL, "--budget", file).err.startswith("E5052")
