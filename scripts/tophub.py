#!/usr/bin/env python3
"""Counts the records of the package (aot/tune/records), on the networks of the tests.

    python scripts/tophub.py                       all kernels of tests/models/net_*.tflite on an emulated Cortex-M4
    python scripts/tophub.py MODELS --board B      other models or boards; one file per core
    python scripts/tophub.py --records FILE        continue from records of aot tune

For each workload, kernels with at most twice the smallest count are kept: others are never chosen for speed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MODELS = sorted((ROOT / "tests" / "models").glob("net_*.tflite"))
MOST = 2.0
"""Kernels are kept up to this factor of a workload's smallest count."""


def counted(models: list[Path], board_name: str, processes: int, records: Path | None) -> dict[str, Any]:
    """The file of a core."""
    from aot.driver.options import Options
    from aot.micro.board import load_board
    from aot.system.executors import local
    from aot.target.target import find_target
    from aot.tune.record import load, save
    from aot.tune.task import extract_tasks
    from aot.tune.tophub import VERSION
    from aot.tune.tune import tune

    board = load_board(board_name)
    target = find_target(board.cpu)
    counts = load(records) if records is not None and records.exists() else []
    tasks: dict[str, dict[str, Any]] = {}
    modules: dict[str, str] = {}
    compiler = ""
    for model in models:
        new_tasks = extract_tasks(model.read_bytes(), target, name="net", options=Options(opt="speed"))
        done = tune(new_tasks, board, known=counts, pool=local(processes))
        if done.wrong:
            raise SystemExit(f"{model.name}: {[(w.kernel, w.wrong) for w in done.wrong]}")
        counts = [*counts, *done.records]
        if records is not None:
            save(records, counts)
        for task in new_tasks:
            own = {r.kernel: r.count for r in done.records if r.workload == task.workload}
            kept = {k: n for k, n in sorted(own.items()) if n <= MOST * min(own.values())}
            if len(kept) > 1:
                tasks[task.workload] = {"text": task.text, "kernels": kept}
                modules |= {k.partition("(")[0]: m for k, m in modules_of(task.func, target).items() if k in kept}
        compiler = done.records[0].compiler if done.records else compiler
        print(f"{model.name}: {len(tasks)} workloads so far", file=sys.stderr)
    head = {"v": VERSION, "target": target.name, "board": board.name, "compiler": compiler, "unit": "instructions"}
    return {**head, "kernels": dict(sorted(modules.items())), "sources": sources(modules), "tasks": dict(sorted(tasks.items()))}


def modules_of(func: Any, target: Any) -> dict[str, str]:
    """The module of each kernel that accepts a fused function."""
    from aot.executor.candidates import accepting, group_of

    group = group_of(func)
    return {impl.lower(group, target, "layer").func.attrs.kernel: impl.module for impl in accepting(group, target)}


def sources(modules: dict[str, str]) -> dict[str, str]:
    """Digests of the sources for which the counts are valid."""
    from aot.tune.tophub import source_digest

    return {module: source_digest(module) for module in sorted(set(modules.values()))}


def text(data: dict[str, Any]) -> str:
    """One line per workload, so that differences are readable."""
    head = [f" {json.dumps(name)}: {json.dumps(value)}," for name, value in data.items() if name != "tasks"]
    tasks = [f"  {json.dumps(name)}: {json.dumps(task)}" for name, task in data["tasks"].items()]
    return "\n".join(["{", *head, ' "tasks": {', ",\n".join(tasks), " }", "}", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description="the records that come with the package")
    parser.add_argument("models", nargs="*", type=Path, default=MODELS)
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    parser.add_argument("--records", type=Path, help="records to go on from, which are added to")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from aot.tune.tophub import FOLDER

    data = counted(arguments.models, arguments.board, arguments.jobs, arguments.records)
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{data['target']}.json"
    path.write_text(text(data), encoding="utf-8")
    print(f"{path}: {len(data['tasks'])} workloads, {sum(len(t['kernels']) for t in data['tasks'].values())} kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
