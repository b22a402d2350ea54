"""Completion of values in the shell: boards, targets, codes, and what a model has (`aot --install-completion`).

A completer returns the words that begin with what was typed, each with a help text where the shell shows one.  It must be quick,
it prints nothing, and an error of its own is no completion: what is typed half-way is wrong most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from aot.frontend.view import ModelView


Words = list[tuple[str, str]]
Complete = Callable[[typer.Context, str], Words]


def completer(words: Callable[[typer.Context], Iterable[tuple[str, str]]], *, listed: bool = False) -> Complete:
    """A completer for `autocompletion=`; `listed`: the value is several words with commas, of which the last is completed."""

    def complete(ctx: typer.Context, incomplete: str) -> Words:
        before, comma, last = incomplete.rpartition(",") if listed else ("", "", incomplete)
        given = set(before.split(","))
        try:
            found = [(w, text) for w, text in words(ctx) if w.lower().startswith(last.lower()) and w not in given]
        except Exception:  # a shell shows a traceback in the middle of what is being typed
            return []
        return [(before + comma + word, text) for word, text in found]

    return complete


def choices(*words: str, listed: bool = False) -> Complete:
    """One of these words."""
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
    from aot.frontend.schema import enums

    return [(name, "operator") for name in sorted(enums()["BuiltinOperator"])]


def _verbs(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    program: Any = ctx.find_root().command
    return [(name, verb.get_short_help_str()) for name, verb in sorted(program.commands.items())]


def _parts(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.report.gate.diff import FIELDS

    return [(name, "") for name in FIELDS]


def _passes(ctx: typer.Context) -> Iterable[tuple[str, str]]:
    from aot.ir.transform import all_passes, is_pass

    is_pass("")  # loads the compiler's own

    return [(p.name, (p.doc or "").partition("\n")[0]) for p in all_passes()]


def _model(ctx: typer.Context) -> ModelView | None:
    """The model on the command line, as far as it can be read."""
    from aot.driver.reading import read_limited
    from aot.frontend.problems import Problems
    from aot.frontend.view import parse

    given: Any = ctx.params.get("model") or ctx.params.get("models") or ()
    words = (
        [*given, *ctx.args] if isinstance(given, (list, tuple)) else [given]
    )  # an option without its value ends click's parsing
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
    """`NAME=` of each tensor that an operator computes, and of the inputs, for --pin."""
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


# ---- `--show-completion` and `--install-completion` for the shell that is named, or the one that runs them
# typer's own options accept no name and fail if no shell is a parent of the process, as under cron.


SHELLS = ("bash", "zsh", "fish", "powershell", "pwsh")


def shell_script(option: str, names: Sequence[str]) -> int:
    """Print or install the script; `names`: what follows the option.  A usage error for a shell that there is none for."""
    from typer.completion import get_completion_script, install  # type: ignore[attr-defined]

    if len(names) > 1 or not set(names) <= set(SHELLS):
        raise typer.BadParameter(f"{option} {' '.join(names)}: one of {', '.join(SHELLS)} may follow")
    shell = names[0] if names else _running(option)
    if option == "--show-completion":
        print(get_completion_script(prog_name="aot", complete_var="_AOT_COMPLETE", shell=shell))
        return 0
    _, path = install(shell, prog_name="aot", complete_var="_AOT_COMPLETE")
    print(f"{shell} completion installed in {path}; it takes effect in the next terminal")
    return 0


def _running(option: str) -> str:
    """The shell among the parents of this process."""
    import shellingham

    try:
        found = str(shellingham.detect_shell()[0])
    except shellingham.ShellDetectionFailure:
        found = ""
    if found not in SHELLS:
        what = f"there is no script for {found}" if found else "no shell runs this"
        raise typer.BadParameter(f"{option}: {what}; name one of {', '.join(SHELLS)}, as in aot {option} bash")
    return found
