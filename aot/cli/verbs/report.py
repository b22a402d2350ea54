"""`aot report`, `aot profile` and `aot diff`: every byte and instruction of models on boards, and what changed."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli import common, completion
from aot.cli import options as opts
from aot.cli.files import check_usable, model_name, write_file
from aot.cli.options import DEFAULT_BOARD, CompileOptions, option, verb
from aot.cli.output import Output, paint
from aot.errors import AotError, Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean, does_of, escaped

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from aot.report.measure.gate import Budget, Judged
    from aot.report.measure.report import Job, OnTarget, Report

FILES = {
    "json": "report.json",
    "markdown": "report.md",
    "html": "report.html",
    "junit": "junit.xml",
    "badge": "badge.json",
    "benchmark": "benchmark.json",
}


@dataclass(frozen=True, slots=True)
class How:
    """How a report is made; `on_target` reads the firmware's cycles for the model with this metadata."""

    compile: CompileOptions
    inputs: Path | None = None
    random: int | None = None
    timeout: float | None = None
    folder: Path | None = None
    advice: bool = False
    clock: int | None = None
    accept_known_faults: bool = True
    require_reference: bool = False
    on_target: Callable[[Mapping[str, Any]], OnTarget] | None = None


def make_jobs(models: Sequence[Path], boards: str | None, how: How, budget: Budget | None = None) -> list[Job]:
    """One job per model and board (E5001; E5023 for two models with the same name; E5020 for an unknown board).

    The budget's options for the model and board override those of compilation in `how` (E5052).
    """
    from aot.driver.model_file import read_model
    from aot.report.measure.report import Job

    names: dict[str, Path] = {}
    models = list(dict.fromkeys(models))
    files = []
    for path in models:
        files.append(read_model(path))
        name = model_name(path, None)
        if name in names:
            raise UsageError(Problem("E5023", f"'{names[name]}' and '{path}' would both be called {name}"))
        names[name] = path
    board_list = list(dict.fromkeys(b.strip() for b in (boards or DEFAULT_BOARD).split(",") if b.strip()))
    for board in board_list:
        common.find_board(board)
    named = list(zip(files, names, strict=True))
    return [
        Job(f, b, replace(how, compile=common.options_for(how.compile, budget, name=n, board=b)))
        for f, n in named
        for b in board_list
    ]


def work(job: Job) -> Report:
    """Report on one model on one board; may run in a separate process."""
    from aot.micro.build.project import prepare
    from aot.report.figures.size import check_clock
    from aot.report.measure.fitting import Tries, advice, linker
    from aot.report.measure.report import EXTRAS, make_report

    how: How = job.options
    place = common.find_board(job.board)
    req = common.request(job.model, how.compile, target=place.cpu, board=place)
    artifact = common.compile_for(req, place, link=linker(place))
    check_clock(artifact.metadata, how.clock)
    sets = common.choose_sets(artifact, how.inputs, how.random)
    if how.require_reference:
        common.require_reference(req.data, artifact, sets)
    report = make_report(
        req.data, artifact, prepare(artifact, place), sets, accept_known_faults=how.accept_known_faults,
        timeout=how.timeout, folder=how.folder, on_target=how.on_target and how.on_target(artifact.metadata), clock=how.clock,
    )  # fmt: skip
    if how.advice:
        report[EXTRAS]["advice"] = advice(Tries(req.source, req.target, req.name, req.options), board=place)
    return report


@contextmanager
def progress(out: Output, total: int) -> Iterator[Callable[[Job, bool], None]]:
    """A progress bar on a terminal, else one line per job on stderr if there are several."""
    if not out.silent and sys.stderr.isatty():
        from rich.console import Console
        from rich.markup import escape as markup
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("reporting", total=total)
            yield lambda job, good: bar.update(task, advance=1, description=markup(escaped(_job(job))))
        return
    count = 0

    def line(job: Job, good: bool) -> None:
        nonlocal count
        count += 1
        if not out.silent and total > 1:
            print(escaped(f"{count}/{total} {_job(job)}{'' if good else ': failed'}"), file=sys.stderr)

    yield line


