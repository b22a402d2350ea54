"""`aot man [VERB]`: manual pages for man(1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from aot.cli import completion
from aot.cli.options import JsonFlag, QuietFlag
from aot.cli.output import Output
from aot.errors import Problem, UsageError
from aot.support.suggestions import did_you_mean
from aot.version import __version__

NAME = "man"

Verb = Annotated[
    str | None,
    typer.Argument(
        metavar="VERB", autocompletion=completion.verbs, help="The verb; default: the page of aot itself.", show_default=False
    ),
]
Folder = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="DIR", help="Write all pages to this folder, such as ~/.local/share/man/man1."),
]


def command(
    ctx: typer.Context,
    verb: Verb = None,
    *,
    folder: Folder = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Print a manual page for man(1), or write all pages to a folder. To read one: aot man compile | man -l -"""
    from aot.cli.files import check_usable, write_file

    program: Any = ctx.find_root().command
    out, every = Output(json=as_json, quiet=quiet), pages(program)
    if folder is not None:
        if verb is not None:
            raise UsageError(Problem("E5017", "-o writes all pages; leave out VERB"))
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


# ---- the pages (roff, man(7)), generated from the program: `aot.1` and one `aot-VERB.1` per verb


SECTION = "1"

_EXITS = (
    ("0", "ok"),
    ("1", "internal error: a bug in aot (E9xxx)"),
    ("2", "wrong usage, or a file problem (E5xxx)"),
    ("3", "the model is malformed or not supported (E1xxx)"),
    ("4", "the model does not fit the board or a budget (E2xxx)"),
    ("5", "an output differs from the reference, or the program crashed (E4xxx)"),
    ("6", "a compiler or the emulator is missing or failed (E3xxx)"),
    ("130", "interrupted"),
)
_VARIABLES = (
    ("AOT_CACHE", "the folder of compiled models; default: aot in $XDG_CACHE_HOME or ~/.cache"),
    ("AOT_NO_CACHE", "1: do not cache compiled models"),
    ("AOT_DEBUG", "1: print a traceback for every error"),
    ("NO_COLOR", "any value: no colours on a terminal"),
)


def pages(program: Any) -> dict[str, str]:
    """File name -> text of every page; `program` is the click group of all verbs."""
    verbs = dict(sorted(program.commands.items()))
    main_page = {f"aot.{SECTION}": _program_page(program, verbs)}
    return main_page | {f"aot-{name}.{SECTION}": _verb_page(name, verb, list(verbs)) for name, verb in verbs.items()}


def _program_page(program: Any, verbs: dict[str, Any]) -> str:
    lines = [*_head("aot", _summary(program)), ".SH SYNOPSIS", ".B aot", r"\fIVERB\fR [\fIOPTIONS\fR] ..."]
    lines += [".SH DESCRIPTION", _text(program.help), ".SH VERBS"]
    for name, verb in verbs.items():
        lines += [".TP", rf"\fBaot\-{_text(name)}\fR(1)", _text(_summary(verb))]
    lines += [*_options(program), *_table("EXIT STATUS", _EXITS), *_table("ENVIRONMENT", _VARIABLES)]
    return "\n".join([*lines, ".SH SEE ALSO", *_see([f"aot-{v}" for v in verbs])]) + "\n"


def _verb_page(name: str, verb: Any, verbs: list[str]) -> str:
    lines = [*_head(f"aot-{name}", _summary(verb)), ".SH SYNOPSIS", rf"\fBaot {_text(name)}\fR [\fIOPTIONS\fR]{_words(verb)}"]
    lines += [".SH DESCRIPTION", _text(verb.help), *_options(verb), *_table("EXIT STATUS", _EXITS)]
    return "\n".join([*lines, ".SH SEE ALSO", *_see(["aot", *(f"aot-{v}" for v in verbs if v != name)])]) + "\n"


def _head(title: str, summary: str) -> list[str]:
    """The header and NAME section; the date is empty so that the same version gives the same page."""
    name = _text(title)
    return [f'.TH "{name.upper()}" "{SECTION}" "" "aot {__version__}" "aot"', ".SH NAME", rf"{name} \- {_text(summary)}"]


def _see(names: list[str]) -> list[str]:
    return [f".BR {_text(n)} ({SECTION}){',' if n != names[-1] else ''}" for n in names]


def _summary(command: Any) -> str:
    """The first sentence of the help, without its full stop."""
    return str(re.split(r"(?<=[a-z)])\. ", " ".join((command.help or "").split()), maxsplit=1)[0]).rstrip(".")


def _words(verb: Any) -> str:
    arguments = [p for p in verb.params if p.param_type_name == "argument"]
    return "".join(rf" \fI{_text(_name(p))}\fR" if p.required else rf" [\fI{_text(_name(p))}\fR]" for p in arguments)


def _name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper()).strip("[]")


def _options(command: Any) -> Iterator[str]:
    """Arguments first, then options, each with its help and default."""
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    for title, kind in (("ARGUMENTS", "argument"), ("OPTIONS", "option")):
        chosen = [p for p in shown if p.param_type_name == kind]
        if chosen:
            yield f".SH {title}"
        for p in chosen:
            yield from (".TP", _term(p) if kind == "option" else rf"\fI{_text(_name(p))}\fR", _text(_help(p)))


def _term(option: Any) -> str:
    names = ", ".join(rf"\fB{_text(o)}\fR" for o in (*option.opts, *option.secondary_opts))
    flag = option.is_flag or option.count
    return names if flag else rf"{names} \fI{_text(option.metavar or option.name.upper())}\fR"


def _help(parameter: Any) -> str:
    text = " ".join((getattr(parameter, "help", "") or "").split()) or parameter.name
    default = parameter.default
    has_default = not (parameter.required or callable(default) or default in (None, False, True, (), ...))
    return f"{text} Default: {default}." if has_default and "efault" not in text else text


def _table(title: str, rows: tuple[tuple[str, str], ...]) -> Iterator[str]:
    yield f".SH {title}"
    for name, text in rows:
        yield from (".TP", rf"\fB{_text(name)}\fR", _text(text))


def _text(text: str | None) -> str:
    """`text` as one line of roff: special characters escaped, and no leading dot, which would start a request."""
    line = " ".join((text or "").split()).replace("\\", r"\e").replace("-", r"\-")
    line = line.replace("'", r"\(aq").replace("^", r"\(ha").replace("~", r"\(ti").replace("`", r"\(ga")
    return rf"\&{line}" if line.startswith(".") else line
