#!/usr/bin/env python3
"""Hashes of every generated file: what a refactoring must not change.

    python scripts/outputs.py                    print the lines, one per compilation
    python scripts/outputs.py --write            write them to tests/outputs.sha256, which a slow test compares
    python scripts/outputs.py --against main     compare with another git revision; exit 1 if a file differs
    python scripts/outputs.py --models 'tests/models/net_*.tflite' --against HEAD

The models of tests/models, each with every `--opt`; cores, `--io` and the rarer options alternate.  A line is the compilation,
then FILE=HASH of each file, including metadata.json, or the error codes if it is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "outputs.sha256"
OPTS = ("balanced", "speed", "size", "ram")
CORES = ("cortex-m4", "cortex-m0", "cortex-m3", "cortex-m55", "host")
POOLS = ("FAST=16K@0x10000000:2", "MAIN=512K@0x20000000")
NETWORKS = ("net_kws_dscnn", "net_sww", "net_ic_resnet")
DIGITS = 12
"""Hexadecimal digits kept of a hash: enough to see a change."""


@dataclass(frozen=True, slots=True)
class Case:
    """One compilation: a model, a core, and the options that differ from the usual ones."""

    model: str
    core: str
    options: tuple[tuple[str, Any], ...]

    def __str__(self) -> str:
        return " ".join((self.model, self.core, *(f"{k}={v}" for k, v in self.options)))


def cases(models: Sequence[str]) -> Iterator[Case]:
    """Every model with every opt; for the networks also options that change the main function or the memory plan."""
    for i, model in enumerate(models):
        for j, opt in enumerate(OPTS):
            io = "user" if (i + j) % 3 == 2 else "arena"
            core = CORES[0] if model.startswith("net_") else CORES[(i + j) % len(CORES)]
            yield Case(model, core, (("opt", opt), ("io", io)))
        if model in NETWORKS[:2]:
            for core in CORES[1:]:
                yield Case(model, core, ())
        if model in NETWORKS:
            yield Case(model, CORES[0], (("kernels", "generic"),))
            yield Case(model, CORES[0], (("feed_rows", True),))
            yield Case(model, CORES[0], (("pooling", POOLS),))
            yield Case(model, CORES[0], (("share_workspace", True), ("opt", "size")))
            yield Case(model, CORES[0], (("oracle", "tflm"), ("ram_budget", 40000)))
            yield Case(model, CORES[0], (("in_steps", True),))


def compiled(root: Path, case: Case) -> dict[str, str]:
    """File name -> text; {"refused": codes} if the compiler refuses."""
    import aot
    from aot.errors import AotError
    from aot.memory.memory_pools import Pooling, parse_pool

    options = dict(case.options)
    if "pooling" in options:
        options["pooling"] = Pooling(tuple(parse_pool(p) for p in options["pooling"]))
    path = root / "tests" / "models" / f"{case.model}.tflite"
    try:
        artifact = aot.build(path, target=case.core, options=options_type()(**options))
    except AotError as error:
        return {"refused": " ".join(p.code for p in error.problems)}
    metadata = json.dumps(artifact.metadata, sort_keys=True)
    return {**artifact.files, "metadata.json": metadata}


def options_type() -> Any:
    """The record of options, wherever the revision has it."""
    try:
        from aot.driver.options import Options
    except ImportError:
        from aot.driver.options import Options
    return Options


def lines(root: Path, pattern: str) -> Iterator[str]:
    """A line for each case, from the compiler that Python imports."""
    models = sorted(p.stem for p in root.glob(pattern))
    for case in cases(models):
        files = compiled(root, case)
        marks = (f"{name}={hashlib.sha256(text.encode()).hexdigest()[:DIGITS]}" for name, text in sorted(files.items()))
        yield f"{case}: {' '.join(marks)}" if "refused" not in files else f"{case}: refused {files['refused']}"


def of_revision(revision: str, pattern: str) -> list[str]:
    """The lines that another revision's compiler gives for this revision's models."""
    with tempfile.TemporaryDirectory() as folder:
        there = Path(folder) / "tree"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(there), revision], check=True)
        try:
            command = [sys.executable, __file__, "--models", pattern]
            env = {**os.environ, "PYTHONPATH": str(there)}
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        finally:
            subprocess.run([*git, "remove", "--force", str(there)], check=True)
    return done.stdout.splitlines()


def differences(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """`case: files` for everything that differs; `gone` and `new` if a case is in one list only."""
    old, new = (dict(line.split(": ", 1) for line in text) for text in (before, now))
    changes = [f"{case}: gone" for case in old if case not in new]
    for case, marks in new.items():
        if case not in old:
            changes.append(f"{case}: new")
        elif marks != old[case]:
            changed = set(marks.split()) ^ set(old[case].split())
            changes.append(f"{case}: {' '.join(sorted({m.partition('=')[0] for m in changed}))}")
    return changes


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="tests/models/*.tflite", help="glob below the repository's root")
    parser.add_argument("--write", action="store_true", help="write tests/outputs.sha256")
    parser.add_argument("--against", metavar="REV", help="git revision to compare with")
    chosen = parser.parse_args(arguments)
    now = []
    for line in lines(ROOT, chosen.models):
        now.append(line)
        if not (chosen.write or chosen.against):
            print(line, flush=True)
    if chosen.write:
        GOLDEN.write_text("\n".join(now) + "\n", encoding="utf-8")
    if chosen.against:
        changes = differences(of_revision(chosen.against, chosen.models), now)
        print("\n".join(changes) if changes else f"{len(now)} compilations, every file as in {chosen.against}")
        return 1 if changes else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
