"""`aot.check`, `aot.verify` and `aot.report`: what the verbs of the command line find out, as Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from aot.api import model_source, options_of
from aot.driver.build import Shared, compile_model
from aot.driver.front import problems_of
from aot.driver.model_file import read_model
from aot.driver.options import Options
from aot.driver.reading import NamedBytes
from aot.errors import AotError, Problem, UsageError
from aot.executor.artifact import Artifact
from aot.frontend.tflite.specialize import specialize
from aot.ir.op import Array
from aot.memory.memory_pools import ONE_POOL, Pooling
from aot.micro.board import Board, load_board
from aot.micro.build.project import prepare
from aot.report.figures.size import check_clock, parse_clock
from aot.report.measure import verify as measure
from aot.report.measure.fitting import Tries, advice, fit, fitting_boards, linker
from aot.report.measure.report import EXTRAS, bundle, make_report, to_text
from aot.report.measure.samples import OwnSet, own_sets, sets_for
from aot.report.measure.sets import Sets
from aot.report.measure.verify import Verification
from aot.report.render.markdown import report_markdown
from aot.report.render.pages import report_html
from aot.support.dataclass import dataclass
from aot.support.names import model_identifier
from aot.support.notebook import layer_table, plan_table, section, table
from aot.target.target import Target, require_c

DEFAULT_BOARD = "mps2-an386"

Inputs = str | Path | Sequence[OwnSet] | Mapping[str, Array] | None
"""A golden or sample file (.npz, .npy), or `inputs[set][input]`; None: made by rule, the same ones everywhere."""


@dataclass(frozen=True, slots=True, repr=False)
class Check:
    """Whether a model can be compiled, what it needs, and where it fits.

    `problems` are all that were found, each with code, message and place; `metadata` (docs/metadata.md) is None where
    there are any.
    `boards` has a row for every known board: board, cpu, fits, problems, and the options that make it fit, with workspace_bytes,
    constant_bytes and instructions (a multiple of those as requested, by estimate).
    """

    name: str
    target: str
    problems: tuple[Problem, ...]
    metadata: Mapping[str, Any] | None = None
    boards: tuple[Mapping[str, Any], ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it can be compiled."""
        return not self.problems

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one inference; 0 where it cannot be compiled."""
        return 0 if self.metadata is None else int(self.metadata["macs"])

    @property
    def workspace_bytes(self) -> int:
        """Bytes of RAM for the tensors; 0 where it cannot be compiled."""
        return 0 if self.metadata is None else int(self.metadata["workspace"]["size"])

    @property
    def constant_bytes(self) -> int:
        """Bytes of flash for weights and tables; 0 where it cannot be compiled."""
        return 0 if self.metadata is None else int(self.metadata["constants"]["size"])

    def __repr__(self) -> str:
        return f"Check({self.name} for {self.target}: {self._words()})"

    def _words(self) -> str:
        if self.metadata is None:
            codes = ", ".join(dict.fromkeys(p.code for p in self.problems))
            return f"cannot be compiled, {len(self.problems)} problem{'s' * (len(self.problems) != 1)} ({codes})"
        fits = sum(bool(row["fits"]) for row in self.boards)
        sizes = f"workspace {self.workspace_bytes:,} B, constants {self.constant_bytes:,} B, {self.macs:,} MAC"
        return f"{sizes}, fits {fits} of {len(self.boards)} boards"

    def _repr_html_(self) -> str:
        """A notebook's view: all problems, or the plan, the layers and the boards."""
        title = f"{self.name} for {self.target}"
        if self.metadata is None:
            rows = [(p.code, p.where, p.message) for p in self.problems]
            return section(title, f"<p>{escape(self._words())}</p>", table(("code", "where", "problem"), rows, left=3))
        boards = [
            (r["board"], r["cpu"], "yes" if r["fits"] else "no", r.get("options", ""), "; ".join(r["problems"]))
            for r in self.boards
        ]
        parts = [plan_table(self.metadata), layer_table(self.metadata["layers"])]
        parts.append(table(("board", "core", "fits", "with", "as requested"), boards, left=5))
        return section(title, f"<p>{escape(self._words())}</p>", *parts)


