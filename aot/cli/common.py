"""Code shared by the verbs that compile a model: what is asked for, compilation, budgets, and where many jobs run."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from aot.cli.files import model_name
from aot.cli.options import DEFAULT_BOARD, DEFAULT_TARGET, ClickUsageError, CompileOptions, load_plugins, verb, words_of
from aot.errors import Problem, TargetError, UsageError
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean, printable

if TYPE_CHECKING:
    from aot.cli.output import Output
    from aot.driver.options import Options
    from aot.driver.reading import NamedBytes
    from aot.executor.artifact import Artifact
    from aot.executor.config import History
    from aot.frontend.formats import Choice
    from aot.frontend.tflite.view import ModelView
    from aot.memory.memory_pools import Pooling
    from aot.micro.board import Board
    from aot.micro.build.project import Project
    from aot.report.measure.fitting import Linker
    from aot.report.measure.gate import Budget
    from aot.report.measure.inputs import Sets
    from aot.support.memory_pool import Pool
    from aot.system.executors import Opener

_UNITS = {"": 1, "B": 1, "K": 1024, "KIB": 1024, "KB": 1000, "M": 1 << 20, "MIB": 1 << 20, "MB": 1_000_000}


@dataclass(frozen=True, slots=True)
class Request:
    """A compilation as requested on the command line; `target` is the name of a core.

    `cached`: the result may come from the cache, and is stored there.
    """

    source: NamedBytes
    name: str
    target: str
    options: Options
    cached: bool = True

    @property
    def data(self) -> bytes:
        """The model with the chosen shapes (E5027); not needed if the artifact comes from the cache."""
        from aot.frontend.formats import specialize

        return specialize(self.source.data, self.options.choice)

    @property
    def path(self) -> Path:
        return self.source.path

    @property
    def oracle(self) -> str:
        return self.options.oracle

    def with_options(self, **changed: Any) -> Request:
        """The same request with other options of the compiler."""
        return replace(self, options=replace(self.options, **changed))


def find_board(name: str | None) -> Board:
    """The board with this name, or the default board."""
    from aot.micro.board import load_board

    return load_board(name or DEFAULT_BOARD)


def choose_target(target: str | None, board: Board | None) -> str:
    """The core's name: the board's if there is one (E5017 if --target contradicts it), else --target or the default."""
    from aot.target.target import find_target, require_c

    if board is None:
        return require_c(find_target(target or DEFAULT_TARGET)).name
    if target is not None and require_c(find_target(target)).name != board.cpu:
        raise UsageError(Problem("E5017", f"--target {target} contradicts --board {board.name}, which has a {board.cpu}"))
    return board.cpu


def parse_bytes(text: str, option: str) -> int:
    """`96KiB`, `96K` or `98304` as bytes (E5018)."""
    match = re.fullmatch(r"\s*([0-9]{1,15})\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].upper() not in _UNITS:
        raise UsageError(Problem("E5018", f"{option} {text}: give a size such as 98304, 96KiB or 1MiB"))
    return int(match[1]) * _UNITS[match[2].upper()]


def request(model: Path | NamedBytes, options: CompileOptions, *, target: str, board: Board | None = None) -> Request:
    """Check the options and read the file (E5001, E5003, E5009, E5017); the pools default to the pools of `board`."""
    from aot.driver.model_file import read_model

    load_plugins(options.plugin or ())
    chosen = build_options(options, pools=board.pools if board is not None else ())
    source = read_model(model) if isinstance(model, Path) else model
    req = Request(source, model_name(source.path, options.name), target, chosen, not options.no_cache)
    if chosen.choice:
        _ = req.data  # report an impossible choice before anything else
    return req


def build_options(options: CompileOptions, *, pools: tuple[Pool, ...] = ()) -> Options:
    """The compiler's options; all errors are reported at once (E5009)."""
    from aot.driver.options import FLOAT16, KERNELS, OPTS, RINGS, Options
    from aot.driver.oracles import oracles

    valid = {"oracle": oracles(), "opt": OPTS, "io": ("arena", "user"), "kernels": KERNELS, "rings": RINGS, "float16": FLOAT16}
    wrong = [
        Problem("E5009", f"--{name} {value}{did_you_mean(value, choices)}: choose one of {', '.join(choices)}")
        for name, choices in valid.items()
        if (value := getattr(options, name)) not in choices
    ]
    if wrong:
        raise UsageError(*wrong)
    made: dict[str, Any] = {
        "flash_budget": None if options.flash_budget is None else parse_bytes(options.flash_budget, "--flash-budget"),
        "ram_budget": None if options.ram_budget is None else parse_bytes(options.ram_budget, "--ram-budget"),
        "choice": model_choice(options),
        "pooling": chosen_pools(options, pools),
        "byoc": tuple(options.byoc or ()),
        "slide": chosen_hops(options),
        "tuning": chosen_history(options),
    }
    same = {f.name: getattr(options, f.name) for f in fields(Options) if f.name not in made and hasattr(options, f.name)}
    return Options(**same, **made)


