"""The options that a budget file has for a model: `options = "--opt ram --ram-budget 20KiB"`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer
import typer.main

from aot.cli.options import CompileOptions, compiles, words_of
from aot.errors import Problem, UsageError

if TYPE_CHECKING:
    from aot.report.gate.budget import Budget

_ClickUsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer carries its own copy of click since 0.26


def options_for(given: CompileOptions, budget: Budget | None, *, name: str, board: str) -> CompileOptions:
    """What a model is compiled with on a board: the command line's options, and over them the budget's (E5052).

    An option that may be repeated keeps what both say.
    """
    more = budget.options_of(name, board) if budget is not None else ()
    if budget is None or not more:
        return given
    try:
        merged = parse_options([*shlex.split(" ".join(words_of(given, leave_out=("name",)))), *more])
        return replace(merged, name=given.name)
    except _ClickUsageError as error:
        said = str(getattr(error, "format_message", lambda: "")()).rstrip(".")
        where = f"{budget.file}: options of {name}@{board}"
        raise UsageError(Problem("E5052", f"{said}; in '{shlex.join(more)}'", where)) from None


def parse_options(words: list[str]) -> CompileOptions:
    """Words of the command line as the verbs that compile have them; click's usage error for others."""
    found: list[CompileOptions] = []

    @compiles(leave_out=("name",))
    def keep(*, options: CompileOptions) -> None:
        found.append(options)

    app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": []})
    app.command()(keep)
    program: Any = typer.main.get_command(app)
    program(args=words, prog_name="options", standalone_mode=False)
    return found[0]
