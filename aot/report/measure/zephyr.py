"""`aot verify --board zephyr:BOARD`: the outputs of a model in a Zephyr application against the reference.

The instruction count, the stack and the workspace's paint need our own start-up code: those figures are None here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from aot.executor.artifact import Artifact
from aot.micro.board import load_board
from aot.micro.run.runner import RunResult
from aot.micro.run.zephyr import PREFIX, ZephyrRun, run_on_serial, run_on_zephyr
from aot.report.measure.compare import compare_sets
from aot.report.measure.fingerprint import crc_of
from aot.report.measure.sets import Sets
from aot.report.measure.verify import ImageFacts, Verification, expected_outputs, summary
from aot.report.measure.windows import as_windows


def verify_on_zephyr(
    model: bytes,
    board: str,
    sets: Sets,
    *,
    compile_for: Callable[[str], Artifact],
    like: Artifact,
    serial: str | None = None,
    timeout: float | None = None,
) -> tuple[Verification, Artifact]:
    """Run `sets` on Zephyr's `board` (without the prefix) and compare; the artifact is the one for the board's core.

    `like` is the model compiled for any core: its tensors.  With `serial`, a port, the board is connected there; without, it is
    emulated.  Raises what aot.micro.run.zephyr.run_on_zephyr and aot.micro.run.zephyr.run_on_serial do.
    """
    oracle = like.metadata["oracle"]
    expected, by = expected_outputs(model, as_windows(sets, like.metadata), oracle=oracle, outputs=len(like.metadata["outputs"]))
    with tempfile.TemporaryDirectory(prefix="aot-zephyr-") as folder:
        start = run_on_zephyr if serial is None else partial(run_on_serial, port=serial)
        done = start(board, sets.inputs, metadata=like.metadata, compile_for=compile_for, folder=Path(folder), timeout=timeout)
    comparison = compare_sets(expected, done.outputs)
    found = summary(
        done.artifact,
        replace(load_board("host"), name=PREFIX + board),
        comparison,
        RunResult(done.outputs, None, None, None, None),
        by=by,
        facts=ImageFacts(done.tool),
        timed=(),
        fingerprint=_fingerprint(done, PREFIX + board, sets),
    )
    if comparison.first is not None:
        number, output, difference = comparison.first
        found = replace(found, first_divergence={"set": number, "output": output, **asdict(difference)})
    return found, done.artifact


def _fingerprint(done: ZephyrRun, board: str, sets: Sets) -> dict[str, Any]:
    """As aot.report.measure.fingerprint; compiler and flags are Zephyr's, which its version stands for."""
    meta = done.artifact.metadata
    return {
        "tool": f"{meta['tool']['name']} {meta['tool']['version']}",
        "model": dict(meta["model"]),
        "board": board,
        "options": {k: meta[k] for k in ("oracle", "opt", "io")} | dict(meta["options"]),
        "compiler": done.tool,
        "flags": {"kernels": ["-O2"], "main": []},
        "emulator": done.tool,
        "inputs": {"origin": sets.origin, "sets": len(sets), "crc32": crc_of(sets.inputs)},
        "outputs": {"crc32": crc_of(done.outputs)},
    }
