"""Manual pages: one a verb with every option, and roff that the formatter has nothing to say about."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import typer.main

from aot.cli.app import make_app
from aot.cli.verbs.about import _roff, pages
from tests.cli.helper import Cli

PROGRAM: Any = typer.main.get_command(make_app())


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return pages(PROGRAM)


def test_every_verb_and_option_has_its_place(made: dict[str, str]) -> None:
    assert set(made) == {"aot.1", *(f"aot-{verb}.1" for verb in PROGRAM.commands)}
    for name, verb in PROGRAM.commands.items():
        text = made[f"aot-{name}.1"].replace(r"\-", "-")
        assert rf"\fBaot-{name}\fR(1)" in made["aot.1"].replace(r"\-", "-")
        for option in (o for p in verb.params if p.param_type_name == "option" for o in (*p.opts, *p.secondary_opts)):
            assert rf"\fB{option}\fR" in text, (name, option)


def test_text_is_escaped() -> None:
    assert _roff(r".TH \fB 'x' a-b") == r"\&.TH \efB \(aqx\(aq a\-b"


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("page", ["aot.1", "aot-compile.1", "aot-verify.1"])
@pytest.mark.parametrize("width", [60, 80])
def test_the_formatter_accepts_them(made: dict[str, str], page: str, width: int) -> None:
    command = ["groff", "-man", "-ww", "-Tascii", f"-rLL={width}n", "-P-cbou"]
    done = subprocess.run(command, input=made[page], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= width
    assert "EXIT STATUS" in done.stdout


def test_the_verb(cli: Cli, tmp_path: Path) -> None:
    assert cli("man", "check").out.startswith('.TH "AOT\\-CHECK"')
    assert cli("man", "-o", tmp_path / "man1").code == 0
    assert sorted(p.name for p in (tmp_path / "man1").iterdir()) == sorted(pages(PROGRAM))
    assert cli("man", "--json").json["page"] == "aot.1"
    done = cli("man", "chek")
    assert done.code == 2
    assert re.search(r"E5000 .*did you mean check", done.err)