def _job(job: Job) -> str:
    return f"{job.model.path.stem} on {job.board}"


def chosen_formats(text: str) -> list[str]:
    """The formats in --format (E5009)."""
    names = [t.strip() for t in text.split(",") if t.strip()]
    for name in names:
        if name not in FILES:
            raise UsageError(Problem("E5009", f"--format {name}{did_you_mean(name, FILES)}: choose from {', '.join(FILES)}"))
    return list(dict.fromkeys(names))


def contents(bundle: Mapping[str, Any], judged: Judged, full: Sequence[Report] = ()) -> dict[str, str]:
    """The text of every format; `full` are the reports with the extras that only the HTML page shows."""
    from aot.report.measure.report import to_text
    from aot.report.render import formats
    from aot.report.render.pages import report_html, report_markdown

    reports, failures = bundle["reports"], bundle["failures"]
    findings, changes = judged.findings, judged.changes
    return {
        "json": to_text(bundle),
        "markdown": report_markdown(reports, failures, findings, changes),
        "html": report_html(full or reports, failures, findings, changes),
        "junit": formats.junit(reports, failures, findings),
        "badge": json.dumps(formats.badge(reports, failures, findings), ensure_ascii=False) + "\n",
        "benchmark": json.dumps(formats.benchmark(reports), indent=1) + "\n",
    }


# ---- `aot report MODEL...`: checked against a budget and a baseline


@verb(leave_out=("name",))
def aot_report(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Models, .tflite files.", show_default=False)],
    *,
    board: opts.BoardNames = None,
    jobs: opts.Jobs = 1,
    scheduler: opts.Scheduler = None,
    output: Annotated[Path, option("-o --output DIR", "Folder for the report's files.")] = Path("out/report"),
    formats: Annotated[str, option("--format LIST", "Files to write.", completion.choices(*FILES, listed=True))] = ",".join(
        FILES
    ),
    budget: Annotated[Path | None, option("--budget FILE", "Limits; default budget.toml or pyproject.toml.")] = None,
    baseline: Annotated[Path | None, option("--baseline FILE", "The baseline or report.json to compare with.")] = None,
    accept: Annotated[bool, option("--accept", "Write the baseline instead of comparing with it.")] = False,
    allow: opts.Allow = None,
    inputs: opts.InputsFile = None,
    random: opts.RandomCount = None,
    options: CompileOptions,
    accept_known_faults: opts.FaultsFlag = True,
    require_reference: opts.RequireFlag = True,
    clock: opts.ClockRate = None,
    timeout: opts.Timeout = 0.0,
    out: Output,
) -> None:
    """Report every byte and instruction of the models on boards; exit 4 if a limit or the baseline is exceeded."""
    from aot.report.figures.size import parse_clock
    from aot.report.measure.gate import complaints, exit_code, judge, judge_absolute, new_baseline, open_gate
    from aot.report.measure.report import bundle, run_jobs

    chosen = chosen_formats(formats)
    check_usable(output)
    gate = open_gate(budget, baseline, accept=accept, allow=allow)
    how = How(
        options, inputs, random, timeout or None, output, advice="html" in chosen, clock=parse_clock(clock),
        accept_known_faults=accept_known_faults, require_reference=require_reference,
    )  # fmt: skip
    job_list = make_jobs(models, board, how, gate.budget)
    pool = common.pool_of_boards(jobs, scheduler, len(job_list))
    with progress(out, len(job_list)) as done:
        full, failures = run_jobs(work, job_list, pool=pool, done=done)
        result = bundle(full, failures)
    judged = judge_absolute(result["reports"], gate) if accept else judge(result["reports"], gate)
    texts = contents(result, judged, sorted(full, key=lambda r: (r["name"], r["board"])))
    for name in chosen:
        write_file(output / FILES[name], texts[name])
    show(out, result, judged)
    if chosen:
        out.row("write", f"{output}: {', '.join(FILES[n] for n in chosen)}")
    code = exit_code(result, judged)
    if accept and code == 0:
        text, kept = new_baseline(result["reports"], gate)
        write_file(gate.path, text)
        out.row("accept", f"{gate.path}: {len(result['reports'])} written, {kept} kept")
    out.result(result)
    for problem in complaints(result, judged):
        print(problem, file=sys.stderr)
    if code:
        raise typer.Exit(code)


