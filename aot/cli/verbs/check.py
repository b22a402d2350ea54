"""`aot check MODEL`: everything that is wrong with a model at once; what it will need; where it fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aot.cli.options import BoardName, CompileOptions, JsonFlag, ModelPath, QuietFlag, TargetName, VerboseFlag, compiles
from aot.cli.output import Output

NAME = "check"


def fitting_boards(metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For each board whether the model's workspace and constants fit its memory, and why not."""
    from aot.errors import TargetError
    from aot.micro.board import board_names, load_board
    from aot.micro.build.project import choose_places

    rows = []
    for name in board_names():
        board = load_board(name)
        problems: list[str] = []
        if not board.is_host:
            try:
                choose_places(board, metadata)
            except TargetError as error:
                problems = [p.message for p in error.problems]
        rows.append({"board": name, "cpu": board.cpu, "fits": not problems, "problems": problems})
    return rows


@compiles(leave_out=("name", "opt", "kernels", "flash_budget", "ram_budget", "io", "feed_rows"))
def command(
    model: ModelPath,
    *,
    options: CompileOptions,
    target: TargetName = None,
    board: BoardName = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Tell whether MODEL can be compiled, with all problems at once, what memory it needs and which boards have it."""
    from aot.cli.common import choose_target, compile_model, find_board, import_text, request
    from aot.frontend.problems import error_of
    from aot.frontend.tflite import check_model
    from aot.micro.build.project import choose_places
    from aot.report.figures.size import flash_of, operators_of, plan_of

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    place = find_board(board) if board else None
    wanted = request(model, options, target=choose_target(target, place), board=place)
    error = error_of(check_model(wanted.data, oracle=wanted.oracle))
    if error is not None:
        raise error
    with out.working(f"compiling {model.name}"):
        artifact = compile_model(wanted)
    meta = artifact.metadata
    if place is not None and not place.is_host:
        choose_places(place, meta)
    boards = fitting_boards(meta)
    out.row("import", import_text(wanted))
    out.row("compile", f"{operators_of(meta)}, for {wanted.target}")
    out.row("plan", plan_of(meta))
    out.row("flash", flash_of(meta))
    out.row("fits", ", ".join(row["board"] for row in boards if row["fits"]))
    for row in boards:
        if not row["fits"]:
            out.row("too large", f"for {row['board']}: {'; '.join(row['problems'])}")
    keys = ("name", "shape", "dtype", "scale", "zero_point")
    out.result({
        "ok": True, "model": wanted.name, "problems": [], "target": wanted.target,
        "inputs": [{k: t.get(k) for k in keys} for t in meta["inputs"]],
        "outputs": [{k: t.get(k) for k in keys} for t in meta["outputs"]],
        "macs": meta["macs"], "workspace_bytes": meta["workspace"]["size"], "constant_bytes": meta["constants"]["size"],
        "boards": boards,
    })  # fmt: skip
