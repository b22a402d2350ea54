"""`aot explain CODE`: what an error means and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

from aot.cli.options import JsonFlag, QuietFlag
from aot.cli.output import Output
from aot.errors import Problem, UsageError

NAME = "explain"


def command(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="Such as E1203; without it, all codes.", show_default=False)
    ] = None,
    *,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Explain an error code, or list them all."""
    from aot.explain import EXPLANATIONS

    out = Output(json=as_json, quiet=quiet)
    if code is None:
        rows = [{"code": c, "title": title} for c, (title, _) in sorted(EXPLANATIONS.items())]
        out.table(("code", "meaning"), [(r["code"], r["title"]) for r in rows])
        out.result({"codes": rows})
        return
    entry = EXPLANATIONS.get(code.upper())
    if entry is None:
        raise UsageError(Problem("E5008", f"there is no error code '{code}'; aot explain lists them all"))
    title, text = entry
    out.line(f"{code.upper()}: {title}\n\n{text}")
    out.result({"code": code.upper(), "title": title, "text": text})