def show(out: Output, bundle: Mapping[str, Any], judged: Judged) -> None:
    """Print one model in full, several as a matrix; then the changes and the findings of the gate."""
    from aot.report.render.formats import outputs_word

    reports = bundle["reports"]
    if len(reports) == 1:
        show_one(out, reports[0])
    elif reports:
        metrics = ("instructions", "flash", "ram", "workspace", "stack")
        rows = [(r["name"], r["board"], outputs_word(r["verdict"]), *(r["totals"][m] for m in metrics)) for r in reports]
        out.table(("model", "board", "outputs", *metrics), rows)
        if out.verbose:
            for report in reports:
                out.line()
                show_one(out, report)
    if judged.changes is not None:
        show_changes(out, judged.changes, top=5)
    for f in judged.findings:
        if f.state in ("over", "improved"):
            out.row(paint(f.state, "red" if f.state == "over" else "green"), f"{f.key} {f.text}")
    new = sorted({f.key for f in judged.findings if f.state == "new"})
    if new:
        out.row("new", f"not in the baseline: {', '.join(new)}")


def show_one(out: Output, report: Mapping[str, Any]) -> None:
    """Print the verdict, sizes, time, and the table of layers."""
    from aot.report.figures.cycles import estimate_text
    from aot.report.figures.size import conditions_of, cycles_of, next_lines, over_time, slowest_of, time_of
    from aot.report.measure.divergence import fault_text
    from aot.report.render.formats import kib

    verdict, totals, ram = report["verdict"], report["totals"], report["ram"]
    word = paint("bit-exact", "green") if verdict["exact"] else paint("exact, the others DIFFER", "red")
    out.row("board", report.get("board_fit", {}).get("text"))
    out.row("model", f"{report['name']} on {report['board']} ({report['cpu']})")
    out.row("outputs", f"{verdict['sets_exact']}/{verdict['sets']} sets {word}, reference: {verdict['reference']}")
    out.row("reference", verdict["known_fault"] and fault_text(verdict["known_fault"]))
    if report["flash"] is not None:
        groups = ", ".join(f"{k} {v:,}" for k, v in report["flash"]["groups"].items() if v)
        out.row("flash", f"{report['flash']['bytes']:,} B: {groups}")
        state = f"variables {ram['state']:,} B, " if ram["state"] else ""
        state += f"constants {ram['copied']:,} B copied from flash, " if ram.get("copied") else ""
        stack = f"stack {totals['stack']:,} B measured, {totals['stack_bound']:,} B bound"
        out.row("RAM", f"{kib(totals['ram'])}: workspace {ram['workspace']['bytes']:,} B, {state}{stack}, heap 0 B")
    else:
        out.row("RAM", f"workspace {ram['workspace']['bytes']:,} B")
    if (s := report.get("state")) is not None:
        out.row("state", f"{s['bytes']:,} B, {s['bytes_moved']:,.4g} B moved per run for {s['bytes_new']:,} B new")
    if report["memory"]:
        parts = [f"{m['region']} {100 * m['used'] / m['size']:.1f} % of {kib(m['size'])}" for m in report["memory"]]
        out.row("memory", " · ".join(parts))
    if totals.get("cycles") is not None:
        out.row("time", cycles_of(totals["cycles"], totals["macs"], totals["clock_hz"]))
        out.row("counted", conditions_of(report["counted"]))
    if totals["instructions"] is not None:
        cycles = totals["estimated_cycles"]
        guess = estimate_text(report["cpu"], None if cycles is None else f"{cycles:,}")
        took = time_of(totals["instructions"], totals["macs"], totals["macs_nominal"])
        out.row("time", f"{took} · {guess}" if guess else took)
    for word, text in over_time(report):
        out.row(word, text)
    if totals["instructions"] is not None:
        out.row("slowest", slowest_of(report["layers"]))
    counted = ("cycles",) if any("cycles" in x for x in report["layers"]) else ()
    headers = ("layer", "operator", "kernel", "MAC", "instructions", "per MAC", *counted, "code", "weights", "tables", "scratch",
               "output")  # fmt: skip
    rows = [
        (x["index"], does_of(x), x["kernel"], x["macs"], x["instructions"], x["instructions_per_mac"], *(x[k] for k in counted),
         x["code"], x["weights"], x["tables"], x["scratch"], "x".join(map(str, x["output"]["shape"])))
        for x in report["layers"]
    ]  # fmt: skip
    out.table(headers, rows)
    faster = next_lines(report["layers"])
    if out.verbose and faster:
        out.row("faster", "the next faster kernel of a layer, estimated:")
        for line in faster:
            out.line(f"  {line}")


