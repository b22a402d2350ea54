"""What the verbs that compile a model do alike."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot.cli.files import model_name
from aot.cli.options import DEFAULT_BOARD, DEFAULT_TARGET, CompileOptions, load_plugins
from aot.driver.model_file import read_model
from aot.driver.reading import NamedBytes
from aot.errors import Problem, TargetError, UsageError
from aot.support.dataclass import dataclass
from aot.support.suggestions import did_you_mean
from aot.support.text import printable

if TYPE_CHECKING:
    from aot.cli.output import Output
    from aot.driver.options import Options
    from aot.executor.artifact import Artifact
    from aot.executor.config import History
    from aot.frontend.choice import Choice
    from aot.frontend.view import ModelView
    from aot.memory.memory_pools import Pooling
    from aot.micro.board import Board
    from aot.report.measure.fitting import Linker
    from aot.report.measure.sets import Sets
    from aot.support.memory_pool import Pool

_UNITS = {"": 1, "B": 1, "K": 1024, "KIB": 1024, "KB": 1000, "M": 1 << 20, "MIB": 1 << 20, "MB": 1_000_000}


@dataclass(frozen=True, slots=True)
class Request:
    """A compilation as the command line asks for it; `target` is a core's name.

    `cached`: an earlier compilation may be taken from the cache, and this one kept there.
    """

    source: NamedBytes
    name: str
    target: str
    options: Options
    cached: bool = True

    @property
    def data(self) -> bytes:
        """The model with the chosen shapes (E5027); one that comes from the cache may do without."""
        from aot.frontend.tflite.specialize import specialize

        return specialize(self.source.data, self.options.choice)

    @property
    def path(self) -> Path:
        return self.source.path

    @property
    def oracle(self) -> str:
        return self.options.oracle


def find_board(name: str | None) -> Board:
    """The board asked for, or the default one."""
    from aot.micro.board import load_board

    return load_board(name or DEFAULT_BOARD)


def choose_target(target: str | None, board: Board | None) -> str:
    """The core: that of the board where one is given, which --target must not contradict (E5017)."""
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
    """Check the options and read the file (E5001, E5003, E5009, E5017); the default pools are those of `board`."""
    load_plugins(options.plugin or ())
    chosen = build_options(options, pools=board.pools if board is not None else ())
    source = model if isinstance(model, NamedBytes) else read_model(model)
    wanted = Request(source, model_name(source.path, options.name), target, chosen, not options.no_cache)
    if chosen.choice:
        _ = wanted.data  # a choice that does not fit is told first
    return wanted


def build_options(given: CompileOptions, *, pools: tuple[Pool, ...] = ()) -> Options:
    """The options as the compiler takes them; all errors are reported at once (E5009)."""
    from aot.driver.options import FLOAT16, KERNELS, OPTS, RINGS, Options
    from aot.driver.oracles import oracles

    known = {"oracle": oracles(), "opt": OPTS, "io": ("arena", "user"), "kernels": KERNELS, "rings": RINGS, "float16": FLOAT16}
    wrong = [
        Problem(
            "E5009",
            f"--{name} {getattr(given, name)}{did_you_mean(getattr(given, name), choices)}: choose one of {', '.join(choices)}",
        )
        for name, choices in known.items()
        if getattr(given, name) not in choices
    ]
    if wrong:
        raise UsageError(*wrong)
    return Options(
        oracle=given.oracle,
        opt=given.opt,
        io="user" if given.io == "user" else "arena",
        kernels=given.kernels,
        flash_budget=None if given.flash_budget is None else parse_bytes(given.flash_budget, "--flash-budget"),
        ram_budget=None if given.ram_budget is None else parse_bytes(given.ram_budget, "--ram-budget"),
        choice=model_choice(given),
        pooling=chosen_pools(given, pools),
        feed_rows=given.feed_rows,
        byoc=tuple(given.byoc or ()),
        byoc_path=given.byoc_path,
        max_iterations=given.max_iterations,
        slide=chosen_hops(given),
        slide_axis=given.slide_axis,
        rings=given.rings,
        float16=given.float16,
        fast_float=given.fast_float,
        in_steps=given.in_steps,
        tuning=chosen_history(given),
    )


def chosen_history(given: CompileOptions) -> History | None:
    """The records that were given, or those of the package with a note on stderr for what is left out (E5001, E5501, E5502)."""
    if given.tuning is None:
        return None
    from aot.tune.record import load_history
    from aot.tune.tophub import NAME, load_tophub

    if str(given.tuning) != NAME:
        return load_history(given.tuning)
    found = load_tophub()
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    return found.history


def noted(sets: Sets) -> Sets:
    """The sets, with a note on stderr where values of theirs are no numbers."""
    if sets.not_finite:
        print(f"note: {sets.not_finite:,} values of the inputs are NaN or infinite", file=sys.stderr)
    return sets


def chosen_hops(given: CompileOptions) -> tuple[tuple[str, int], ...]:
    """The inputs that are windows, with the rows by which they move on (E5018)."""
    hops: dict[str, int] = {}
    for text in given.slide or ():
        name, _, hop = text.rpartition("=")
        if not name or not re.fullmatch(r"[0-9]{1,9}", hop) or int(hop) == 0 or name in hops:
            raise UsageError(Problem("E5018", f"--slide {text}: give each input once, with its new rows, such as features=2"))
        hops[name] = int(hop)
    return tuple(hops.items())


def chosen_pools(given: CompileOptions, default: tuple[Pool, ...]) -> Pooling:
    """The memories that were requested, or else the board's, and what is pinned where (E5018)."""
    from aot.memory.memory_pools import Pooling, parse_pool

    pins = []
    for text in given.pin or ():
        tensor, _, pool = text.rpartition("=")
        if not tensor:
            raise UsageError(Problem("E5018", f"--pin {text}: give TENSOR=POOL"))
        pins.append((tensor, pool))
    pools = tuple(map(parse_pool, given.pool)) if given.pool else default
    return Pooling(pools, tuple(pins), tuple(map(parse_pool, given.const_pool or ())))


