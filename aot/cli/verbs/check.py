"""`aot check MODEL`: all problems of a model, the memory it needs, and the boards it fits.

Estimates from rules and bounds, without generating kernels.  It compiles only with a board, a budget, --feed-rows or pools.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli.options import BoardName, CompileOptions, JsonFlag, ModelPath, QuietFlag, TargetName, VerboseFlag, compiles
from aot.cli.output import Output
from aot.errors import TargetError

if TYPE_CHECKING:
    from aot.cli.common import Request
    from aot.driver.front import Outline
    from aot.driver.options import Options
    from aot.micro.board import Board
    from aot.report.measure.fitting import Tries


NAME = "check"


def show_fits(out: Output, rows: list[dict[str, Any]], tries: Tries) -> None:
    """Print the boards that fit as requested, the boards that fit with other options, and the boards that are too small."""
    from aot.report.measure.fitting import price_text

    out.row("fits", ", ".join(row["board"] for row in rows if row["fits"] and not row["options"]))
    built = {words: build for words, build in tries.made.items() if build is not None}
    for row in rows:
        if row["fits"] and row["options"]:
            out.row("fits", f"{row['board']} {price_text(built[row['options']], tries.asked)}")
    for row in rows:
        if not row["fits"]:
            out.row("too large", f"for {row['board']} in every mode: {'; '.join(row['problems'])}")


def every_mode(tries: Tries, board: Board | None) -> tuple[list[dict[str, Any]], Board | None]:
    """The rows of a board's modes, and the next smaller board; none for this machine, or without a compiler for Arm."""
    from aot.errors import ToolchainError
    from aot.micro.board import board_names, load_board
    from aot.report.measure.fitting import mode_rows, next_smaller

    if board is None or board.is_host:
        return [], None
    smaller = next_smaller(board, map(load_board, board_names()))
    try:
        return mode_rows(tries, board, smaller), smaller
    except ToolchainError:
        return [], None


def show_modes(out: Output, rows: list[dict[str, Any]], board: Board, smaller: Board | None) -> None:
    """Print one line per mode, and the best mode for the next smaller board."""
    from aot.report.measure.fitting import room_for_flash, room_for_ram, shortage_text

    out.rule()
    flash, ram = room_for_flash(board), room_for_ram(board)
    out.line(f" {board.name}: flash {flash:,} B, RAM {ram:,} B. product: RAM includes the worst-case stack;")
    out.line(f" image: the test image, with start-up code, harness and a stack of {board.stack:,} B")
    out.table(
        ("mode", "product: flash", "RAM", "", "image: flash", "RAM", ""),
        [(f"{r['mode']} {r['budgets']}".strip(), r["flash"], r["ram"], shortage_text(r["short"]), r["image_flash"],
          r["image_ram"], "too large" if r["image_fault"] else "links") for r in rows],
    )  # fmt: skip
    if smaller is not None:
        best = min(rows, key=lambda r: sum(r["short_on_smaller"].values()))
        need = shortage_text(best["short_on_smaller"])
        out.row("smaller", f"{smaller.name} ({room_for_ram(smaller):,} B of RAM): {need} in mode {best['mode']}")


def show_hot(out: Output, hot: dict[str, Any], words: str) -> None:
    """Print which constants tightly coupled memory could hold, and the command that measures the gain."""
    from aot.report.measure.fitting import fast_constants_text

    out.row("constants", fast_constants_text(hot))
    out.row("", f"measure the gain with: aot verify {words} {hot['words']}")


ModesFlag = Annotated[
    bool,
    typer.Option("--modes/--no-modes", help="With --board: link every mode; show the flash and RAM that each needs and lacks."),
]