def pair_title(pair: Mapping[str, Any]) -> str:
    """The heading of a pair, such as `kws@mps2-an386, before kws_v1: other model, same layers`."""
    parts = [f"other {', '.join(c['field'] for c in pair['fingerprint'])}"] if pair["fingerprint"] else []
    if any(c["field"] == "model" for c in pair["fingerprint"]):
        parts.append("same layers" if pair["same_layers"] else "other layers")
    before = f", before {pair['previous_name']}" if pair["previous_name"] != pair["name"] else ""
    return f"{pair['name']}@{pair['board']}{before}" + (f": {', '.join(parts)}" if parts else "")


def show_changes(out: Output, changes: Mapping[str, Any], *, top: int) -> None:
    """Print, per pair, the totals that changed and the layers and symbols that changed most."""
    from aot.report.measure.gate import change_text, total_rows

    for pair in changes["pairs"]:
        rows = [row for row in total_rows(pair) if row[3] != "="]
        out.line(f" {pair_title(pair)}" + ("" if rows else ": no total changed"))
        if pair["outputs_changed"]:
            out.line("  the outputs changed for the same model and inputs")
        if rows:
            out.table(("total", "before", "after", "change"), rows)
        layers = []
        for m in pair["layers"][:top]:
            what = f"{m['status']} {m['name'].partition(';')[0][:60]}"
            layers.append((f"{m['layer']} {does_of(m)}", change_text(m["instructions"]), change_text(m["bytes"]), what))
        if layers:
            out.table(("layer", "instructions", "flash", "what"), layers)
        symbols = [(s["name"], change_text(s), s["file"]) for s in pair["symbols"][:top]]
        if symbols:
            out.table(("symbol", "flash", "file"), symbols)
    for word in ("added", "removed"):
        if changes[word]:
            out.row(word, ", ".join(changes[word]))


# ---- `aot profile MODEL --from LOG`: per-layer cycles measured by the user's firmware, in the report of the model


@verb()
def aot_profile(
    model: opts.ModelPath,
    *,
    log: Annotated[Path, option("--from LOG", "The output of the firmware (docs/rtos.md).")],
    board: opts.BoardName = None,
    output: Annotated[Path | None, option("-o --output DIR", "Also write the report's files to this folder.")] = None,
    options: CompileOptions,
    out: Output,
) -> None:
    """Add per-layer cycles measured by your firmware to the report of MODEL. Give the same options as when you compiled it.

    A board that is connected over GDB is not touched: its emulated twin provides instructions and sizes.
    """
    from aot.driver.model_file import read_model
    from aot.driver.reading import read_limited
    from aot.micro.board import EMULATED
    from aot.report.measure.gate import Judged, exit_code
    from aot.report.measure.report import MOST_BYTES, Job, bundle, read_on_target

    if output is not None:
        check_usable(output)
    text = read_limited(log, limit=MOST_BYTES).decode("utf-8", "replace")
    name = board or DEFAULT_BOARD
    place = f"{EMULATED}{name}" if common.find_board(name).gdb is not None else name
    how = How(options, folder=output, advice=output is not None, on_target=lambda metadata: read_on_target(text, metadata))
    with out.working(f"reporting {model.name} on {place}"):
        report = work(Job(read_model(model), place, how))
    result, judged = bundle([report]), Judged((), None, None)
    show_one(out, result["reports"][0])
    if output is not None:
        for form, written in contents(result, judged, [report]).items():
            write_file(output / FILES[form], written)
        out.row("write", f"{output}: {', '.join(FILES.values())}")
    out.result(result)
    if code := exit_code(result, judged):
        raise typer.Exit(code)


