"""However a command ends: the exit code, the message, never a traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

import aot
from aot.cli.__main__ import run
from aot.cli.app import VERBS as ALL
from aot.errors.explanations import codes
from aot.report.measure import DEFAULT_SETS
from tests.cli.helper import Cli

VERBS = ["check", "compile", "build", "run", "verify", "dump", "explain", "doctor", "ops", "targets", "boards"]


def test_help_names_every_verb(cli: Cli) -> None:
    done = cli("--help")
    assert done.code == 0
    for verb in VERBS:
        assert re.search(rf"^  {verb} ", done.out, re.MULTILINE)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_and_json(cli: Cli, verb: str) -> None:
    done = cli(verb, "--help")
    assert done.code == 0
    assert "--json" in done.out


def test_version(cli: Cli) -> None:
    assert cli("--version").out == f"aot {aot.__version__}\n"


def test_help_loads_the_command_line_alone() -> None:
    """Nothing of the compiler, and no heavy module: what is imported is what `aot --help` takes its time for."""
    code = "import sys\nfrom aot.cli.__main__ import run\nrun(['--help'])\nprint('modules', *sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "Usage: aot" in done.stdout
    loaded = done.stdout.splitlines()[-1].split()
    assert not {"numpy", "tflite", "jinja2", "elftools", "PIL"} & set(loaded)
    parts = {name.split(".")[1] for name in loaded if name.startswith("aot.")}
    assert parts <= {"cli", "errors", "report", "support", "system", "version"}
    assert not [name for name in loaded if name.startswith("aot.report.")]
    assert 100 < len(loaded) < 400


def test_help_says_how_many_inputs_are_made_up(capsys: pytest.CaptureFixture[str]) -> None:
    """In words of its own, as the help loads nothing of the report."""
    assert f"the same each time; default {DEFAULT_SETS}." in " ".join(Cli(capsys)("verify", "--help").out.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("check",),
        ("check", "--nonsense", "x.tflite"),
        ("check", "absent.tflite"),
        ("check", "."),
        ("explain", "E0000"),
        ("boards", "nonsense"),
        ("compile", "absent.tflite", "--target", "z80"),
        ("compile", "absent.tflite", "--oracle", "delphi"),
        ("compile", "absent.tflite", "--target", "cortex-m4", "--board", "microbit"),
        ("compile", __file__, "-n", "Not A Name"),
        ("run", "absent.tflite"),
        ("run", "absent.tflite", "--inputs", "x.npy", "--quantize", "perhaps"),
        ("run", "absent.tflite", "--inputs", "x.npy", "--labels", "absent.txt"),
        ("dump", "absent.tflite", "--format", "ada"),
    ],
)
def test_usage_errors_exit_2_with_a_coded_line(cli: Cli, arguments: tuple[str, ...]) -> None:
    done = cli(*arguments)
    assert done.code == 2
    assert done.out == ""
    assert re.match(r"E50\d\d ", done.err)
    assert "Traceback" not in done.err
    as_json = cli(*arguments, "--json")
    assert as_json.code == 2
    assert as_json.json["ok"] is False
    assert as_json.json["problems"][0]["code"] in codes()


def test_nothing_asked_prints_the_help(cli: Cli) -> None:
    done = cli()
    assert done.code == 2
    assert "Usage: aot" in done.out + done.err


def _raise(error: BaseException) -> NoReturn:
    raise error


def test_an_unexpected_exception_is_an_internal_error(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aot.cli.output.Output.table", lambda *_: _raise(IndexError("oh")))
    done = cli("targets")
    assert done.code == 1
    assert done.err.startswith("E9001 IndexError: oh at test_endings.py:")
    assert "Traceback" not in done.err
    monkeypatch.setenv("AOT_DEBUG", "1")
    assert "Traceback" in cli("targets").err


def test_interrupt_is_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aot.cli.output.Output.table", lambda *_: _raise(KeyboardInterrupt()))
    done = cli("targets")
    assert done.code == 130
    assert "Traceback" not in done.err


def test_a_reader_that_goes_away_is_no_error() -> None:
    command = f"{sys.executable} -m aot explain | head -n 1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == "0"


def test_no_colour_but_on_a_terminal(cli: Cli) -> None:
    assert "\x1b" not in cli("doctor").out


def test_quiet_prints_nothing(cli: Cli) -> None:
    assert cli("boards", "-q").out == ""


def test_every_code_in_the_sources_is_explained() -> None:
    """And every explanation's code is still raised somewhere."""
    root = Path(aot.__file__).parent
    used = set()
    for path in root.rglob("*.py"):
        if path.parent != root / "errors":
            used |= set(re.findall(r"\bE[1-9]\d{3}\b", path.read_text(encoding="utf-8")))
    assert used - set(codes()) == set()
    assert set(codes()) - used == set()


def test_explain(cli: Cli) -> None:
    assert cli("explain", "e1203").out.startswith("E1203: ")
    assert len(cli("explain", "--json").json["codes"]) == len(codes())


def test_lists_have_the_same_content_as_text_and_as_json(cli: Cli) -> None:
    names = [t["name"] for t in cli("targets", "--json").json["targets"]]
    text = cli("targets").out
    assert names
    assert all(name in text for name in names)
    boards = cli("boards", "--json").json["boards"]
    assert {"host", "mps2-an386", "mps3-an547"} <= {b["name"] for b in boards}
    one = cli("boards", "mps2-an386", "--json").json
    assert one == next(b for b in boards if b["name"] == "mps2-an386")
    assert "SSRAM23" in cli("boards", "mps2-an386").out


def test_doctor_tells_what_is_missing(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOT_QEMU_SYSTEM_ARM", os.path.join("nowhere", "qemu"))
    done = cli("doctor")
    assert done.code == 6
    assert "MISSING  qemu-system-arm" in done.out
    assert "apt-get install qemu-system-arm" in done.out
    found = {f["name"]: f for f in cli("doctor", "--json").json["findings"]}
    assert not found["qemu-system-arm"]["ok"]
    assert found["numpy"]["ok"]


def test_run_returns_the_code_of_the_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "targets" in ALL
    assert run(["targets", "-q"]) == 0
