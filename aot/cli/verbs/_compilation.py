"""What `aot compile` is asked for."""

from __future__ import annotations

from pathlib import Path

from aot.cli.options import CompileOptions
from aot.cli.output import Output
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Compilation:
    """The options of the verb beside the models: `options` are those that all verbs share, the others its own."""

    options: CompileOptions
    output: Path | None
    target: str | None
    board: str | None
    form: str
    plan: Path | None
    share: bool
    sbom: bool
    profiler: bool
    stack_bound: bool
    verify_passes: bool
    force: bool
    over: bool
    budget: Path | None
    out: Output
