"""`aot explain CODE`: what an error means and how to fix it; for an operator, what is supported or missing."""

from __future__ import annotations

from typing import Annotated

import typer

from aot.cli import completion
from aot.cli.options import JsonFlag, QuietFlag
from aot.cli.output import Output
from aot.errors import Problem, UsageError
from aot.support.suggestions import did_you_mean

NAME = "explain"


def command(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            autocompletion=completion.explained,
            help="An error code (E1203) or an operator (WHILE); default: list all codes.",
        ),
    ] = None,
    *,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Explain an error code or an operator, or list all error codes."""
    from aot.cli.verbs.ops import operator_names
    from aot.errors.explanations import codes, explanation

    out = Output(json=as_json, quiet=quiet)
    if code is None:
        rows = [{"code": c, "title": page.title} for c in codes() if (page := explanation(c)) is not None]
        out.table(("code", "meaning"), [(r["code"], r["title"]) for r in rows])
        out.result({"codes": rows})
        return
    entry = _of_error(code.upper()) or _operator(code)
    if entry is None:
        hint = did_you_mean(code, [*codes(), *operator_names()])
        message = f"there is no error code or operator '{code}'{hint}; aot explain lists the codes, aot ops the operators"
        raise UsageError(Problem("E5008", message))
    title, text = entry
    code = code if ":" in code else code.upper()
    out.prose(f"{code}: {title}\n\n{text}")
    out.result({"code": code, "title": title, "text": text})


def _of_error(code: str) -> tuple[str, str] | None:
    """Title and text of an error's page, with its examples; None if there is no such code."""
    from aot.errors.explanations import explanation

    page = explanation(code)
    if page is None:
        return None
    text = page.text
    for word, example in (("Fails", page.fails), ("Works", page.works)):
        if example is not None:
            text += "".join(f"\n\n{word}, {name}:\n\n{_indented(content)}" for name, content in example.files)
            text += f"\n\n{word}:\n\n{_indented(example.code)}"
    return page.title, text


def _indented(code: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in code.rstrip("\n").split("\n"))


def _operator(name: str) -> tuple[str, str] | None:
    """Title and text about an operator; None if the name is unknown."""
    from aot.cli.verbs.ops import operator_rows
    from aot.frontend.tflite.missing import needs_of

    operator = name if ":" in name else name.upper()
    row = next((r for r in operator_rows() if r["operator"] == operator), None)
    if row is None:
        needs = needs_of(operator)
        return None if needs is None else ("an operator that is not supported", needs.text)
    text = f"Types: {', '.join(row['types'])}.\nKernels: {', '.join(row['kernels'])}.\nOracle: {row['oracle']}."
    return "an operator that is supported", f"{text}\n{row['file']}: {row['doc']}"
