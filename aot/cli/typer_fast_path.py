"""Values of options that need no validation, so that most runs do without the library that typer validates with.

Some releases of typer make a pydantic adapter of every option of a verb, given or not, which takes longer than reading a model.
A text is its own value, a path is made of one, and what was not given has its default; all else is left to typer. Releases whose
parameters have no `get_runtime_param` are left alone: the saving is lost, the values are the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin

import typer


def plain_values(program: Any) -> Any:
    """The click command `program`, its verbs too, whose values are validated only where it matters."""
    root = typer.Context(program, info_name=program.name, **program.context_settings)
    verbs = [typer.Context(verb, parent=root, info_name=name) for name, verb in program.commands.items()]
    for ctx in (root, *verbs):
        for parameter in ctx.command.get_params(ctx):  # --help, too, which is made then
            described = getattr(parameter, "type_descriptor", None)
            if hasattr(parameter, "get_runtime_param") and all(hasattr(described, a) for a in ("annotation", "parameter_info")):
                parameter.get_runtime_param = _Plain(parameter.get_runtime_param)
    return program


class _Plain:
    """In place of a parameter's `get_runtime_param`: the value where there is nothing to check, else what typer makes of it."""

    def __init__(self, of_typer: Callable[[], Any]) -> None:
        self._of_typer = of_typer

    def __call__(self) -> _Plain:
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of_typer(), name)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        kind, about = param.type_descriptor.annotation, param.type_descriptor.parameter_info
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if not several and value is param.default and isinstance(value, str | int | float):
            return value
        if about.parser is None and not (about.exists or about.writable or about.resolve_path):
            one = get_args(kind)[0] if get_origin(kind) is list else kind
            values = list(value) if several and isinstance(value, list | tuple) else [value]
            made = [_made(v, one) for v in values]
            if None not in made and several == (get_origin(kind) is list):
                return made if several else made[0]
        return self._of_typer().coerce(value, param=param, ctx=ctx)


def _made(value: Any, kind: Any) -> str | Path | None:
    """The value of a word; None where typer has to look at it, as at a file that cannot be read."""
    if not isinstance(value, str):
        return None
    if kind is str:
        return value
    readable = kind is Path and "\0" not in value and (os.access(value, os.R_OK) or not os.path.exists(value))
    return Path(value) if readable else None
