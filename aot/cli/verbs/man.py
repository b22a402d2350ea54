"""`aot man [VERB]`: manual pages for man(1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from aot.cli import completion
from aot.cli.options import JsonFlag, QuietFlag
from aot.cli.output import Output
from aot.errors import Problem, UsageError
from aot.support.near import did_you_mean

NAME = "man"

Verb = Annotated[
    str | None,
    typer.Argument(
        metavar="VERB", autocompletion=completion.verbs, help="Whose page; default: that of aot itself.", show_default=False
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Write all pages there, such as ~/.local/share/man/man1."),
]


def command(
    ctx: typer.Context,
    verb: Verb = None,
    *,
    folder: Folder = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Print a manual page for man(1), or write all of them into a folder. To read one: aot man compile | man -l -"""
    from aot.cli.files import check_usable, write_file
    from aot.cli.man import SECTION, pages

    program: Any = ctx.find_root().command
    out, every = Output(json=as_json, quiet=quiet), pages(program)
    if folder is not None:
        if verb is not None:
            raise UsageError(Problem("E5017", "-o writes all pages; without VERB"))
        check_usable(folder)
        for name, text in every.items():
            write_file(folder / name, text)
        out.row("write", f"{len(every)} pages to {folder}")
        out.result({"ok": True, "output": str(folder), "files": list(every)})
        return
    name = f"aot-{verb}.{SECTION}" if verb else f"aot.{SECTION}"
    if name not in every:
        near = did_you_mean(verb or "", program.commands)
        raise UsageError(Problem("E5000", f"there is no verb {verb!r}{near}; see aot --help"))
    out.line(every[name].rstrip("\n"))
    out.result({"page": name, "text": every[name]})
