"""`aot explore MODEL`: the trade-offs between flash, RAM and time, and the command for each build."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli.options import BoardName, CompileOptions, JsonFlag, ModelPath, QuietFlag, VerboseFlag, compiles, words_of
from aot.cli.output import Output
from aot.cli.workers import Jobs, Scheduler, chosen_pool
from aot.errors import Problem, TargetError

if TYPE_CHECKING:
    from aot.report.explore import Limits, Point

NAME = "explore"
VARIED = ("opt", "flash_budget", "ram_budget", "feed_rows")

Flash = Annotated[str | None, typer.Option("--flash", metavar="SIZE", help="Flash available for constants and kernels.")]
Ram = Annotated[str | None, typer.Option("--ram", metavar="SIZE", help="RAM available for workspace and state.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with a plot, which works offline.")]
Steps = Annotated[int, typer.Option("--steps", metavar="N", min=0, max=64, help="Number of intermediate RAM budgets to try.")]


@compiles(leave_out=(*VARIED, "kernels", "io"))
def command(
    model: ModelPath,
    *,
    options: CompileOptions,
    board: BoardName = None,
    flash: Flash = None,
    ram: Ram = None,
    html: Html = None,
    steps: Steps = 3,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Compile MODEL with many options; print the Pareto-optimal builds in flash, RAM and time, and the boards they fit.

    With --flash or --ram, also print the fastest build within these limits, or the closest misses (exit 4).
    """
    from aot.cli.common import choose_target, find_board, parse_bytes, request
    from aot.cli.files import write_file
    from aot.report.explore import Limits, explore, explore_page, on_boards, pareto

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    place = find_board(board)
    limits = Limits(*(None if s is None else parse_bytes(s, o) for s, o in ((flash, "--flash"), (ram, "--ram"))))
    req = request(model, options, target=choose_target(None, place), board=place)
    pool = chosen_pool(jobs, scheduler)
    with out.working(f"compiling {model.name}"):
        points = explore(req.source, req.options, target=req.target, name=req.name, limits=limits, steps=steps, pool=pool)
    words = ["aot", "compile", shlex.quote(str(model)), "--board", shlex.quote(board or place.name)]
    base = " ".join([*words, *words_of(options, leave_out=VARIED)])
    front = pareto(points)
    rows = [_row(p, base, best=p in front, limits=limits) for p in points]
    boards = {name: None if p is None else f"{base} {p.words}" for name, p in on_boards(points).items()}
    if html is not None:
        write_file(html, explore_page(f"{req.path.name} on {req.target}: {len(front)} of {len(points)} builds", rows, boards))
    _show(out, points if verbose else front, boards)
    chosen = _within(points, limits, base)
    if chosen is not None:
        out.row("fastest", f"within the limits: {base} {chosen.words}")
    out.result({"ok": True, "model": req.name, "target": req.target, "points": rows, "boards": boards,
                "chosen": None if chosen is None else f"{base} {chosen.words}"})  # fmt: skip


def _row(point: Point, base: str, *, best: bool, limits: Limits) -> dict[str, Any]:
    flash, ram, instructions = point.figures
    return {
        "options": point.words, "flash_bytes": flash, "ram_bytes": ram, "instructions": instructions, "pareto": best,
        "fits": limits.excess(point) <= 1, "boards": list(point.boards), "command": f"{base} {point.words}",
    }  # fmt: skip


def _show(out: Output, points: list[Point], boards: dict[str, str | None]) -> None:
    headers = ("instructions", "RAM", "flash", "options")
    out.table(headers, [(f"{p.instructions:,}", f"{p.ram:,}", f"{p.flash:,}", p.words) for p in points])
    out.line()
    for name in (n for n, c in boards.items() if c is None):
        out.row("too large", f"for {name} with all options")


def _within(points: list[Point], limits: Limits, base: str) -> Point | None:
    """The fastest build within the limits, None without limits; E2021 or E2022 with the closest misses if nothing fits."""
    from aot.report.explore import fastest, nearest

    if limits.flash is None and limits.ram is None:
        return None
    chosen = fastest(points, limits)
    if chosen is not None:
        return chosen
    problems = []
    for p in nearest(points, limits):
        over = limits.ram is not None and p.ram > limits.ram
        text = f"nothing fits; {base} {p.words} needs {p.ram:,} B of RAM and {p.flash:,} B of flash, {limits.excess(p):.2f} times"
        problems.append(Problem("E2021" if over else "E2022", f"{text} the limit"))
    raise TargetError(*problems)
