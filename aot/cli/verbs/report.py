"""`aot report MODEL...`: every byte and instruction of models on boards, checked against a budget and a baseline."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli import completion
from aot.cli.files import check_usable, write_file
from aot.cli.options import DEFAULT_BOARD, ClockRate, CompileOptions, JsonFlag, QuietFlag, Timeout, VerboseFlag, compiles
from aot.cli.output import Output, paint
from aot.cli.verbs.verify import FaultsFlag, InputsFile, RandomCount, RequireFlag
from aot.cli.workers import Jobs, Scheduler, pool_of_boards
from aot.errors import Problem, UsageError
from aot.support.suggestions import did_you_mean
from aot.support.text import does_of, escaped

if TYPE_CHECKING:
    from aot.report.gate.budget import Budget, Judged
    from aot.report.measure.report import Job, Report

NAME = "report"
FILES = {
    "json": "report.json",
    "markdown": "report.md",
    "html": "report.html",
    "junit": "junit.xml",
    "badge": "badge.json",
    "benchmark": "benchmark.json",
}

DEFAULT_FORMATS = ",".join(FILES)

ModelPaths = Annotated[list[Path], typer.Argument(metavar="MODEL...", help="Models, .tflite files.", show_default=False)]
BoardNames = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="BOARD,...",
        autocompletion=completion.board_list,
        help=f"Boards; default {DEFAULT_BOARD}.",
        show_default=False,
    ),
]
ReportFolder = Annotated[Path, typer.Option("-o", "--output", metavar="DIR", help="Folder for the report's files.")]
Formats = Annotated[
    str, typer.Option("--format", metavar="LIST", autocompletion=completion.choices(*FILES, listed=True), help="Files to write.")
]
BaselineFile = Annotated[
    Path | None,
    typer.Option("--baseline", metavar="FILE", help="The baseline or report.json to compare with.", show_default=False),
]
BudgetFile = Annotated[
    Path | None,
    typer.Option("--budget", metavar="FILE", help="Limits; default budget.toml or pyproject.toml.", show_default=False),
]
Accept = Annotated[bool, typer.Option("--accept", help="Write the baseline instead of comparing with it.")]
Allow = Annotated[
    list[str] | None,
    typer.Option(
        "--allow",
        metavar="PART",
        autocompletion=completion.fingerprint_parts,
        help="Compare even if this part of the fingerprint differs.",
        show_default=False,
    ),
]


def make_jobs(models: Sequence[Path], boards: str | None, options: Mapping[str, Any], budget: Budget | None = None) -> list[Job]:
    """One job per model and board (E5001; E5023 for two models with the same name; E5020 for an unknown board).

    `options["compile"]` are the compile options; the budget's options for the model and board override them (E5052).
    """
    from aot.cli.budgets import options_for
    from aot.cli.common import find_board
    from aot.cli.files import model_name
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
        find_board(board)
    named = list(zip(files, names, strict=True))
    typed = options["compile"]
    return [Job(f, b, {**options, "compile": options_for(typed, budget, name=n, board=b)}) for f, n in named for b in board_list]


def work(job: Job) -> Report:
    """Report on one model on one board; may run in a separate process."""
    from aot.cli.common import compile_for, find_board, request
    from aot.cli.verbs.verify import choose_sets, require_reference
    from aot.micro.build.project import prepare
    from aot.report.figures.size import check_clock
    from aot.report.measure.fitting import linker
    from aot.report.measure.report import EXTRAS, make_report

    o = job.options
    place = find_board(job.board)
    req = request(job.model, o["compile"], target=place.cpu, board=place)
    artifact = compile_for(req, place, link=linker(place))
    check_clock(artifact.metadata, o.get("clock"))
    sets = choose_sets(artifact, o["inputs"], o["random"], oracle=req.oracle)
    if o.get("require_reference"):
        require_reference(req.data, artifact, sets)
    report = make_report(
        req.data, artifact, prepare(artifact, place), sets, accept_known_faults=o.get("accept_known_faults", True),
        timeout=o["timeout"], folder=o.get("folder"), on_target=o["on_target"](artifact.metadata) if "on_target" in o else None,
        clock=o.get("clock"),
    )  # fmt: skip
    if o.get("advice"):
        from aot.report.measure.fitting import Tries, advice

        tries = Tries(req.source, req.target, req.name, req.options)
        report[EXTRAS]["advice"] = advice(tries, board=place)
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
    from aot.report.render.markdown import report_markdown
    from aot.report.render.pages import report_html

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


@compiles(leave_out=("name",))
def command(
    models: ModelPaths,
    *,
    board: BoardNames = None,
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    output: ReportFolder = Path("out/report"),
    formats: Formats = DEFAULT_FORMATS,
    budget: BudgetFile = None,
    baseline: BaselineFile = None,
    accept: Accept = False,
    allow: Allow = None,
    inputs: InputsFile = None,
    random: RandomCount = None,
    options: CompileOptions,
    accept_known_faults: FaultsFlag = True,
    require_reference: RequireFlag = True,
    clock: ClockRate = None,
    timeout: Timeout = 0.0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Report every byte and instruction of the models on boards; exit 4 if a limit or the baseline is exceeded."""
    from aot.report.figures.size import parse_clock
    from aot.report.gate.budget import complaints, exit_code, judge, judge_absolute, new_baseline, open_gate
    from aot.report.measure.report import bundle, run_jobs

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    chosen = chosen_formats(formats)
    check_usable(output)
    gate = open_gate(budget, baseline, accept=accept, allow=allow)
    how = {"compile": options, "inputs": inputs, "random": random, "timeout": timeout or None, "folder": output}
    how |= {"advice": "html" in chosen, "clock": parse_clock(clock)}
    how |= {"accept_known_faults": accept_known_faults, "require_reference": require_reference}
    job_list = make_jobs(models, board, how, gate.budget)
    pool = pool_of_boards(jobs, scheduler, len(job_list))
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
    if "board_fit" in report:
        out.row("board", report["board_fit"]["text"])
    out.row("model", f"{report['name']} on {report['board']} ({report['cpu']})")
    out.row("outputs", f"{verdict['sets_exact']}/{verdict['sets']} sets {word}, reference: {verdict['reference']}")
    if verdict["known_fault"] is not None:
        out.row("reference", fault_text(verdict["known_fault"]))
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
        out.row(
            "time", " · ".join(filter(None, (time_of(totals["instructions"], totals["macs"], totals["macs_nominal"]), guess)))
        )
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
    from aot.report.gate.diff import change_text, total_rows

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