def chosen_history(options: CompileOptions) -> History | None:
    """The records of --tuning; for `tophub` the package's, with a note on stderr for what is left out (E5001, E5501, E5502)."""
    if options.tuning is None:
        return None
    from aot.tune.record import load_history
    from aot.tune.tophub import NAME, load_tophub

    if str(options.tuning) != NAME:
        return load_history(options.tuning)
    records = load_tophub()
    for note in records.notes:
        print(f"note: {note}", file=sys.stderr)
    return records.history


def noted(sets: Sets) -> Sets:
    """The sets; prints a note on stderr if they contain NaN or infinities."""
    if sets.not_finite:
        print(f"note: {sets.not_finite:,} values of the inputs are NaN or infinite", file=sys.stderr)
    return sets


def choose_sets(artifact: Artifact, inputs: Path | None, count: int | None) -> Sets:
    """The input sets of --inputs or --random."""
    from aot.report.measure.inputs import sets_for

    return noted(sets_for(artifact.metadata, inputs, count, oracle=artifact.metadata["oracle"]))


def require_reference(model: bytes, artifact: Artifact, sets: Sets) -> None:
    """E3031 or E3032 if there are no expected outputs and only our own interpreter could compute them."""
    from aot.report.measure.inputs import as_windows
    from aot.report.measure.reference import check_reference

    if sets.expected is None:
        meta = artifact.metadata
        first = as_windows(sets, meta).inputs[0]
        check_reference(model, meta["oracle"], outputs=len(meta["outputs"]), inputs=first)


def chosen_hops(options: CompileOptions) -> tuple[tuple[str, int], ...]:
    """The inputs that are windows, and the rows by which each moves per run (E5018)."""
    hops: dict[str, int] = {}
    for text in options.slide or ():
        name, _, hop = text.rpartition("=")
        if not name or not re.fullmatch(r"[0-9]{1,9}", hop) or int(hop) == 0 or name in hops:
            raise UsageError(
                Problem("E5018", f"--slide {text}: name each input once, with its new rows per run, such as features=2")
            )
        hops[name] = int(hop)
    return tuple(hops.items())


def chosen_pools(options: CompileOptions, default: tuple[Pool, ...]) -> Pooling:
    """The pools of --pool, or the board's, and the pins (E5018)."""
    from aot.memory.memory_pools import Pooling, parse_pool

    pins = []
    for text in options.pin or ():
        tensor, _, pool = text.rpartition("=")
        if not tensor:
            raise UsageError(Problem("E5018", f"--pin {text}: give TENSOR=POOL"))
        pins.append((tensor, pool))
    pools = tuple(map(parse_pool, options.pool)) if options.pool else default
    return Pooling(pools, tuple(pins), tuple(map(parse_pool, options.const_pool or ())))


def model_choice(options: CompileOptions) -> Choice:
    """The requested graph and shapes (E5018)."""
    from aot.frontend.formats import Choice

    shapes = []
    for text in options.shape or ():
        name, _, numbers = text.rpartition("=")
        if not name or not re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", numbers):
            message = f"--shape {text}: give the input's name and its dimensions, such as image=1,96,96,3"
            raise UsageError(Problem("E5018", message))
        shapes.append((name, tuple(map(int, numbers.split(",")))))
    return Choice(options.subgraph, options.signature, tuple(shapes), options.batch)