# ---- `aot diff A B`: what changed between two reports, two models, or two git revisions of models


@verb(leave_out=("name",))
def aot_diff(
    a: Annotated[str, typer.Argument(metavar="A", help="The old report.json, its folder, or a model.", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="The new report.json, its folder, or a model.", show_default=False)],
    *,
    models: Annotated[
        list[Path] | None,
        option("--model FILE", "A and B are git revisions; report on FILE at both (. is the working tree)."),
    ] = None,
    board: opts.BoardNames = None,
    jobs: opts.Jobs = 1,
    random: opts.RandomCount = None,
    options: CompileOptions,
    allow: opts.Allow = None,
    force: Annotated[bool, option("--force", "Compare even if the fingerprints differ.")] = False,
    top: Annotated[int, option("--top", "How many layers and symbols to show.", min=1)] = 10,
    markdown: Annotated[bool, option("--markdown", "Print Markdown.")] = False,
    html: Annotated[Path | None, option("--html FILE", "Write a page that shows both side by side.")] = None,
    out: Output,
) -> None:
    """Compare two reports, two models, or two git revisions of models: totals, and the layers and symbols that changed most."""
    from aot.report.measure.gate import FIELDS, allowed_parts, check_whole, diff_reports, load_reports
    from aot.report.render.pages import diff_markdown

    parts = frozenset(FIELDS) if force else allowed_parts(allow) | {"model"}
    how = How(options, random=random)
    if models:
        check_models(models)
        before, after = (reports_of(r, models, board=board, jobs=jobs, out=out, how=how) for r in (a, b))
        if not before and not after:
            raise UsageError(Problem("E5001", f"neither '{a}' nor '{b}' has {', '.join(map(str, models))}"))
    elif a.endswith(".tflite") and b.endswith(".tflite"):
        before, after = (reports_of(".", [Path(m)], board=board, jobs=jobs, out=out, how=how) for m in (a, b))
        if not before or not after:
            raise UsageError(Problem("E5001", f"there is no file '{b if before else a}'"))
    else:
        before, after = load_reports(Path(a)), load_reports(Path(b))
        if html is not None:
            check_whole(before, a)
            check_whole(after, b)
    changes = diff_reports(before, after, allow=parts)
    if html is not None:
        from aot.report.render.pages import compare_html

        write_file(html, compare_html(changes, before, after))
    if markdown and not out.silent:
        typer.echo(diff_markdown(changes, top=top), nl=False)
    else:
        show_changes(out, changes, top=1_000_000 if out.verbose else top)
    out.result(changes)


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
    revision: str, models: Sequence[Path], *, board: str | None, jobs: int, out: Output, how: How
) -> dict[str, Report]:
    """Reports on the models of a revision, made with this version of aot.  Raises the problems of all models that fail."""
    from aot.report.measure.report import key_of, run_jobs

    with tempfile.TemporaryDirectory(prefix="aot-diff-") as name:
        job_list = make_jobs(files_at(revision, models, Path(name)), board, how)
        with progress(out, len(job_list)) as done:
            reports, failures = run_jobs(work, job_list, pool=common.pool_of_boards(jobs, None, len(job_list)), done=done)
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
