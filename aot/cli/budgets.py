"""--ram-budget, --flash-budget and --budget FILE: nothing is written if one is exceeded."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
import typer.main

from aot.cli.options import CompileOptions, compiles, words_of
from aot.errors import Problem, TargetError, UsageError

if TYPE_CHECKING:
    from aot.cli.output import Output
    from aot.micro.build.project import Project
    from aot.report.gate.budget import Budget


FORCE = "--force-over-budget writes the files anyway"


def check_budgets(models: Sequence[Mapping[str, Any]], *, force: bool) -> None:
    """Raise TargetError (exit 4) with every budget that is exceeded, unless `force`."""
    from aot.executor.artifact import over_budget

    problems = [p for m in models for p in over_budget(m)]
    if problems and not force:
        raise TargetError(*(replace(p, message=f"{p.message}; {FORCE}") for p in problems))


def compiled_totals(metadata: Mapping[str, Any]) -> dict[str, int | None]:
    """The totals of a budget file that are known after compilation."""
    return {"workspace": metadata["workspace"]["size"], "constants": metadata["constants"]["size"], "macs": metadata["macs"]}


def built_totals(project: Project) -> dict[str, int | None]:
    """The totals that are known after linking, as in `aot report`."""
    from aot.micro.build.image import inspect_image

    totals = compiled_totals(project.artifact.metadata)
    if project.board.is_host:
        return totals
    image = inspect_image(project)
    sizes = {"flash": image.flash, "code": image.flash - image.constants, "constants": image.constants}
    return {**totals, **sizes, "ram": image.ram + image.stack_bound, "stack_bound": image.stack_bound, "heap": 0}


def open_budget(file: Path | None) -> Budget | None:
    """The budget of --budget FILE (E5001, E5002, E5052)."""
    if file is None:
        return None
    from aot.report.gate.budget import load_budget

    return load_budget(file, Path())


def check_budget_file(
    budget: Budget | None, totals: Mapping[str, int | None], *, name: str, board: str, force: bool, out: Output
) -> None:
    """Check the absolute limits of a budget file; E5387 (exit 4) for each that is exceeded, unless `force`.

    Limits that need a run or a baseline are checked by `aot report` only; the row says how many.
    """
    if budget is None:
        return
    from aot.report.gate.budget import METRICS, check_report

    report = {"name": name, "board": board, "totals": totals}
    limits = [x for m in METRICS for x in budget.limits(report, m) or ()]
    judged = [f for f in check_report(report, budget, None) if f.state != "new"]
    unchecked = len(limits) - len(judged)
    over = [f for f in judged if f.state == "over"]
    left = f", {unchecked} left to aot report" if unchecked else ""
    out.row("budget", f"{budget.file}: {len(judged) - len(over)} of {len(judged)} limits met{left}")
    if over and not force:
        raise TargetError(*(Problem("E5387", f"{f.text}; {FORCE}", f.key) for f in over))


# ---- a budget file's options for a model: `options = "--opt ram --ram-budget 20KiB"`


_ClickUsageError: type[Exception] = typer.BadParameter.__bases__[0]  # typer carries its own copy of click since 0.26


def options_for(options: CompileOptions, budget: Budget | None, *, name: str, board: str) -> CompileOptions:
    """The options to compile a model with on a board: the budget file's override the command line's (E5052).

    Repeatable options accumulate.
    """
    more = budget.options_of(name, board) if budget is not None else ()
    if budget is None or not more:
        return options
    try:
        merged = parse_options([*shlex.split(" ".join(words_of(options, leave_out=("name",)))), *more])
        return replace(merged, name=options.name)
    except _ClickUsageError as error:
        message = str(getattr(error, "format_message", lambda: "")()).rstrip(".")
        where = f"{budget.file}: options of {name}@{board}"
        raise UsageError(Problem("E5052", f"{message}; in '{shlex.join(more)}'", where)) from None


def parse_options(words: list[str]) -> CompileOptions:
    """The options in these words, as the verbs that compile parse them; raises click's usage error for unknown ones."""
    parsed: list[CompileOptions] = []

    @compiles(leave_out=("name",))
    def keep(*, options: CompileOptions) -> None:
        parsed.append(options)

    app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": []})
    app.command()(keep)
    program: Any = typer.main.get_command(app)
    program(args=words, prog_name="options", standalone_mode=False)
    return parsed[0]
