"""Shell completion of values: boards, targets, error codes, and names in a model (`aot --install-completion`).

A completer returns the words that begin with what was typed, each with a help text for shells that show one.  It must be fast and
print nothing.  If it fails, there is no completion: half-typed words are often invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from aot.frontend.tflite.view import ModelView


Words = list[tuple[str, str]]
Complete = Callable[[typer.Context, str], Words]


def completer(words: Callable[[typer.Context], Iterable[tuple[str, str]]], *, listed: bool = False) -> Complete:
    """A completer for `autocompletion=`; `listed`: the value is a comma-separated list, and its last word is completed."""

    def complete(ctx: typer.Context, incomplete: str) -> Words:
        before, comma, last = incomplete.rpartition(",") if listed else ("", "", incomplete)
        typed = set(before.split(","))
        try:
            matches = [(w, text) for w, text in words(ctx) if w.lower().startswith(last.lower()) and w not in typed]
        except Exception:  # a traceback would appear in the middle of the user's command line
            return []
        return [(before + comma + word, text) for word, text in matches]

    return complete


def choices(*words: str, listed: bool = False) -> Complete:
    """A completer for these words."""
    return completer(lambda ctx: ((w, "") for w in words), listed=listed)


def _boards(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.micro.board import board_names, load_board

    return [(name, load_board(name).title) for name in board_names()]


def _targets(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.target.cpu import CORES

    return [(core.name, core.description) for core in CORES.values()]


def _oracles(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.driver.oracles import oracles

    return [(name, "") for name in oracles()]


def _kinds(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.micro.new.generate import project_kinds

    return [(name, "") for name in project_kinds()]


def _codes(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.errors.explanations import codes, explanation

    yield from ((code, page.title) for code in codes() if (page := explanation(code)) is not None)


def _operators(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.frontend.tflite.schema import enums

    return [(name, "operator") for name in sorted(enums()["BuiltinOperator"])]


def _verbs(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    program: Any = ctx.find_root().command
    return [(name, verb.get_short_help_str()) for name, verb in sorted(program.commands.items())]


def _parts(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.report.measure.gate import FIELDS

    return [(name, "") for name in FIELDS]


def _passes(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.ir.transform import all_passes, is_pass

    is_pass("")  # loads the compiler's passes
    return [(p.name, (p.doc or "").partition("\n")[0]) for p in all_passes()]


def _model(ctx: typer.Context) -> ModelView | None:
    """The model on the command line; None if there is none or it cannot be parsed."""
    from aot.driver.reading import read_limited
    from aot.frontend.problems import Problems
    from aot.frontend.tflite.view import parse

    models: Any = ctx.params.get("model") or ctx.params.get("models") or ()
    # click stops parsing at an option without its value: what follows is in ctx.args
    words = [*models, *ctx.args] if isinstance(models, (list, tuple)) else [models]
    path = next((Path(w) for w in words if Path(w).is_file()), None)
    return None if path is None else parse(read_limited(path), Problems())


def _signatures(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    view = _model(ctx)
    return [] if view is None else [(s.key, f"subgraph {s.subgraph}") for s in view.signatures]


def _subgraphs(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    view = _model(ctx)
    return [] if view is None else [(str(i), g.name) for i, g in enumerate(view.subgraphs)]


def _inputs(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    """`NAME=` of each input of the first graph, for --shape and --slide."""
    view = _model(ctx)
    for i in view.subgraphs[0].inputs if view is not None else ():
        tensor = view.subgraphs[0].tensors[i]  # type: ignore[union-attr]
        yield f"{tensor.name}=", f"{list(tensor.shape)}"


def _tensors(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    """`NAME=` of each input and of each operator's outputs, for --pin."""
    view = _model(ctx)
    if view is not None:
        graph = view.subgraphs[0]
        for i in (*graph.inputs, *(t for op in graph.operators for t in op.outputs)):
            yield f"{graph.tensors[i].name}=", f"{list(graph.tensors[i].shape)}"


verbs = completer(_verbs)
boards = completer(_boards)
board_list = completer(_boards, listed=True)
targets = completer(_targets)
oracles = completer(_oracles)
kinds = completer(_kinds)
passes = completer(_passes)
fingerprint_parts = completer(_parts)
signatures = completer(_signatures)
subgraphs = completer(_subgraphs)
inputs = completer(_inputs)
tensors = completer(_tensors)
explained = completer(lambda ctx: [*_codes(ctx), *_operators(ctx)])


# ---- `--show-completion` and `--install-completion`, for a named shell or the running one
# Typer's own options accept no name, and fail if no parent process is a shell (under cron, for example).


SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def shell_script(option: str, names: Sequence[str]) -> int:
    """Print or install the script; `names`: the words after the option.  A usage error for a shell without a script."""
    from typer.completion import get_completion_script, install  # type: ignore[attr-defined]

    if len(names) > 1 or not set(names) <= set(SHELLS):
        raise typer.BadParameter(f"{option} {' '.join(names)}: choose one of {', '.join(SHELLS)}")
    shell = names[0] if names else _running(option)
    if option == "--show-completion":
        print(get_completion_script(prog_name="aot", complete_var="_AOT_COMPLETE", shell=shell))
        return 0
    _, path = install(shell, prog_name="aot", complete_var="_AOT_COMPLETE")
    print(f"{shell} completion installed in {path}; it takes effect in the next terminal")
    return 0


def _running(option: str) -> str:
    """The shell that runs this process; a usage error if there is none or it has no script."""
    import shellingham

    try:
        shell = str(shellingham.detect_shell()[0])
    except shellingham.ShellDetectionFailure:
        shell = ""
    if shell not in SHELLS:
        what = f"there is no script for {shell}" if shell else "no shell detected"
        raise typer.BadParameter(f"{option}: {what}; name one of {', '.join(SHELLS)}, as in aot {option} bash")
    return shell
