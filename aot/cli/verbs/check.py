"""`aot check`, `aot explore` and `aot tune`: whether a model fits, its trade-offs, and the cost of its kernels on a board."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from aot.cli import common
from aot.cli.files import write_file
from aot.cli.options import BoardName, CompileOptions, Jobs, ModelPath, Scheduler, TargetName, option, verb, words_of
from aot.cli.output import Output
from aot.errors import Problem, TargetError, VerificationError

if TYPE_CHECKING:
    from aot.driver.front import Outline
    from aot.driver.options import Options
    from aot.micro.board import Board
    from aot.report.explore import Limits, Point
    from aot.report.measure.fitting import Tries
    from aot.tune.record import Record
    from aot.tune.task import Task
    from aot.tune.tune import Tuned


# ---- `aot check MODEL`: all problems of a model, the memory it needs, and the boards it fits
# Estimates from rules and bounds, without generating kernels.  It compiles only with a board, a budget, --feed-rows or pools.


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
    bool, option("--modes/--no-modes", "With --board: link every mode; show the flash and RAM that each needs and lacks.")
]


@verb(leave_out=("name", "kernels", "io"))
def aot_check(
    model: ModelPath,
    *,
    options: CompileOptions,
    target: TargetName = None,
    board: BoardName = None,
    every: ModesFlag = True,
    out: Output,
) -> None:
    """Check whether MODEL compiles: list all problems, the memory it needs, and the boards it fits.

    Without a board or a budget, the answer is a fast estimate. With one, aot compiles and names the mode that fits.
    """
    place = common.find_board(board) if board else None
    req = common.request(model, options, target=common.choose_target(target, place), board=place)
    asked = req.options
    limits = (place, asked.ram_budget, asked.flash_budget)
    if any(x is not None for x in limits) or asked.feed_rows or asked.byoc or asked.pooling != type(asked.pooling)():
        compiled(req, place, out, every=every)
    else:
        outlined(req, out)


def outlined(req: common.Request, out: Output) -> None:
    """Print and return (--json) what the bounds say, without compiling."""
    from aot.driver.front import outline
    from aot.report.figures.size import macs_of, row_search_of, slide_lines

    bounds = outline(req.data, target=req.target, name=req.name, options=req.options)
    boards = fit_estimate(bounds, req.options)
    out.row("import", common.import_text(req))
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


def compiled(req: common.Request, place: Board | None, out: Output, *, every: bool) -> None:
    """Compile in the requested mode, or else in the first mode that fits, and print the result."""
    from aot.driver.front import problems_of
    from aot.frontend.problems import error_of
    from aot.report.figures.size import flash_of, operators_of, plan_of, slide_lines
    from aot.report.measure.fitting import Tries, fast_constants, fitting_boards, price, price_text
    from aot.support.text import shell

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
    out.row("import", common.import_text(req))
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
    from aot.micro.build.project import choose_places

    def has_room(board: Board, workspace: int) -> bool:
        metadata = {
            "workspace": {"size": workspace}, "constants": {"size": bounds.weights}, "opt": options.opt, "io": options.io,
            "layers": [{"constants": 0, "candidates": []}] * bounds.layers, "state": {"size": bounds.state},
            "inputs": bounds.inputs, "outputs": bounds.outputs,
        }  # fmt: skip
        try:
            return board.is_host or bool(choose_places(board, metadata))
        except TargetError:
            return False

    rows = []
    for board in map(load_board, board_names()):
        fits = "likely" if has_room(board, bounds.liveness) else "tight" if has_room(board, bounds.streaming) else "unlikely"
        rows.append({"board": board.name, "cpu": board.cpu, "fits": fits})
    return rows


def figures(bounds: Outline) -> dict[str, Any]:
    """The outline as in --json."""
    rows = asdict(bounds)
    keys = {"liveness": "liveness_bound", "streaming": "streaming_bound", "weights": "weight_bytes", "state": "state_bytes"}
    keys["streaming_least"] = "streaming_lower_bound"
    return {keys.get(k, k): v for k, v in rows.items() if v is not None}


# ---- `aot explore MODEL`: the trade-offs between flash, RAM and time, and the command for each build


VARIED = ("opt", "flash_budget", "ram_budget", "feed_rows")

Flash = Annotated[str | None, option("--flash SIZE", "Flash available for constants and kernels.")]
Ram = Annotated[str | None, option("--ram SIZE", "RAM available for workspace and state.")]
Html = Annotated[Path | None, option("--html FILE", "Write a page with a plot, which works offline.")]
Steps = Annotated[int, option("--steps N", "Number of intermediate RAM budgets to try.", min=0, max=64)]


@verb(leave_out=(*VARIED, "kernels", "io"))
def aot_explore(
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
    out: Output,
) -> None:
    """Compile MODEL with many options; print the Pareto-optimal builds in flash, RAM and time, and the boards they fit.

    With --flash or --ram, also print the fastest build within these limits, or the closest misses (exit 4).
    """
    from aot.report.explore import Limits, explore, explore_page, on_boards, pareto

    place = common.find_board(board)
    limits = Limits(*(None if s is None else common.parse_bytes(s, o) for s, o in ((flash, "--flash"), (ram, "--ram"))))
    req = common.request(model, options, target=common.choose_target(None, place), board=place)
    pool = common.chosen_pool(jobs, scheduler)
    with out.working(f"compiling {model.name}"):
        points = explore(req.source, req.options, target=req.target, name=req.name, limits=limits, steps=steps, pool=pool)
    words = ["aot", "compile", shlex.quote(str(model)), "--board", shlex.quote(board or place.name)]
    base = " ".join([*words, *words_of(options, leave_out=VARIED)])
    front = pareto(points)
    rows = [
        {
            "options": p.words, "flash_bytes": p.flash, "ram_bytes": p.ram, "instructions": p.instructions, "pareto": p in front,
            "fits": limits.excess(p) <= 1, "boards": list(p.boards), "command": f"{base} {p.words}",
        }
        for p in points
    ]  # fmt: skip
    boards = {name: None if p is None else f"{base} {p.words}" for name, p in on_boards(points).items()}
    if html is not None:
        write_file(html, explore_page(f"{req.path.name} on {req.target}: {len(front)} of {len(points)} builds", rows, boards))
    headers, shown = ("instructions", "RAM", "flash", "options"), points if out.verbose else front
    out.table(headers, [(f"{p.instructions:,}", f"{p.ram:,}", f"{p.flash:,}", p.words) for p in shown])
    out.line()
    for name in (n for n, c in boards.items() if c is None):
        out.row("too large", f"for {name} with all options")
    chosen = _within(points, limits, base)
    if chosen is not None:
        out.row("fastest", f"within the limits: {base} {chosen.words}")
    out.result({"ok": True, "model": req.name, "target": req.target, "points": rows, "boards": boards,
                "chosen": None if chosen is None else f"{base} {chosen.words}"})  # fmt: skip


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


# ---- `aot tune MODEL`: measure the kernels of a model on a board, and record the costs for `--tuning`


_OF_MEMORY = ("pool", "pin", "const_pool", "rings", "in_steps", "io", "max_iterations", "ram_budget", "flash_budget")
_NOT_ASKED = ("opt", "kernels", "fast_float", "byoc", "byoc_path", "no_cache", "tuning", *_OF_MEMORY)

Database = Annotated[
    Path,
    option("-o --output FILE", "The records; kernels that are already in FILE are not measured again."),
]
Trials = Annotated[
    int | None,
    option("--trials N", "Measure at most N kernels per layer; default: all that may win.", min=1),
]


@verb(leave_out=_NOT_ASKED)
def aot_tune(
    model: ModelPath,
    *,
    options: CompileOptions,
    board: BoardName = None,
    output: Database = Path("tuning.jsonl"),
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    trials: Trials = None,
    out: Output,
) -> None:
    """Measure on a board every kernel that accepts a layer of MODEL; --tuning FILE then chooses kernels by these records.

    Every output is checked; a kernel with a wrong result is reported (exit 5) and never recorded.
    """
    from aot.target.target import find_target
    from aot.tune import record as database
    from aot.tune.task import extract_tasks
    from aot.tune.tune import tune
    from aot.tune.worker import resource_of

    place = common.find_board(board)
    req = common.request(model, options, target=place.cpu, board=place)
    pool = common.chosen_pool(jobs, scheduler, resource_of(place.name, emulated=place.gdb is None))
    old = database.load(output) if output.exists() else []
    with out.working(f"extracting the tasks of {model.name}"):
        tasks = extract_tasks(req.data, find_target(req.target), name=req.name, options=req.options)
    out.row("tasks", f"{len(tasks)} workloads with {sum(len(t.choices) for t in tasks)} kernels, for {req.target}")
    with out.working(f"measuring on {place.name}"):
        plugins = [str(p.resolve()) for p in options.plugin or ()]
        tuned = tune(
            tasks, place, known=old, trials=trials, pool=pool, plugins=plugins,
            progress=lambda rs: database.save(output, [*old, *rs]),
        )  # fmt: skip
    database.save(output, [*old, *tuned.records])
    rows = _task_rows(tasks, tuned)
    headers = ("layers", "kernels", "best count", "estimated best", "best kernel", "task")
    out.table(headers, [(r["layers"], r["kernels"], r["count"], r["estimated_best_count"], r["best"], r["text"]) for r in rows])
    out.line()
    out.row("measured", f"{tuned.measured} kernels on {place.name}; {len(tuned.left_out)} could not be measured")
    for result in tuned.left_out:
        out.detail(f"   {result.kernel}: {result.problem}")
    out.row("write", f"{output}: {len(database.merged([*old, *tuned.records]))} records")
    if tuned.wrong:
        texts = {t.workload: t.text for t in tasks}
        wrong = [(f"{r.kernel} of this compiler gives a wrong result: {r.wrong}", texts[r.workload]) for r in tuned.wrong]
        raise VerificationError(*(Problem("E5500", text, where) for text, where in wrong))
    out.result({"ok": True, "model": req.name, "target": req.target, "board": place.name, "output": str(output),
                "measured": tuned.measured, "tasks": rows})  # fmt: skip


def _task_rows(tasks: Sequence[Task], tuned: Tuned) -> list[dict[str, Any]]:
    """One row per task: the kernels with the lowest count and with the lowest estimate, and both counts."""
    by_task: dict[str, list[Record]] = {}
    for r in tuned.records:
        by_task.setdefault(r.workload, []).append(r)
    rows = []
    for t in tasks:
        ranked = sorted(by_task.get(t.workload, ()), key=lambda r: (r.count, r.kernel))
        expected = next((r for r in ranked if r.kernel == t.choices[0].kernel), None)
        if ranked:
            rows.append({
                "workload": t.workload, "text": t.text, "layers": t.layers, "kernels": len(t.choices), "best": ranked[0].kernel,
                "count": ranked[0].count, "estimated_best": t.choices[0].kernel,
                "estimated_best_count": None if expected is None else expected.count,
            })  # fmt: skip
    return rows
