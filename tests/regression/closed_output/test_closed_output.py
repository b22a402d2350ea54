"""A verdict never depends on who reads it: standard output closed, full, or a reader that went away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import pytest

from aot.cli.__main__ import run
from aot.errors import EXIT_VERIFICATION

VERDICTS = """
import sys, typer
from aot.cli.verbs import about
from aot.cli.__main__ import main
from aot.errors import *
def verdict(*_):
    print("x" * 200000)
    KIND
about.Output.table = verdict
main()
"""


def verdict(kind: str, redirect: str) -> tuple[int, str]:
    """Exit code and standard error of a verb that prints much and then ends with `kind`, in a shell with `redirect` behind it."""
    code = VERDICTS.replace("KIND", kind)
    shell = f'"$0" -c "$1" targets {redirect}; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(["bash", "-c", shell, sys.executable, code], capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.parametrize("redirect", ["| true", ">/dev/full 2>/dev/full", ">&- 2>&-"])
def test_a_failed_verdict_stays_one(redirect: str) -> None:
    assert verdict("raise typer.Exit(EXIT_VERIFICATION)", redirect)[0] == EXIT_VERIFICATION


@pytest.mark.slow
@pytest.mark.parametrize("redirect", [">&-", ">/dev/full"])
def test_an_error_stays_one(redirect: str) -> None:
    code, text = verdict('raise ModelError(Problem("E1001", "short"))', redirect)
    assert code == 3
    assert "E1001 short" in text


@pytest.mark.slow
def test_a_lost_result_is_told() -> None:
    """Where all else was well; a reader that goes away by itself is no error."""
    for redirect in (">&-", ">/dev/full"):
        code, text = verdict("pass", redirect)
        assert code == 2
        assert text.startswith("E5060 standard output ")
        assert text.count("\n") == 1
    assert verdict("pass", "| true") == (0, "")


def test_nothing_but_a_verdict_ends_with_0(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for error in (BrokenPipeError(32, "Broken pipe"), SystemExit(0), SystemExit(None)):

        def fail(*_: Any, error: BaseException = error) -> NoReturn:
            raise error

        monkeypatch.setattr("aot.cli.output.Output.table", fail)
        assert run(["targets"]) == 1
        assert capsys.readouterr().err.startswith("E9001 ")


@pytest.mark.slow
def test_programs_we_start_do_not_write_into_our_files(tmp_path: Path) -> None:
    """With descriptor 1 closed the next file opened would be the standard output of every child."""
    code = "import os, sys; from aot.cli.__main__ import main; import aot.cli.verbs.about as t\n"
    code += f"t.examine = None; f = None\ndef table(*_): os._exit(os.open({str(tmp_path / 'f')!r}, os.O_CREAT))\n"
    code += "t.Output.table = table\nmain()"
    done = subprocess.run(
        ["bash", "-c", '"$0" -c "$1" targets <&- >&- 2>&-', sys.executable, code], check=False, env=dict(os.environ)
    )
    assert done.returncode > 2
