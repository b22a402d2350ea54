"""The table of verbs."""

from __future__ import annotations

import typer

from aot.cli.verbs import boards, build, check, diff, doctor, dump, explain, explore, man, new, ops, report, run, targets, verify
from aot.cli.verbs import compile as compile_verb
from aot.version import __version__

_EPILOG = (
    "Errors have codes: aot explain E1203. Exit: 0 ok, 1 internal, 2 usage, 3 model, 4 does not fit, 5 differs, 6 tool chain."
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"aot {__version__}")
        raise typer.Exit


def make_app() -> typer.Typer:
    """A fresh application with all verbs."""
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

    for module in (
        check,
        compile_verb,
        build,
        new,
        run,
        verify,
        report,
        diff,
        explore,
        dump,
        explain,
        doctor,
        ops,
        targets,
        boards,
        man,
    ):
        app.command(module.NAME)(module.command)
    return app