def model_choice(given: CompileOptions) -> Choice:
    """The graph and the shapes that were requested (E5018)."""
    from aot.frontend.choice import Choice

    shapes = []
    for text in given.shape or ():
        name, _, numbers = text.rpartition("=")
        if not name or not re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", numbers):
            message = f"--shape {text}: give the input's name and its dimensions, such as image=1,96,96,3"
            raise UsageError(Problem("E5018", message))
        shapes.append((name, tuple(map(int, numbers.split(",")))))
    return Choice(given.subgraph, given.signature, tuple(shapes), given.batch)


def compile_for(
    wanted: Request, place: Board | None, out: Output | None = None, *, link: Linker | None = None, writes: bool = False
) -> Artifact:
    """The artifact for a board: within what it has free where more does not fit, which is said.

    TargetError E2010 to E2012 where nothing fits, E2021 and E2022 where a budget cannot be kept, which a verb that `writes` files
    may be told to do all the same.
    """
    artifact, problems = _compiled(wanted) if place is None else _fitted(wanted, place, out, link)
    if problems and writes:
        from aot.cli.budgets import FORCE

        problems = [replace(p, message=f"{p.message}; {FORCE}") if p.code in ("E2021", "E2022") else p for p in problems]
    if problems:
        raise TargetError(*problems)
    return artifact


def _compiled(wanted: Request) -> tuple[Artifact, Sequence[Problem]]:
    """The artifact, and the budgets that it does not keep."""
    from aot.executor.artifact import over_budget

    artifact = compile_model(wanted)
    return artifact, () if wanted.options.force_over_budget else over_budget(artifact.metadata)


def _fitted(wanted: Request, place: Board, out: Output | None, link: Linker | None) -> tuple[Artifact, Sequence[Problem]]:
    """The artifact within what a board has free, and why it is not built."""
    from aot.report.measure.fitting import fit  # with ELF files and templates, which only a board needs

    found = fit(wanted.options, place, lambda options: compile_model(replace(wanted, options=options)), link)
    if out is not None and found.text and not found.problems:
        out.row("board", found.text)
    return found.artifact, found.problems


def compile_model(wanted: Request) -> Artifact:
    """The artifact, from the cache where an earlier run left it there, else from the compiler; also one over a budget.

    What plug-ins or passes of the caller's own may have changed is not kept.
    """
    wanted = replace(wanted, options=replace(wanted.options, force_over_budget=True))
    from aot.driver import model_cache
    from aot.driver.plugins import any_loaded
    from aot.ir.transform import PassContext
    from aot.system.disk_memo import remembering

    cached = wanted.cached and not model_cache.is_off() and not any_loaded()

    def run() -> Artifact:
        from aot.driver.build import build

        with remembering() if cached else nullcontext():
            return build(wanted.source, target=wanted.target, name=wanted.name, options=wanted.options)

    if not cached or wanted.options.byoc or PassContext.current() != PassContext():
        return run()
    key = model_cache.key_of(wanted.source.data, wanted.path.name, wanted.name, wanted.target, wanted.options)
    return model_cache.kept(key, run)


def plan_rows(out: Output, metadata: Mapping[str, Any]) -> None:
    """How good the choice of kernels is (with -v, and where that is not proven), and the plan of the workspace."""
    from aot.report.figures.size import plan_of, selection_of

    if out.verbose or not metadata["selection"]["optimal"]:
        out.row("kernels", selection_of(metadata))
    out.row("plan", plan_of(metadata))


def import_text(wanted: Request) -> str:
    """`kws.tflite   13 operators, 52 KiB`; of several graphs that can be called, which one it is and how to choose another."""
    from aot.frontend.chain import unpack
    from aot.frontend.problems import Problems
    from aot.frontend.view import parse

    data = wanted.data if wanted.options.choice else wanted.source.data  # shapes that follow change nothing that is said here
    size = f"{-(-len(data) // 1024):,} KiB"
    chain = unpack(data)
    if chain is not None:
        return f"{wanted.path.name}   {' → '.join(printable(s.name) for s in chain.stages)}, {size}"
    view = parse(data, Problems())
    count = len(view.subgraphs[0].operators) if view is not None and view.subgraphs else 0
    return f"{wanted.path.name}   {count} operators, {size}{_signature_text(view) if view is not None else ''}"


def _signature_text(view: ModelView) -> str:
    """`, signature reset (--signature step for the other)`; the graph that is compiled is the first of `view`."""
    chosen = [printable(s.key) for s in view.signatures if s.subgraph == 0]
    others = [printable(s.key) for s in view.signatures if s.subgraph != 0]
    if not chosen or not others:
        return ""
    which = "the other" if len(others) == 1 else "another"
    return f", signature {chosen[0]} (--signature {' | '.join(others)} for {which})"
