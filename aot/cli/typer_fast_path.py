"""Conversion of simple option values without pydantic, which typer would import to validate them.

Some releases of typer build a pydantic adapter for every option of a verb, used or not, which is slower than reading a model.
Strings, paths and defaults are converted here; everything else is left to typer. Releases whose parameters have no
`get_runtime_param` are left alone: the values are the same, only slower.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args, get_origin

import typer


def plain_values(program: Any) -> Any:
    """The click command `program`, patched (with its verbs) to validate only values that need it."""
    root = typer.Context(program, info_name=program.name, **program.context_settings)
    verbs = [typer.Context(verb, parent=root, info_name=name) for name, verb in program.commands.items()]
    for ctx in (root, *verbs):
        for parameter in ctx.command.get_params(ctx):  # includes --help, which is created by this call
            descriptor = getattr(parameter, "type_descriptor", None)
            if hasattr(parameter, "get_runtime_param") and all(hasattr(descriptor, a) for a in ("annotation", "parameter_info")):
                parameter.get_runtime_param = _Plain(parameter.get_runtime_param)
    return program


class _Plain:
    """Replaces a parameter's `get_runtime_param`: converts simple values itself and leaves the others to typer."""

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
            converted = [_convert(v, one) for v in values]
            if None not in converted and several == (get_origin(kind) is list):
                return converted if several else converted[0]
        return self._of_typer().coerce(value, param=param, ctx=ctx)


def _convert(value: Any, kind: Any) -> str | Path | None:
    """The value of one word; None if typer must check it (an unreadable file, for example)."""
    if not isinstance(value, str):
        return None
    if kind is str:
        return value
    readable = kind is Path and "\0" not in value and (os.access(value, os.R_OK) or not os.path.exists(value))
    return Path(value) if readable else None