@dataclass(frozen=True, slots=True, repr=False)
class ModelReport:
    """Every byte and instruction of one model on one board; `data` in the form of schema/aot-report-3.schema.json."""

    data: Mapping[str, Any]

    @property
    def ok(self) -> bool:
        """Whether all outputs equal the reference's, or differ by a known fault of it alone."""
        return bool(self.data["verdict"]["accepted"])

    @property
    def totals(self) -> Mapping[str, int | None]:
        """instructions, estimated_cycles, macs; flash, code, constants, ram, workspace, stack in bytes; None: not known."""
        found: Mapping[str, int | None] = self.data["totals"]
        return found

    @property
    def layers(self) -> Sequence[Mapping[str, Any]]:
        """A row a layer in order of execution: op, kernel, macs, instructions, and bytes of code, weights, tables and scratch."""
        rows: Sequence[Mapping[str, Any]] = self.data["layers"]
        return rows

    def __repr__(self) -> str:
        d, t = self.data, self.totals
        known = [f"{t['instructions']:,} instructions"] if t["instructions"] is not None else []
        known += [f"{k} {t[k]:,} B" for k in ("flash", "ram", "workspace") if t[k] is not None]
        exact = f"{d['verdict']['sets_exact']}/{d['verdict']['sets']} sets bit-exact"
        return f"ModelReport({d['name']} on {d['board']}: {', '.join([exact, *known])})"

    def _repr_html_(self) -> str:
        """A notebook's view: the whole page in a frame of its own, so that neither's style touches the other."""
        frame = 'sandbox="allow-scripts" style="width:100%;height:640px;border:1px solid #8886"'
        return f'<iframe title="{escape(repr(self))}" {frame} srcdoc="{escape(self.to_html())}"></iframe>'

    def to_html(self) -> str:
        """The page of `aot report`: one file that needs nothing else."""
        return report_html([self.data], [], [])

    def to_markdown(self) -> str:
        """The text for a comment or a summary."""
        return report_markdown([self.data], [], [], None)

    def to_json(self) -> str:
        """The content of report.json, which `aot diff` and `--baseline` read."""
        return to_text(bundle([self.data]))

    def save(self, path: str | Path) -> Path:
        """Write the report as .html, .md or .json, as the file's name ends (E5009 otherwise); OSError if that fails.

        `path`: the file to write; its folder has to exist.
        """
        path = Path(path)
        makers = {".html": self.to_html, ".md": self.to_markdown, ".json": self.to_json}
        if path.suffix not in makers:
            raise UsageError(Problem("E5009", f"a report is .html, .md or .json, not '{path.suffix}'"))
        path.write_text(makers[path.suffix](), encoding="utf-8", newline="\n")
        return path


def check(
    model: str | Path | bytes, *, target: str | Target = "cortex-m4", name: str | None = None, options: Options | None = None,
    **keywords: Any,
) -> Check:  # fmt: skip
    """Whether `model` (a .tflite path, or its bytes) can be compiled, with all problems at once; what it needs; where it fits.

    Options are keywords as for `aot.build`.  Problems of the model are in the result; raises UsageError E5001 for a missing file,
    E5009, E5010, E5074 for wrong arguments.

    `target`: a core's name or a Target; `name`: prefix of the C symbols (the file's name without one); `options` as in
    `aot.build`.
    """
    chosen = options_of(options, keywords) or Options()
    source, own = _read(model, name)
    cpu = require_c(Target(target)).name
    try:
        data = specialize(source.data, chosen.choice)
        problems = tuple(problems_of(data, chosen))
        if problems:
            return Check(own, cpu, problems)
        tries = Tries(source, cpu, own, chosen)
        metadata = tries.asked.metadata
        found, over = tries.first_fit(None)
        if found is None:
            return Check(own, cpu, over)
    except UsageError:
        raise
    except AotError as error:
        return Check(own, cpu, error.problems)
    return Check(own, cpu, (), metadata, tuple(fitting_boards(tries)))


