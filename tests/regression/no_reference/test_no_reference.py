"""Where only the compiler's own interpreter says what is right, the result says so; --require-reference makes it exit 6."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from aot.cli.__main__ import run
from aot.errors import ToolchainError
from aot.micro.build.toolchain import have_tool
from aot.report.measure import reference
from aot.report.measure.reference import Reference, RefusedError, check_reference, find_reference

MODELS = Path(__file__).parents[2] / "models"
MODEL = MODELS / "add.tflite"
VERIFY = ("verify", str(MODEL), "--board", "host", "--random", "1")
needs_gcc = pytest.mark.skipif(not have_tool("gcc"), reason="gcc is not installed")


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reference, "installed", lambda package: None)
    monkeypatch.chdir(tmp_path)


@needs_gcc
def test_the_result_begins_with_a_yellow_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("aot.cli.output.use_colour", lambda: True)
    assert run(VERIFY) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(i for i, line in enumerate(lines) if "────" in line)
    assert lines[begin + 1].startswith(
        " \x1b[33mNOT compared with an independent reference: the graph interpreter, as ai-edge-litert is not"
    )


@needs_gcc
def test_json_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*VERIFY, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["reference"] == "the graph interpreter, as ai-edge-litert is not installed"
    assert found["reference_independent"] is False


@pytest.mark.parametrize(("oracle", "package"), [("litert", "ai-edge-litert"), ("tflm", "tflite-micro")])
def test_required(capsys: pytest.CaptureFixture[str], oracle: str, package: str) -> None:
    assert run([*VERIFY, "--require-reference", "--oracle", oracle]) == 6
    text = capsys.readouterr().err
    assert text.startswith("E3031 ")
    assert f"pip install '{package}'" in text


@needs_gcc
def test_outputs_in_a_file_need_no_engine() -> None:
    golden = str(MODELS / "add.golden.npz")
    assert run(["verify", str(MODEL), "--board", "host", "--inputs", golden, "--require-reference", "-q"]) == 0


@needs_gcc
def test_reports_require_it_unless_told_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    report = ["report", str(MODEL), "--board", "host", "--random", "1", "-o", "r"]
    assert run(report) == 6
    assert "E3031" in capsys.readouterr().err
    assert run([*report, "--no-require-reference"]) == 0


def test_a_model_that_the_reference_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: bytes) -> Reference:
        raise RefusedError("has no kernel for ADD")

    monkeypatch.setattr(reference, "installed", lambda package: "1.0")
    monkeypatch.setattr(reference, "litert", refuse)
    found = find_reference(MODEL.read_bytes(), "litert", outputs=1)
    assert (found.name, found.independent) == ("the graph interpreter, as ai-edge-litert has no kernel for ADD", False)
    with pytest.raises(ToolchainError, match=r"E3031 .* has no kernel for ADD"):
        check_reference(MODEL.read_bytes(), "litert", outputs=1, inputs=())


def test_a_package_that_is_half_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "installed", lambda package: "1.0")
    for name in ("tflite_micro.python.tflite_micro", "ai_edge_litert.interpreter"):
        for below in [m for m in sys.modules if m.startswith(f"{name}.")]:  # another test has imported it
            monkeypatch.delitem(sys.modules, below)
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for oracle in ("tflm", "litert"):
        assert not find_reference(MODEL.read_bytes(), oracle, outputs=1).independent


def test_ci_pieces_do_not_turn_it_off() -> None:
    folder = Path(__file__).parents[3] / "integrations"
    for path in ("github/report.sh", "gitlab/aot.gitlab-ci.yml"):
        lines = [line for line in (folder / path).read_text(encoding="utf-8").splitlines() if "--no-require-reference" in line]
        assert len(lines) == 1
        assert "AOT_REFERENCE" in lines[0]