def compile_for(
    req: Request, place: Board | None, out: Output | None = None, *, link: Linker | None = None, writes: bool = False
) -> Artifact:
    """The artifact for a board; if it does not fit as requested, one that does, with a row that says so.

    TargetError E2010 to E2012 if nothing fits, E2021 and E2022 if a budget is exceeded; for a verb that `writes` files, these
    name --force-over-budget.
    """
    from aot.executor.artifact import over_budget

    problems: Sequence[Problem]
    if place is None:
        artifact = compile_model(req)
        problems = () if req.options.force_over_budget else over_budget(artifact.metadata)
    else:
        from aot.report.measure.fitting import fit  # loads ELF reading and templates, which only boards need

        result = fit(req.options, place, lambda options: compile_model(replace(req, options=options)), link)
        artifact, problems = result.artifact, result.problems
        if out is not None and result.text and not problems:
            out.row("board", result.text)
    if problems and writes:
        problems = [replace(p, message=f"{p.message}; {FORCE}") if p.code in ("E2021", "E2022") else p for p in problems]
    if problems:
        raise TargetError(*problems)
    return artifact


def compile_on(model: Path | NamedBytes, options: CompileOptions, place: Board, out: Output) -> tuple[Request, Artifact]:
    """The request for a board, and the artifact that links for it."""
    from aot.report.measure.fitting import linker

    req = request(model, options, target=place.cpu, board=place)
    with out.working(f"compiling {req.path.name}"):
        return req, compile_for(req, place, out, link=linker(place))


def compile_model(req: Request) -> Artifact:
    """The artifact, from the cache if it is there, else from the compiler; budgets are not checked.

    Nothing is cached if plug-ins or the caller's own passes may have changed the result.
    """
    req = req.with_options(force_over_budget=True)
    from aot.driver import model_cache
    from aot.driver.plugins import any_loaded
    from aot.ir.transform import PassContext
    from aot.system.disk_memo import remembering

    cached = req.cached and not model_cache.is_off() and not any_loaded()

    def run() -> Artifact:
        from aot.driver.build import build

        with remembering() if cached else nullcontext():
            return build(req.source, target=req.target, name=req.name, options=req.options)

    if not cached or req.options.byoc or PassContext.current() != PassContext():
        return run()
    key = model_cache.key_of(req.source.data, req.path.name, req.name, req.target, req.options)
    return model_cache.kept(key, run)


def plan_rows(out: Output, metadata: Mapping[str, Any]) -> None:
    """Print how good the choice of kernels is (with -v, or if it is not proven optimal), and the workspace plan."""
    from aot.report.figures.size import plan_of, selection_of

    if out.verbose or not metadata["selection"]["optimal"]:
        out.row("kernels", selection_of(metadata))
    out.row("plan", plan_of(metadata))


def import_text(req: Request) -> str:
    """`kws.tflite   13 operators, 52 KiB`; with several signatures, also which one is compiled and how to choose another."""
    from aot.frontend.chain import unpack
    from aot.frontend.formats import format_of
    from aot.frontend.problems import Problems
    from aot.frontend.tflite.view import parse

    data = req.data if req.options.choice else req.source.data  # inferred shapes change nothing printed here
    size = f"{-(-len(data) // 1024):,} KiB"
    chain = unpack(data)
    if chain is not None:
        return f"{req.path.name}   {' → '.join(printable(s.name) for s in chain.stages)}, {size}"
    view = parse(data, Problems())
    signature = _signature_text(view) if view is not None else ""
    return f"{req.path.name}   {format_of(data).operators(data)} operators, {size}{signature}"


def _signature_text(view: ModelView) -> str:
    """`, signature reset (--signature step for the other)`; the compiled graph is subgraph 0 of `view`."""
    chosen = [printable(s.key) for s in view.signatures if s.subgraph == 0]
    others = [printable(s.key) for s in view.signatures if s.subgraph != 0]
    if not chosen or not others:
        return ""
    which = "the other" if len(others) == 1 else "another"
    return f", signature {chosen[0]} (--signature {' | '.join(others)} for {which})"


# ---- --ram-budget, --flash-budget and --budget FILE: nothing is written if one is exceeded


FORCE = "--force-over-budget writes the files anyway"


def check_budgets(models: Sequence[Mapping[str, Any]], *, force: bool) -> None:
    """Raise TargetError (exit 4) with every budget that is exceeded, unless `force`."""
    from aot.executor.artifact import over_budget

    problems = [p for m in models for p in over_budget(m)]
    if problems and not force:
        raise TargetError(*(replace(p, message=f"{p.message}; {FORCE}") for p in problems))


def compiled_totals(metadata: Mapping[str, Any]) -> dict[str, int | None]:
    """The totals of a budget file that are known after compilation."""
    return {"workspace": metadata["workspace"]["size"], "constants": metadata["constants"]["size"], "macs": metadata["macs"]}