@compiles(leave_out=("name", "kernels", "io"))
def command(
    model: ModelPath,
    *,
    options: CompileOptions,
    target: TargetName = None,
    board: BoardName = None,
    every: ModesFlag = True,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Check whether MODEL compiles: list all problems, the memory it needs, and the boards it fits.

    Without a board or a budget, the answer is a fast estimate. With one, aot compiles and names the mode that fits.
    """
    from aot.cli.common import choose_target, find_board, request

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    place = find_board(board) if board else None
    req = request(model, options, target=choose_target(target, place), board=place)
    asked = req.options
    limits = (place, asked.ram_budget, asked.flash_budget)
    if any(x is not None for x in limits) or asked.feed_rows or asked.byoc or asked.pooling != type(asked.pooling)():
        compiled(req, place, out, every=every)
    else:
        outlined(req, out)


def outlined(req: Request, out: Output) -> None:
    """Print and return (--json) what the bounds say, without compiling."""
    from aot.cli.common import import_text
    from aot.driver.front import outline
    from aot.report.figures.size import macs_of, row_search_of, slide_lines

    bounds = outline(req.data, target=req.target, name=req.name, options=req.options)
    boards = fit_estimate(bounds, req.options)
    out.row("import", import_text(req))
    out.row("layers", f"{bounds.layers}, {macs_of(bounds.macs, bounds.macs_nominal)}")
    state = f" · state {bounds.state:,} B" if bounds.state else ""
    stopped = "" if bounds.streaming_least is None else f" ({row_search_of(bounds.streaming, bounds.streaming_least)})"
    out.row("bounds", f"whole tensors {bounds.liveness:,} B · rows {bounds.streaming:,} B{stopped}{state}")
    out.row("flash", f"constants {bounds.weights:,} B in the graph; kernels optimised for speed may need twice that")
    for line in slide_lines({"slide": bounds.slide, "chain": bounds.chain}):
        out.row("slide", line)
    for verdict, text in (("likely", "fits"), ("tight", "tight"), ("unlikely", "too large")):
        names = ", ".join(row["board"] for row in boards if row["fits"] == verdict)
        if names:
            out.row(text, names)
    out.row("", "estimated; --board NAME compiles and gives exact figures")
    out.result({"ok": True, "model": req.name, "problems": [], "target": req.target, **figures(bounds), "boards": boards})


def compiled(req: Request, place: Board | None, out: Output, *, every: bool) -> None:
    """Compile in the requested mode, or else in the first mode that fits, and print the result."""
    from aot.cli.common import import_text
    from aot.driver.front import problems_of
    from aot.frontend.problems import error_of
    from aot.report.figures.size import flash_of, operators_of, plan_of, slide_lines
    from aot.report.measure.fitting import Tries, fast_constants, fitting_boards, price, price_text
    from aot.support.quote import shell

    error = error_of(problems_of(req.data, req.options))
    if error is not None:
        raise error
    tries = Tries(req.source, req.target, req.name, req.options)
    with out.working(f"compiling {req.path.name}"):
        build, problems = tries.first_fit(place, linked=True)
        rows, smaller = every_mode(tries, place) if every else ([], None)
        if build is None:
            if rows and place is not None:
                show_modes(out, rows, place, smaller)
            raise TargetError(*problems)
        boards = fitting_boards(tries, place)
        hot = fast_constants(tries, place) if place is not None else None
    meta = tries.asked.metadata
    out.row("import", import_text(req))
    out.row("compile", f"{operators_of(meta)}, for {req.target}")
    out.row("plan", plan_of(meta))
    out.row("flash", flash_of(meta))
    for line in slide_lines(meta):
        out.row("slide", line)
    if build.variant.words:
        out.row(place.name if place is not None else "budget", f"fits {price_text(build, tries.asked)}")
    show_fits(out, boards, tries)
    if hot is not None and place is not None:
        show_hot(out, hot, f"{shell(req.path)} --board {shell(place.name)}")
    if rows and place is not None:
        show_modes(out, rows, place, smaller)
    keys = ("name", "shape", "dtype", "scale", "zero_point")
    out.result({
        "ok": True, "model": req.name, "problems": [], "target": req.target,
        "inputs": [{k: t.get(k) for k in keys} for t in meta["inputs"]],
        "outputs": [{k: t.get(k) for k in keys} for t in meta["outputs"]],
        "macs": meta["macs"], "workspace_bytes": meta["workspace"]["size"], "constant_bytes": meta["constants"]["size"],
        **({"state_bytes": meta["state"]["size"]} if "state" in meta else {}), "fit": price(build, tries.asked), "boards": boards,
        **({"fast_constants": hot} if hot is not None else {}),
        **({"modes": rows, "next_smaller": None if smaller is None else smaller.name} if rows else {}),
        **{key: meta[key] for key in ("slide", "chain") if key in meta},
    })  # fmt: skip


# ---- the boards that a model may fit, by bounds


def fit_estimate(bounds: Outline, options: Options) -> list[dict[str, Any]]:
    """Per board, `fits`: "likely" if whole tensors fit, "tight" if they fit row by row, else "unlikely"."""
    from aot.micro.board import board_names, load_board

    boards = [load_board(name) for name in board_names()]
    return [{"board": b.name, "cpu": b.cpu, "fits": _verdict(bounds, options, b)} for b in boards]


def _verdict(bounds: Outline, options: Options, board: Board) -> str:
    if _has_room(bounds, options, board, bounds.liveness):
        return "likely"
    return "tight" if _has_room(bounds, options, board, bounds.streaming) else "unlikely"


def _has_room(bounds: Outline, options: Options, board: Board, workspace: int) -> bool:
    from aot.micro.build.project import choose_places

    if board.is_host:
        return True
    layer = {"constants": 0, "candidates": []}
    metadata = {
        "workspace": {"size": workspace}, "constants": {"size": bounds.weights}, "layers": [layer] * bounds.layers,
        "io": options.io, "opt": options.opt, "state": {"size": bounds.state}, "inputs": bounds.inputs, "outputs": bounds.outputs,
    }  # fmt: skip
    try:
        choose_places(board, metadata)
    except TargetError:
        return False
    return True


def figures(bounds: Outline) -> dict[str, Any]:
    """The outline as in --json."""
    rows = asdict(bounds)
    keys = {"liveness": "liveness_bound", "streaming": "streaming_bound", "weights": "weight_bytes", "state": "state_bytes"}
    keys["streaming_least"] = "streaming_lower_bound"
    return {keys.get(k, k): v for k, v in rows.items() if v is not None}
