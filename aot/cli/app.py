"""The table of verbs."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from aot.cli.typer_fast_path import plain_values
from aot.version import __version__

VERBS = (
    "check",
    "compile",
    "build",
    "new",
    "run",
    "verify",
    "report",
    "profile",
    "diff",
    "explore",
    "tune",
    "dump",
    "explain",
    "doctor",
    "ops",
    "targets",
    "boards",
    "man",
)
"""Each verb is the module of that name in aot/cli/verbs."""

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


def make_app(verbs: Sequence[str] = VERBS) -> typer.Typer:
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
        module = import_module(f"aot.cli.verbs.{verb}")
        app.command(module.NAME)(module.command)
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
