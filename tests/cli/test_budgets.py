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
