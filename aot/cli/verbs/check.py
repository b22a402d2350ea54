"""`aot check MODEL`: everything that is wrong with a model at once; what it will need; where it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aot.cli.options import BoardName, CompileOptions, JsonFlag, ModelPath, QuietFlag, TargetName, VerboseFlag, compiles
from aot.cli.output import Output
from aot.errors import TargetError

if TYPE_CHECKING:
    from aot.report.measure.fitting import Tries

NAME = "check"


def show_fits(out: Output, rows: list[dict[str, Any]], tries: Tries) -> None:
    """The boards that fit as requested, those that fit in another way, and those that do not."""
    from aot.report.measure.fitting import price_text

    out.row("fits", ", ".join(row["board"] for row in rows if row["fits"] and not row["options"]))
    made = {words: found for words, found in tries.made.items() if found is not None}
    for row in rows:
        if row["fits"] and row["options"]:
            out.row("fits", f"{row['board']} {price_text(made[row['options']], tries.asked)}")
    for row in rows:
        if not row["fits"]:
            out.row("too large", f"for {row['board']} in every mode: {'; '.join(row['problems'])}")


@compiles(leave_out=("name", "kernels", "io"))
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
    """Tell whether MODEL can be compiled, with all problems at once, what memory it needs, and where it fits in which mode."""
    from aot.cli.common import choose_target, find_board, import_text, request
    from aot.frontend.problems import error_of
    from aot.frontend.tflite import check_model
    from aot.report.figures.size import flash_of, operators_of, plan_of
    from aot.report.figures.slide import slide_lines
    from aot.report.measure.fitting import Tries, fitting_boards, price, price_text

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    place = find_board(board) if board else None
    wanted = request(model, options, target=choose_target(target, place), board=place)
    error = error_of(check_model(wanted.data, oracle=wanted.oracle))
    if error is not None:
        raise error
    tries = Tries(wanted.source, wanted.target, wanted.name, wanted.options)
    with out.working(f"compiling {model.name}"):
        found, problems = tries.first_fit(place)
        if found is None:
            raise TargetError(*problems)
        boards = fitting_boards(tries)
    meta = tries.asked.metadata
    out.row("import", import_text(wanted))
    out.row("compile", f"{operators_of(meta)}, for {wanted.target}")
    out.row("plan", plan_of(meta))
    out.row("flash", flash_of(meta))
    for line in slide_lines(meta):
        out.row("slide", line)
    if found is not tries.asked:
        out.row(place.name if place is not None else "budget", f"fits {price_text(found, tries.asked)}")
    show_fits(out, boards, tries)
    keys = ("name", "shape", "dtype", "scale", "zero_point")
    out.result({
        "ok": True, "model": wanted.name, "problems": [], "target": wanted.target,
        "inputs": [{k: t.get(k) for k in keys} for t in meta["inputs"]],
        "outputs": [{k: t.get(k) for k in keys} for t in meta["outputs"]],
        "macs": meta["macs"], "workspace_bytes": meta["workspace"]["size"], "constant_bytes": meta["constants"]["size"],
        **({"state_bytes": meta["state"]["size"]} if "state" in meta else {}), "fit": price(found, tries.asked), "boards": boards,
        **({"slide": meta["slide"]} if "slide" in meta else {}),
    })  # fmt: skip
