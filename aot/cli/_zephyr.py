"""`aot verify --board zephyr:BOARD`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from aot.cli.options import CompileOptions
from aot.cli.output import Output
from aot.errors import EXIT_VERIFICATION


def verify_with_zephyr(
    out: Output, model: Path, board: str, options: CompileOptions, *, inputs: Path | None, random: int | None, timeout: float
) -> None:
    """Run the model in an application of Zephyr's, whose configuration says which core it is compiled for, and compare."""
    from aot.cli import verify as verb
    from aot.cli.common import compile_model, import_text, request
    from aot.micro.run.zephyr import zephyr_base
    from aot.report.figures.size import operators_of, plan_of
    from aot.report.measure.zephyr import verify_on_zephyr

    zephyr_base()
    wanted = request(model, options, target="cortex-m3")  # for the tensors; the core is not known yet
    like = compile_model(wanted)
    sets = verb.choose_sets(like, inputs, random, oracle=options.oracle)
    out.row("import", import_text(wanted))
    with out.working(f"building and running {model.name} with Zephyr on {board}"):
        found, artifact = verify_on_zephyr(
            wanted.data, board, sets, compile_for=lambda cpu: compile_model(replace(wanted, target=cpu)), like=like,
            timeout=timeout or None,
        )  # fmt: skip
    out.row("compile", f"{operators_of(artifact.metadata)}, for {artifact.metadata['target']['cpu']}")
    out.row("plan", plan_of(artifact.metadata))
    verb.show(out, found, artifact)
    out.result(found.to_json())
    if not found.exact:
        if not out.json:
            verb.complain(verb.divergence_text(found.first_divergence), found)
        raise typer.Exit(EXIT_VERIFICATION)
