"""`aot profile MODEL --from LOG`: add per-layer cycles measured by the user's firmware to the report of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from aot.cli.options import DEFAULT_BOARD, BoardName, CompileOptions, JsonFlag, ModelPath, QuietFlag, VerboseFlag, compiles
from aot.cli.output import Output
from aot.cli.verbs.report import FILES, contents, show_one, work

NAME = "profile"

Log = Annotated[
    Path,
    typer.Option("--from", metavar="LOG", help="The output of the firmware (docs/rtos.md).", show_default=False),
]
Folder = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Also write the report's files to this folder.")
]


@compiles()
def command(
    model: ModelPath,
    *,
    log: Log,
    board: BoardName = None,
    output: Folder = None,
    options: CompileOptions,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Add per-layer cycles measured by your firmware to the report of MODEL. Give the same options as when you compiled it.

    A board that is connected over GDB is not touched: its emulated twin provides instructions and sizes.
    """
    from aot.cli.common import find_board
    from aot.cli.files import check_usable, write_file
    from aot.driver.model_file import read_model
    from aot.driver.reading import read_limited
    from aot.micro.board import EMULATED
    from aot.report.gate.budget import Judged, exit_code
    from aot.report.measure.report import MOST_BYTES, Job, bundle, read_on_target

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    if output is not None:
        check_usable(output)
    text = read_limited(log, limit=MOST_BYTES).decode("utf-8", "replace")
    name = board or DEFAULT_BOARD
    place = f"{EMULATED}{name}" if find_board(name).gdb is not None else name
    how: dict[str, Any] = {
        "compile": options,
        "inputs": None,
        "random": None,
        "timeout": None,
        "folder": output,
        "advice": output is not None,
    }
    how |= {"on_target": lambda metadata: read_on_target(text, metadata)}
    with out.working(f"reporting {model.name} on {place}"):
        report = work(Job(read_model(model), place, how))
    result, judged = bundle([report]), Judged((), None, None)
    show_one(out, result["reports"][0])
    if output is not None:
        for form, written in contents(result, judged, [report]).items():
            write_file(output / FILES[form], written)
        out.row("write", f"{output}: {', '.join(FILES.values())}")
    out.result(result)
    if code := exit_code(result, judged):
        raise typer.Exit(code)
