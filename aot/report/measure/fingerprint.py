"""Everything that the figures of a run depend on, as data that two runs can be compared by."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from aot.ir.op import Array
from aot.micro.build.project import Project, compiler
from aot.micro.build.toolchain import find_tool
from aot.report.measure.sets import Sets


def crc_of(sets: Sequence[Sequence[Array]]) -> str:
    """CRC-32 of all arrays' bytes, little-endian, in the order of sets and tensors."""
    value = 0
    for arrays in sets:
        for array in arrays:
            value = zlib.crc32(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).tobytes(), value)
    return f"{value:08x}"


def fingerprint(project: Project, sets: Sets, outputs: Sequence[Sequence[Array]]) -> dict[str, Any]:
    """Tool, model, options, compiler, flags, emulator and inputs; and the checksum of the outputs that came of them.

    In the form in which a file gives it back (lists, no tuples), so that it compares equal to itself.
    """
    meta = project.artifact.metadata
    name = project.artifact.name
    return {
        "tool": f"{meta['tool']['name']} {meta['tool']['version']}",
        "model": dict(meta["model"]),
        "board": project.board.name,
        "options": json.loads(json.dumps({k: meta[k] for k in ("oracle", "opt", "io")} | dict(meta["options"]))),
        "compiler": compiler(project.board).version,
        "flags": {"kernels": project.flags(f"{name}_kernels.c"), "main": project.flags(f"{name}.c")},
        "emulator": find_tool("qemu-system-arm").version if project.board.machine else None,
        "inputs": {"origin": sets.origin, "sets": len(sets), "crc32": crc_of(sets.inputs)},
        "outputs": {"crc32": crc_of(outputs)},
    }
