"""`aot diff A B`: what changed between two reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from aot.cli.options import JsonFlag, QuietFlag, VerboseFlag
from aot.cli.output import Output
from aot.cli.report import Allow, allowed_parts, show_changes

NAME = "diff"

Before = Annotated[Path, typer.Argument(metavar="A", help="The report.json before, or its folder.", show_default=False)]
After = Annotated[Path, typer.Argument(metavar="B", help="The report.json after, or its folder.", show_default=False)]
Top = Annotated[int, typer.Option("--top", min=1, help="How many layers and symbols to show.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
AnyFingerprint = Annotated[bool, typer.Option("--force", help="Compare whatever differs in the fingerprints.")]


def command(
    a: Before,
    b: After,
    *,
    allow: Allow = None,
    force: AnyFingerprint = False,
    top: Top = 10,
    markdown: AsMarkdown = False,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Compare two reports: totals, and the layers and symbols that moved most; refuses reports of other tools or options."""
    from aot.report.diff import FIELDS, diff_reports, load_reports
    from aot.report.markdown import diff_markdown

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    found = diff_reports(load_reports(a), load_reports(b), allow=FIELDS if force else allowed_parts(allow))
    if markdown and not out.silent:
        typer.echo(diff_markdown(found, top=top), nl=False)
    else:
        show_changes(out, found, top=1_000_000 if verbose else top)
    out.result(found)
