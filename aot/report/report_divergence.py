"""Where a model differs from its reference: layer by layer, by how much, and the inputs that show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.micro.project import Project
from aot.micro.runner import run
from aot.report.reference import find_tracer
from aot.report.verify import compare_layers

FAR = 10
"""Differences of at least this size are counted together."""


def divergence(model: bytes, project: Project, inputs: Sequence[Array], *, number: int, timeout: float | None) -> dict[str, Any]:
    """Trace set `number` (its `inputs`) and compare every layer with the reference's tensor of the same index.

    `layers` has a row for each layer that differs: later ones mostly because of earlier ones, so the first is the one to look at.
    """
    meta = project.artifact.metadata
    tracer = find_tracer(model, meta["oracle"])
    assert tracer.tensors is not None
    tensors = tracer.tensors(inputs)
    rows = []
    for step in run(project, [inputs], mode="trace", timeout=timeout).layers:
        found = compare_layers(meta["layers"], (step,), tensors)
        if found is not None:
            rows.append({k: found[k] for k in ("layer", "op", "name", "kernel", "tensor", "count", "size", "max_abs")})
    return {"set": number, "reference": tracer.name, "layers": rows}


def histogram(expected: Sequence[Sequence[Array]], actual: Sequence[Sequence[Array]]) -> list[dict[str, int]]:
    """How often the integer outputs are off by how much (actual - expected), all sets together, smallest first; 0 is left out.

    From -FAR down and from FAR up the differences are counted as -FAR and FAR.  Floats are left out.
    """
    counts: Counter[int] = Counter()
    for want, got in zip(expected, actual, strict=True):
        for w, g in zip(want, got, strict=True):
            if w.dtype.kind in "iu":
                off = np.clip(g.astype(np.int64).reshape(-1) - w.astype(np.int64).reshape(-1), -FAR, FAR)
                values, numbers = np.unique(off[off != 0], return_counts=True)
                counts.update(dict(zip(values.tolist(), numbers.tolist(), strict=True)))
    return [{"difference": d, "count": counts[d]} for d in sorted(counts)]


def write_reproducer(path: Path, inputs: Sequence[Array], expected: Sequence[Array]) -> None:
    """One set with what must come out, as `aot verify MODEL --inputs FILE.npz` reads it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {f"in{i}_0": a for i, a in enumerate(inputs)} | {f"out{i}_0": a for i, a in enumerate(expected)}
    with path.open("wb") as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]