def built_totals(project: Project) -> dict[str, int | None]:
    """The totals that are known after linking, as in `aot report`."""
    from aot.micro.build.image import inspect_image

    totals = compiled_totals(project.artifact.metadata)
    if project.board.is_host:
        return totals
    image = inspect_image(project)
    sizes = {"flash": image.flash, "code": image.flash - image.constants, "constants": image.constants}
    return {**totals, **sizes, "ram": image.ram + image.stack_bound, "stack_bound": image.stack_bound, "heap": 0}


def open_budget(file: Path | None) -> Budget | None:
    """The budget of --budget FILE (E5001, E5002, E5052)."""
    if file is None:
        return None
    from aot.report.measure.gate import load_budget

    return load_budget(file, Path())


def check_budget_file(
    budget: Budget | None, totals: Mapping[str, int | None], *, name: str, board: str, force: bool, out: Output
) -> None:
    """Check the absolute limits of a budget file; E5387 (exit 4) for each that is exceeded, unless `force`.

    Limits that need a run or a baseline are checked by `aot report` only; the row says how many.
    """
    if budget is None:
        return
    from aot.report.measure.gate import METRICS, check_report

    report = {"name": name, "board": board, "totals": totals}
    limits = [x for m in METRICS for x in budget.limits(report, m) or ()]
    judged = [f for f in check_report(report, budget, None) if f.state != "new"]
    unchecked = len(limits) - len(judged)
    over = [f for f in judged if f.state == "over"]
    left = f", {unchecked} left to aot report" if unchecked else ""
    out.row("budget", f"{budget.file}: {len(judged) - len(over)} of {len(judged)} limits met{left}")
    if over and not force:
        raise TargetError(*(Problem("E5387", f"{f.text}; {FORCE}", f.key) for f in over))


def options_for(options: CompileOptions, budget: Budget | None, *, name: str, board: str) -> CompileOptions:
    """The options to compile a model with on a board: the budget file's override the command line's (E5052).

    Repeatable options accumulate.
    """
    more = budget.options_of(name, board) if budget is not None else ()
    if budget is None or not more:
        return options
    try:
        merged = parse_options([*shlex.split(" ".join(words_of(options, leave_out=("name",)))), *more])
        return replace(merged, name=options.name)
    except ClickUsageError as error:
        message = str(getattr(error, "format_message", lambda: "")()).rstrip(".")
        where = f"{budget.file}: options of {name}@{board}"
        raise UsageError(Problem("E5052", f"{message}; in '{shlex.join(more)}'", where)) from None


def parse_options(words: list[str]) -> CompileOptions:
    """The options in these words, as the verbs that compile parse them; raises click's usage error for unknown ones."""
    parsed: list[CompileOptions] = []

    @verb(leave_out=("name",))
    def keep(*, options: CompileOptions) -> None:
        parsed.append(options)

    app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": []})
    app.command()(keep)
    program: Any = typer.main.get_command(app)
    program(args=words, prog_name="options", standalone_mode=False)
    return parsed[0]


# ---- where jobs run: -j and --scheduler


def chosen_pool(jobs: int, scheduler: str | None, resource: str = "") -> Opener | None:
    """The executor for -j or --scheduler, None to use this process only; E5017 for both options, E5505 without Dask.

    `resource`: what workers must provide; "" for jobs that any worker can do.
    """
    from aot.system.executors import dask, local

    if scheduler is None:
        return local(jobs)
    if jobs != 1:
        raise UsageError(Problem("E5017", "--scheduler and -j are mutually exclusive: the workers decide how many jobs they run"))
    return dask(scheduler, resource)


def pool_of_boards(jobs: int, scheduler: str | None, count: int) -> Callable[[str], Opener | None]:
    """A function from a board's name to the executor for its jobs (see `chosen_pool`); a verb has `count` jobs.

    With a scheduler, these are the workers that can reach the board; all emulated boards share one executor.
    """
    from aot.tune.worker import resource_of

    if scheduler is None:
        one = chosen_pool(min(jobs, max(1, count)), None)
        return lambda _board: one
    of_resource = cache(lambda resource: chosen_pool(jobs, scheduler, resource))

    def of_board(name: str) -> Opener | None:
        place = find_board(name)
        return of_resource(resource_of(place.name, emulated=place.gdb is None))

    return of_board
