"""`aot tune MODEL`: measure the kernels of a model on a board, and record the costs for `--tuning`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from aot.cli.options import BoardName, CompileOptions, JsonFlag, ModelPath, QuietFlag, VerboseFlag, compiles
from aot.cli.output import Output
from aot.cli.workers import Jobs, Scheduler, chosen_pool
from aot.errors import Problem, VerificationError

if TYPE_CHECKING:
    from aot.tune.record import Record
    from aot.tune.task import Task
    from aot.tune.tune import Tuned

NAME = "tune"
_OF_MEMORY = ("pool", "pin", "const_pool", "rings", "in_steps", "io", "max_iterations", "ram_budget", "flash_budget")
_NOT_ASKED = ("opt", "kernels", "fast_float", "byoc", "byoc_path", "no_cache", "tuning", *_OF_MEMORY)

Database = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="FILE", help="The records; kernels that are already in FILE are not measured again."),
]
Trials = Annotated[
    int | None,
    typer.Option("--trials", metavar="N", min=1, help="Measure at most N kernels per layer; default: all that may win."),
]


@compiles(leave_out=_NOT_ASKED)
def command(
    model: ModelPath,
    *,
    options: CompileOptions,
    board: BoardName = None,
    output: Database = Path("tuning.jsonl"),
    jobs: Jobs = 1,
    scheduler: Scheduler = None,
    trials: Trials = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Measure on a board every kernel that accepts a layer of MODEL; --tuning FILE then chooses kernels by these records.

    Every output is checked; a kernel with a wrong result is reported (exit 5) and never recorded.
    """
    from aot.cli.common import find_board, request
    from aot.target.target import find_target
    from aot.tune import record as database
    from aot.tune.task import extract_tasks
    from aot.tune.tune import tune
    from aot.tune.worker import resource_of

    out = Output(json=as_json, quiet=quiet, verbose=verbose)
    place = find_board(board)
    req = request(model, options, target=place.cpu, board=place)
    pool = chosen_pool(jobs, scheduler, resource_of(place.name, emulated=place.gdb is None))
    old = database.load(output) if output.exists() else []
    with out.working(f"extracting the tasks of {model.name}"):
        tasks = extract_tasks(req.data, find_target(req.target), name=req.name, options=req.options)
    out.row("tasks", f"{len(tasks)} workloads with {sum(len(t.choices) for t in tasks)} kernels, for {req.target}")
    with out.working(f"measuring on {place.name}"):
        tuned = tune(
            tasks,
            place,
            known=old,
            trials=trials,
            pool=pool,
            plugins=[str(p.resolve()) for p in options.plugin or ()],
            progress=lambda rs: database.save(output, [*old, *rs]),
        )
    database.save(output, [*old, *tuned.records])
    rows = _rows(tasks, tuned)
    _show(out, rows)
    out.row("measured", f"{tuned.measured} kernels on {place.name}; {len(tuned.left_out)} could not be measured")
    for result in tuned.left_out:
        out.detail(f"   {result.kernel}: {result.problem}")
    out.row("write", f"{output}: {len(database.merged([*old, *tuned.records]))} records")
    if tuned.wrong:
        texts = {t.workload: t.text for t in tasks}
        raise VerificationError(
            *(
                Problem("E5500", f"{r.kernel} of this compiler gives a wrong result: {r.wrong}", texts[r.workload])
                for r in tuned.wrong
            )
        )
    out.result({"ok": True, "model": req.name, "target": req.target, "board": place.name, "output": str(output),
                "measured": tuned.measured, "tasks": rows})  # fmt: skip


def _rows(tasks: Sequence[Task], tuned: Tuned) -> list[dict[str, Any]]:
    """One row per task: the kernels with the lowest count and with the lowest estimate, and both counts."""
    by_task: dict[str, list[Record]] = {}
    for r in tuned.records:
        by_task.setdefault(r.workload, []).append(r)
    rows = []
    for t in tasks:
        ranked = sorted(by_task.get(t.workload, ()), key=lambda r: (r.count, r.kernel))
        expected = next((r for r in ranked if r.kernel == t.choices[0].kernel), None)
        if ranked:
            rows.append({
                "workload": t.workload, "text": t.text, "layers": t.layers, "kernels": len(t.choices), "best": ranked[0].kernel,
                "count": ranked[0].count, "estimated_best": t.choices[0].kernel,
                "estimated_best_count": None if expected is None else expected.count,
            })  # fmt: skip
    return rows


def _show(out: Output, rows: Sequence[dict[str, Any]]) -> None:
    headers = ("layers", "kernels", "best count", "estimated best", "best kernel", "task")
    out.table(headers, [(r["layers"], r["kernels"], r["count"], r["estimated_best_count"], r["best"], r["text"]) for r in rows])
    out.line()
