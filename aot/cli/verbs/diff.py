"""`aot diff A B`: what changed between two reports, two models, or two git revisions of models."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from aot.cli.options import CompileOptions, JsonFlag, QuietFlag, VerboseFlag, compiles
from aot.cli.output import Output
from aot.cli.verbs.report import Allow, BoardNames, make_jobs, progress, show_changes
from aot.cli.verbs.verify import RandomCount
from aot.cli.workers import Jobs, pool_of_boards
from aot.errors import AotError, Problem, UsageError

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from aot.report.measure.report import Report

NAME = "diff"

Before = Annotated[str, typer.Argument(metavar="A", help="The old report.json, its folder, or a model.", show_default=False)]
After = Annotated[str, typer.Argument(metavar="B", help="The new report.json, its folder, or a model.", show_default=False)]
Models = Annotated[
    list[Path] | None,
    typer.Option("--model", metavar="FILE", help="A and B are git revisions; report on FILE at both (. is the working tree)."),
]
Top = Annotated[int, typer.Option("--top", min=1, help="How many layers and symbols to show.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown.")]
HtmlFile = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page that shows both side by side.", show_default=False)
]
AnyFingerprint = Annotated[bool, typer.Option("--force", help="Compare even if the fingerprints differ.")]


def _git(*arguments: str) -> CompletedProcess[bytes]:
    from aot.micro.build.toolchain import find_tool
    from aot.system.process import run_raw

    return run_raw([find_tool("git").path, *arguments])


def files_at(revision: str, models: Sequence[Path], folder: Path) -> list[Path]:
    """The files as of `revision` of this git repository, written to `folder`; files that it lacks are left out.

    `.` means the files on disk.  E5053 if the revision does not exist.
    """
    if revision == ".":
        return [m for m in models if m.is_file()]
    exists = not revision.startswith("-") and _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").returncode == 0
    if not exists:
        raise UsageError(Problem("E5053", f"'{revision}' is not a revision of this git repository"))
    files = []
    for model in models:
        done = _git("show", f"{revision}:./{model.as_posix()}")
        if done.returncode == 0:
            files.append(folder / model.name)
            files[-1].write_bytes(done.stdout)
    return files


def check_models(models: Sequence[Path]) -> None:
    """Raise E5018 for paths outside the current folder, E5023 for two files with the same name, which names the report."""
    outside = [m for m in models if m.is_absolute() or ".." in m.parts]
    if outside:
        raise UsageError(Problem("E5018", f"--model {outside[0]}: give a path below the current folder"))
    named: dict[str, Path] = {}
    for model in models:
        if named.setdefault(model.name, model) != model:
            raise UsageError(Problem("E5023", f"'{named[model.name]}' and '{model}' would both be called {model.stem}"))


def reports_of(
    revision: str, models: Sequence[Path], *, board: str | None, jobs: int, out: Output, options: Mapping[str, object]
) -> dict[str, Report]:
    """Reports on the models of a revision, made with this version of aot.  Raises the problems of all models that fail."""
    from aot.cli.verbs import report as verb
    from aot.report.measure.report import key_of, run_jobs

    with tempfile.TemporaryDirectory(prefix="aot-diff-") as name:
        job_list = make_jobs(files_at(revision, models, Path(name)), board, options)
        with progress(out, len(job_list)) as done:
            reports, failures = run_jobs(verb.work, job_list, pool=pool_of_boards(jobs, None, len(job_list)), done=done)
    if failures:
        problems = [
            Problem(p["code"], p["message"], f"{revision} {f['model']}@{f['board']} {p['where']}".rstrip())
            for f in failures
            for p in f["problems"]
        ]
        error = AotError(*problems)
        error.exit_code = failures[0]["exit_code"]
        raise error
    return {key_of(r): r for r in reports}


@compiles(leave_out=("name",))
def command(
    a: Before,
    b: After,
    *,
    models: Models = None,
    board: BoardNames = None,
    jobs: Jobs = 1,
    random: RandomCount = None,
    options: CompileOptions,
    allow: Allow = None,
    force: AnyFingerprint = False,
    top: Top = 10,
    markdown: AsMarkdown = False,
    html: HtmlFile = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Compare two reports, two models, or two git revisions of models: totals, and the layers and symbols that changed most."""
    from aot.report.gate.budget import allowed_parts
    from aot.report.gate.diff import FIELDS, check_whole, diff_reports, load_reports
    from aot.report.render.markdown import diff_markdown

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    parts = frozenset(FIELDS) if force else allowed_parts(allow) | {"model"}
    how = {"compile": options, "inputs": None, "random": random, "timeout": None}
    if models:
        check_models(models)
        before, after = (reports_of(r, models, board=board, jobs=jobs, out=out, options=how) for r in (a, b))
        if not before and not after:
            raise UsageError(Problem("E5001", f"neither '{a}' nor '{b}' has {', '.join(map(str, models))}"))
    elif a.endswith(".tflite") and b.endswith(".tflite"):
        before, after = (reports_of(".", [Path(m)], board=board, jobs=jobs, out=out, options=how) for m in (a, b))
        if not before or not after:
            raise UsageError(Problem("E5001", f"there is no file '{b if before else a}'"))
    else:
        before, after = load_reports(Path(a)), load_reports(Path(b))
        if html is not None:
            check_whole(before, a)
            check_whole(after, b)
    changes = diff_reports(before, after, allow=parts)
    if html is not None:
        from aot.cli.files import write_file
        from aot.report.render.pages import compare_html

        write_file(html, compare_html(changes, before, after))
    if markdown and not out.silent:
        typer.echo(diff_markdown(changes, top=top), nl=False)
    else:
        show_changes(out, changes, top=1_000_000 if verbose else top)
    out.result(changes)