def verify(
    model: str | Path | bytes, *, board: str = DEFAULT_BOARD, inputs: Inputs = None, random: int | None = None,
    profile: bool = True, poison: bool = False, timeout: float | None = None, clock: str | int | None = None,
    name: str | None = None, options: Options | None = None, **keywords: Any,
) -> Verification:  # fmt: skip
    """Compile `model` (a .tflite path, or its bytes), run it on `board`, and compare every byte with the reference.

    `inputs`: a file as for `aot verify --inputs`, a list of sets, each a list of arrays or a dictionary by input, or one such
    dictionary; `random`: so many sets by rule instead (default 4); `timeout` in seconds.

    Outputs that differ are a result (`exact`), not an error.  Board "host" needs gcc only, others the Arm compiler and QEMU.
    Raises UsageError E5020 for an unknown board, E5022 for inputs of a wrong shape, ToolchainError E30xx, and the errors of the
    compiler.

    `profile`: count each layer; `poison`: a second run with dead bytes overwritten; `clock`: of a chain, the load of a core with
    this clock ("64MHz", or hertz; E5018 for what is no frequency, E1306 where no rate is known); `name`, `options` as in
    `aot.build`.
    """
    hertz = parse_clock(clock)
    source, artifact, place, sets = _prepared(model, board, inputs, random, name, options_of(options, keywords))
    check_clock(artifact.metadata, hertz)
    data = specialize(source.data, (options_of(options, keywords) or Options()).choice)
    return measure.verify(
        data, artifact, prepare(artifact, place), sets, profile=profile, poison=poison, timeout=timeout, clock=hertz
    )


def report(
    model: str | Path | bytes, *, board: str = DEFAULT_BOARD, inputs: Inputs = None, random: int | None = None,
    timeout: float | None = None, clock: str | int | None = None, name: str | None = None, options: Options | None = None,
    **keywords: Any,
) -> ModelReport:  # fmt: skip
    """Every byte and instruction of `model` (a .tflite path, or its bytes) on `board`, as `aot report` has them.

    Arguments and errors as those of `aot.verify`.
    """
    hertz = parse_clock(clock)
    source, artifact, place, sets = _prepared(model, board, inputs, random, name, options_of(options, keywords))
    check_clock(artifact.metadata, hertz)
    data = specialize(source.data, (options_of(options, keywords) or Options()).choice)
    made = make_report(data, artifact, prepare(artifact, place), sets, timeout=timeout, clock=hertz)
    tries = Tries(source, place.cpu, artifact.name, options_of(options, keywords) or Options())
    made[EXTRAS]["advice"] = advice(tries, board=place)
    return ModelReport(made)


def _read(model: str | Path | bytes, name: str | None) -> tuple[NamedBytes, str]:
    """The file as it is now, and the prefix of its symbols."""
    given = model_source(model)
    if isinstance(given, Path):
        source = read_model(given)
    elif isinstance(given, bytes):
        source = NamedBytes(Path(name or "model"), given)
    else:
        raise UsageError(Problem("E5074", f"this takes a .tflite path or its bytes, not {type(model).__name__}"))
    return source, model_identifier(name or source.path.stem)


def _prepared(
    model: str | Path | bytes, board: str, inputs: Inputs, random: int | None, name: str | None, options: Options | None
) -> tuple[NamedBytes, Artifact, Board, Sets]:  # fmt: skip
    """The model, compiled for a board, and the inputs to run; a board's pools count where the options name none."""
    from dataclasses import replace

    source, own = _read(model, name)
    place, chosen = load_board(board), options or Options()
    if chosen.pooling == ONE_POOL and place.pools:
        chosen = replace(chosen, pooling=Pooling(place.pools))
    shared: Shared = {}

    def compiled(asked: Options) -> Artifact:
        return compile_model(source, target=place.cpu, name=own, options=asked, shared=shared).artifact

    artifact = fit(chosen, place, compiled, linker(place)).built()
    if inputs is None or isinstance(inputs, str | Path):
        path = None if inputs is None else Path(inputs)
        return source, artifact, place, sets_for(artifact.metadata, path, random, oracle=chosen.oracle)
    if random is not None:
        raise UsageError(Problem("E5017", "inputs and random are mutually exclusive"))
    return source, artifact, place, own_sets(artifact.metadata, inputs)
