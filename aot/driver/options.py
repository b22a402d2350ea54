"""How a model is compiled: the one record of what a user may choose, with its checks."""

from __future__ import annotations

from pathlib import Path

from aot.driver.oracles import oracles
from aot.errors import Problem, UsageError
from aot.executor.config import MODES, History, Io
from aot.frontend.formats import FIRST_GRAPH, Choice
from aot.memory.memory_pools import ONE_POOL, Pooling, check_pooling
from aot.support.dataclass import dataclass
from aot.support.text import did_you_mean

KERNELS = ("native", "generic")
FLOAT16 = ("keep", "fold")
RINGS = ("auto", "copy", "slide")
OPTS = tuple(MODES)


@dataclass(frozen=True, slots=True)
class Options:
    """How to compile: whose rounding to match (`oracle`), what to favour (`opt`), and where inputs and outputs are kept (`io`).

    `kernels` "generic" uses portable C only, "native" also the target's instructions.  `flash_budget` (constants and code) and
    `ram_budget` (workspace and state) are limits in bytes for the choice of kernels; a budget that cannot be met is an error
    (E2021, E2022) unless `force_over_budget` asks for the smallest build found.  `choice` is the graph to compile and the shapes
    of its inputs.  With `share_workspace` the model uses the workspace that several models share (aot.executor.c_files);
    `pooling` spreads it over several memories.  With `feed_rows` the input is not in the workspace but arrives row by row.
    `byoc` names external code generators: `cmsis-nn`, or `cmsis-nn=conv2d,add` for some of its patterns; `byoc_path` is the
    folder of their library.  `max_iterations` is the watchdog of loops that may not end: the run stops with an error after that
    many iterations (0: never).  `slide` lists the inputs that are windows over time, with the rows by which they advance between
    two runs, along `slide_axis`; a run gets only those rows.  `rings`: windows in the state are moved in each run ("copy"), or
    slide through more memory and are moved rarely ("slide"); "auto" spends memory on this in the modes speed and balanced.
    `float16`: weights that are float16 in the file stay so in flash ("keep") or become float32 ("fold").  `fast_float`: float32
    layers may use vectors of MVE, which flush numbers below 2^-126 to zero (for cores that have MVE).  With `in_steps` a run can
    be split into steps (NAME_run_step).  `tuning`: the records by which kernels are chosen (aot.tune.load_history); None: the
    records of the current ApplyHistoryBest.
    """

    oracle: str = "litert"
    opt: str = "balanced"
    io: Io = "arena"
    kernels: str = "native"
    flash_budget: int | None = None
    ram_budget: int | None = None
    choice: Choice = FIRST_GRAPH
    share_workspace: bool = False
    pooling: Pooling = ONE_POOL
    feed_rows: bool = False
    byoc: tuple[str, ...] = ()
    byoc_path: Path | None = None
    max_iterations: int = 1_000_000
    slide: tuple[tuple[str, int], ...] = ()
    slide_axis: int = 1
    rings: str = "auto"
    float16: str = "keep"
    fast_float: bool = False
    in_steps: bool = False
    tuning: History | None = None
    force_over_budget: bool = False

    def __post_init__(self) -> None:
        choices = (
            ("oracle", self.oracle, oracles()),
            ("opt", self.opt, OPTS),
            ("io", self.io, ("arena", "user")),
            ("kernels", self.kernels, KERNELS),
            ("rings", self.rings, RINGS),
            ("float16", self.float16, FLOAT16),
        )
        self._check_types()
        check_pooling(self.pooling)
        if self.byoc or self.byoc_path is not None:
            from aot.driver.byoc import check_byoc  # few compilations need it

            check_byoc(self.byoc, self.byoc_path)
        if self.slide and self.feed_rows:
            raise UsageError(Problem("E5017", "--slide cannot be combined with --feed-rows"))
        if self.fast_float and self.kernels == "generic":
            raise UsageError(Problem("E5017", "--fast-float cannot be combined with --kernels generic, which has no vectors"))
        if self.share_workspace and self.pooling.pools:
            raise UsageError(Problem("E5017", "--share-workspace cannot be combined with --pool"))
        if self.feed_rows and (self.share_workspace or self.io == "user"):
            raise UsageError(Problem("E5017", "--feed-rows cannot be combined with --share-workspace or --io user"))
        for name, value, known in choices:
            if value not in known:
                raise UsageError(
                    Problem("E5009", f"unknown {name} '{value}'{did_you_mean(str(value), known)}; known: {', '.join(known)}")
                )

    def _check_types(self) -> None:
        """Raise E5009 for a value of the wrong type; the command line always passes the right one."""
        for name in ("flash_budget", "ram_budget"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise UsageError(Problem("E5009", f"{name} is a number of bytes or None, not {value!r}"))
        if (
            not isinstance(self.max_iterations, int)
            or isinstance(self.max_iterations, bool)
            or not 0 <= self.max_iterations < 1 << 32
        ):
            raise UsageError(Problem("E5009", f"max_iterations is a number from 0 to 2^32 - 1, not {self.max_iterations!r}"))
        flags = ("share_workspace", "feed_rows", "in_steps", "fast_float", "force_over_budget")
        for name, kind in (("choice", Choice), ("pooling", Pooling), ("byoc", tuple), *((name, bool) for name in flags)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise UsageError(Problem("E5009", f"{name} is {kind.__name__}, not {type(value).__name__}"))
        if not _are_hops(self.slide):
            raise UsageError(Problem("E5009", f"slide is a tuple of (input, rows), each input once, not {self.slide!r}"))
        if not isinstance(self.slide_axis, int) or isinstance(self.slide_axis, bool):
            raise UsageError(Problem("E5009", f"slide_axis is a number, not {self.slide_axis!r}"))
        if self.tuning is not None and not isinstance(self.tuning, History):
            raise UsageError(Problem("E5009", f"tuning is History or None, not {type(self.tuning).__name__}"))
        if self.byoc_path is not None and not isinstance(self.byoc_path, Path):
            raise UsageError(Problem("E5009", f"byoc_path is Path, not {type(self.byoc_path).__name__}"))


def _are_hops(given: object) -> bool:
    """Whether this is a tuple of pairs (name, positive number), with each name once."""
    if not isinstance(given, tuple) or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in given):
        return False
    names = [name for name, _ in given]
    good = all(isinstance(n, str) and isinstance(h, int) and not isinstance(h, bool) and h > 0 for n, h in given)
    return good and len(set(names)) == len(names)
