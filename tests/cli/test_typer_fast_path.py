"""Values of options, with and without typer's validation: they are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from aot.cli.app import plain_values

MODELS = Path(__file__).resolve().parents[1] / "models"

WORDS: tuple[tuple[str, ...], ...] = (
    ("a.tflite",),
    ("a.tflite", "--text", "x y", "--many", "1", "--many", ""),
    ("", "--text", ""),
    ("a", "b/../c", "--path", "some/./file", "--number", "7", "--flag"),
    ("a", "--path", "/"),
    ("a", "--number", "101"),
    ("a", "--number", "x"),
    ("a", "--no-such",),
    (),
)  # fmt: skip


def _program(got: list[dict[str, Any]]) -> Any:
    app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]}, rich_markup_mode=None)

    @app.callback()
    def root() -> None:
        pass

    @app.command("verb")
    def verb(
        models: Annotated[list[Path], typer.Argument()],
        *,
        text: Annotated[str | None, typer.Option("--text")] = None,
        mode: Annotated[str, typer.Option("--mode")] = "plain",
        many: Annotated[list[str] | None, typer.Option("--many")] = None,
        path: Annotated[Path | None, typer.Option("--path")] = None,
        number: Annotated[int, typer.Option("--number", min=0, max=100)] = 5,
        flag: Annotated[bool, typer.Option("--flag")] = False,
    ) -> None:
        got.append({"models": models, "text": text, "mode": mode, "many": many, "path": path, "number": number, "flag": flag})

    return typer.main.get_command(app)


@pytest.mark.parametrize("words", WORDS)
def test_as_typer_has_them(words: tuple[str, ...]) -> None:
    found = []
    for wrap in (plain_values, lambda program: program):
        got: list[dict[str, Any]] = []
        try:
            wrap(_program(got)).main(args=["verb", *words], prog_name="aot", standalone_mode=False)
            found.append(repr(got))
        except Exception as error:
            found.append(f"{type(error).__name__}: {getattr(error, 'message', error)}")
    assert found[0] == found[1]


def test_other_releases_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter without `get_runtime_param`, as typer before 0.29 makes them, is not touched."""
    for kind in (typer.core.TyperArgument, typer.core.TyperOption):
        for owner in kind.__mro__:
            if "get_runtime_param" in vars(owner):
                monkeypatch.delattr(owner, "get_runtime_param")
    program = _program([])
    before = [dict(vars(p)) for p in program.commands["verb"].params]
    assert plain_values(program) is program
    assert [vars(p) for p in program.commands["verb"].params] == before


def test_a_compilation_does_without(tmp_path: Path) -> None:
    """What takes long to import and is of no use to a compilation is not imported, unless typer itself imports it."""
    heavy = ("pydantic", "elftools", "rich", "highspy", "aot.micro.board", "aot.report.measure.report", "aot.cli.verbs.report")
    code = (
        "import sys, typer, typer.core, typer.main\nof_typer = set(sys.modules)\nfrom aot.cli.__main__ import run\n"
        "code = run(sys.argv[1:])\n"
        f"print('heavy', [m for m in {heavy} if m in set(sys.modules) - of_typer]); sys.exit(code)"
    )
    command = ["compile", str(MODELS / "net_kws_dscnn.tflite"), "-o", str(tmp_path / "o"), "-q"]
    environment = {**os.environ, "AOT_CACHE": str(tmp_path / "cache")}
    for words in (command, [*command, "--force"]):
        done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == "heavy []"
