"""The table of verbs, and the program made of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_origin

import typer

from aot.version import __version__

VERBS = {
    "check": "check", "compile": "compile", "build": "compile", "new": "new", "run": "run", "verify": "run", "report": "report",
    "profile": "report", "diff": "report", "explore": "check", "tune": "check", "dump": "compile", "explain": "about",
    "doctor": "about", "ops": "about", "targets": "about", "boards": "about", "man": "about",
}  # fmt: skip
"""Verb -> its module in aot/cli/verbs, in which the function `aot_VERB` is the verb."""

COMPLETION = ("--show-completion", "--install-completion")
"""Typer's options, which detect the running shell; here the name of a shell may follow."""

_EPILOG = (
    "For an error's explanation: aot explain E1203. Exit codes: 0 ok, 1 internal error, 2 usage, 3 model, 4 does not fit,"
    " 5 outputs differ, 6 tool chain."
)


def _print_version(requested: bool) -> None:
    if requested:
        typer.echo(f"aot {__version__}")
        raise typer.Exit


def make_app(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """A new application with these verbs; the modules of other verbs are not imported."""
    app = typer.Typer(
        name="aot",
        help="Compile TensorFlow Lite models to plain C for Arm Cortex-M, and verify the result on this machine.",
        epilog=_EPILOG,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
    ) -> None:
        """Compile TensorFlow Lite models to plain C for Arm Cortex-M, and verify the result on this machine."""

    for verb in verbs:
        module = import_module(f"aot.cli.verbs.{VERBS[verb]}")
        app.command(verb)(getattr(module, f"aot_{verb}"))
    return app


def run_app(arguments: Sequence[str]) -> Any:
    """Run the verb named by the first argument; if there is none, load all verbs (for help, completion and errors)."""
    option, has_value, value = arguments[0].partition("=") if arguments else ("", "", "")
    if option in COMPLETION:
        from aot.cli.completion import shell_script

        return shell_script(option, [value, *arguments[1:]] if has_value else arguments[1:])
    plain = bool(arguments) and arguments[0] in VERBS and arguments[0] != "man"  # man describes all verbs
    command = typer.main.get_command(make_app(arguments[:1] if plain else VERBS))
    return plain_values(command).main(args=list(arguments), prog_name="aot", standalone_mode=False)


# ---- conversion of simple option values without pydantic, which typer would import to validate them
# Some releases of typer build a pydantic adapter for every option of a verb, used or not, which is slower than reading a model.
# Strings, paths and defaults are converted here; everything else is left to typer. Releases whose parameters have no
# `get_runtime_param` are left alone: the values are the same, only slower.


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
