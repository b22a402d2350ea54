"""`aot dump MODEL`: the intermediate representations of a model, as text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aot.cli import completion
from aot.cli.options import BoardName, CompileOptions, JsonFlag, ModelPath, TargetName, compiles
from aot.cli.output import Output
from aot.errors import Problem, UsageError
from aot.support.suggestions import did_you_mean

if TYPE_CHECKING:
    from aot.ir.module import IRModule
    from aot.ir.transform import Pass

NAME = "dump"

After = Annotated[
    str | None,
    typer.Option(
        "--after",
        metavar="PASS",
        autocompletion=completion.passes,
        help="The module after this pass; default: after the last one.",
        show_default=False,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="relay|tir|c",
        autocompletion=completion.choices("relay", "tir", "c"),
        help="The kind of functions to print; default: all.",
        show_default=False,
    ),
]
StopAfter = Annotated[
    str | None,
    typer.Option(
        "--stop-after",
        metavar="PASS",
        autocompletion=completion.passes,
        help="Stop after the first run of PASS.",
        show_default=False,
    ),
]
AllFolder = Annotated[
    Path | None,
    typer.Option(
        "--all", metavar="DIR", help="Write the module to DIR before the first pass and after each one.", show_default=False
    ),
]
MetadataFlag = Annotated[
    bool, typer.Option("--metadata", help="Append the metadata that aot.ir.parse needs to read the text back.")
]
ListFlag = Annotated[bool, typer.Option("--list", help="List the passes in the order in which they run.")]


def module_text(module: IRModule, form: str | None) -> str:
    """The module's functions of one dialect (all with None), main first."""
    from aot.ir.module import dialect_of

    parts = []
    for name in sorted(module.functions, key=lambda n: (n != "main", n)):
        kind = dialect_of(module[name])
        if form in (None, kind.name):
            parts.append(kind.to_text(module[name], name).rstrip("\n") + "\n")
    return "\n".join(parts)


def new_folder(folder: Path) -> Path:
    """The folder, created if it does not exist; it must be empty (E5004, E5005, E5007)."""
    from aot.cli.files import check_usable
    from aot.system.files import write_error

    check_usable(folder)
    if os.path.exists(folder) and any(folder.iterdir()):
        raise UsageError(Problem("E5004", f"'{folder}' is not empty; name a new folder"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(folder, error) from None
    return folder


def pick(modules: Mapping[str, IRModule], after: str | None, form: str | None) -> tuple[str, str]:
    """(pass, text) of the module after `after`, by default after the last pass with functions of the requested form (E5009)."""
    from aot.ir.transform import pass_name

    if after is not None and pass_name(after) not in modules:
        hint = did_you_mean(pass_name(after), modules)
        raise UsageError(Problem("E5009", f"--after {after}: no such pass ran{hint}; these did: {', '.join(modules)}"))
    for name in list(modules)[::-1] if after is None else [pass_name(after)]:
        text = module_text(modules[name], form)
        if text:
            return name, text
    raise UsageError(Problem("E5009", f"there are no {form} functions after {after or 'any pass'}"))


@compiles()
def command(
    model: ModelPath,
    *,
    after: After = None,
    form: Format = None,
    stop_after: StopAfter = None,
    folder: AllFolder = None,
    list_passes: ListFlag = False,
    metadata: MetadataFlag = False,
    target: TargetName = None,
    board: BoardName = None,
    options: CompileOptions,
    as_json: JsonFlag = False,
) -> None:
    """Print MODEL as a graph (relay), as loop nests (tir) or as C, after any pass."""
    from aot.cli.common import choose_target, compile_model, find_board, request
    from aot.ir.instrument import DumpIR, Stopped
    from aot.ir.instrument import StopAfter as Stop
    from aot.ir.transform import PassContext, PassInstrument

    class Record(PassInstrument):
        """Keeps the module that each pass returned, ordered by the pass's last run."""

        def run_after_pass(self, module: IRModule, info: Pass) -> None:
            ran.append(info.name)
            modules.pop(info.name, None)
            modules[info.name] = module

    if form not in (None, "relay", "tir", "c"):
        raise UsageError(Problem("E5009", f"--format {form}: choose one of relay, tir, c"))
    if form == "c" and stop_after is not None:
        raise UsageError(Problem("E5009", "--stop-after stops before C is generated; choose --format relay or tir"))
    out = Output(json=as_json)
    files = None if folder is None else DumpIR(new_folder(folder))
    stop = None if stop_after is None else Stop(stop_after)
    ran: list[str] = []
    modules: dict[str, IRModule] = {}
    req = request(model, options, target=choose_target(target, find_board(board) if board else None))
    artifact = None
    with PassContext(instruments=[i for i in (Record(), files, stop) if i is not None]), suppress(Stopped):
        artifact = compile_model(req)
    if artifact is not None and stop_after is not None:
        raise UsageError(Problem("E5009", f"--stop-after {stop_after}: the pass did not run"))
    names = list(dict.fromkeys(ran))
    if list_passes:
        out.line("\n".join(names))
        out.result({"passes": names})
        return
    if files is not None:
        out.line("\n".join(str(path) for path in files.files))
        out.result({"model": req.name, "files": [str(path) for path in files.files]})
        return
    if form == "c" and artifact is not None:
        shown, text = "codegen_c", "\n".join(f"/* {file} */\n{content}" for file, content in artifact.files.items())
    else:
        shown, text = pick(modules, after, form)
        if metadata:
            text = modules[shown].astext(show_meta_data=True)
    out.line(text.rstrip("\n"))
    out.result({"model": req.name, "after": shown, "format": form, "text": text})
