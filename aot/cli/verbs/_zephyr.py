"""`aot verify --board zephyr:BOARD`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from aot.cli.options import CompileOptions
from aot.cli.output import Output

if TYPE_CHECKING:
    from aot.executor.artifact import Artifact
    from aot.report.measure.sets import Sets
    from aot.report.measure.verify import Verification


def run_with_zephyr(
    out: Output,
    model: Path,
    board: str,
    options: CompileOptions,
    *,
    choose_sets: Callable[[Artifact], Sets],
    check: Callable[[bytes, Artifact, Sets], None],
    serial: str | None,
    timeout: float,
) -> tuple[Verification, Artifact]:
    """Run the model in an application of Zephyr's, whose configuration says which core it is compiled for, and compare."""
    from aot.cli.common import compile_for, import_text, request
    from aot.micro.run.zephyr import zephyr_base
    from aot.report.figures.size import operators_of, plan_of
    from aot.report.measure.verify import verify_on_zephyr

    zephyr_base()
    wanted = request(model, options, target="cortex-m3")  # for the tensors; the core is not known yet
    like = compile_for(wanted, None)
    sets = choose_sets(like)
    check(wanted.data, like, sets)
    out.row("import", import_text(wanted))
    how = "building and running" if serial is None else "building, flashing and running"
    with out.working(f"{how} {model.name} with Zephyr on {board}"):
        found, artifact = verify_on_zephyr(
            wanted.data, board, sets, compile_for=lambda cpu: compile_for(replace(wanted, target=cpu), None), like=like,
            serial=serial, timeout=timeout or None,
        )  # fmt: skip
    out.row("compile", f"{operators_of(artifact.metadata)}, for {artifact.metadata['target']['cpu']}")
    out.row("plan", plan_of(artifact.metadata))
    return found, artifact
