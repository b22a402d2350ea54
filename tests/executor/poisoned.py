"""Many compiled networks as one shared library of this machine, run with every dead byte of their workspaces overwritten."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from aot.executor.artifact import Artifact
from aot.micro.build.poison import dead_intervals
from aot.runtime.module import HostModel
from tests.c_tools import shared_library

PROBE = """#include <stdint.h>
void (*aot_layer_callback)(int32_t layer, const void *out, uint32_t bytes);
void aot_layer_hook(int32_t layer, const void *out, uint32_t bytes);
void aot_layer_hook(int32_t layer, const void *out, uint32_t bytes) {
  if (aot_layer_callback != 0) aot_layer_callback(layer, out, bytes);
}
"""


def build_together(artifacts: Sequence[Artifact], folder: Path, *flags: str) -> list[HostModel]:
    """One library with all of them, compiled with these flags besides; their names must differ."""
    (folder / "probe.c").write_text(PROBE)
    files = [folder / "probe.c"]
    for artifact in artifacts:
        artifact.export(folder)
        files += [folder / name for name in artifact.files if name.endswith(".c")]
    library = shared_library(files, folder / "together.so", "-DAOT_HOOKS=1", *flags)
    return [HostModel(library, a.metadata) for a in artifacts]


def run_poisoned(module: HostModel, inputs: Sequence[np.ndarray], value: int) -> list[np.ndarray]:
    """The outputs, with `value` in the whole workspace before the run and in every byte that the plan gives up after a layer."""
    workspace = module.metadata["workspace"]
    size = int(workspace["size"])
    if not size:
        return module.run(inputs)
    memory = workspace_of(module)
    dead = dead_intervals(workspace, len(module.metadata["layers"]), module.metadata.get("control", ()))
    memory[:] = value

    def after(layer: int, _output: bytes) -> None:
        for start, end in dead[layer]:
            memory[start:end] = value

    return module.run(inputs, on_layer=after)


def touched_end(module: HostModel, inputs: Sequence[np.ndarray]) -> int:
    """The end of the bytes of the workspace that a run writes; with two paints, as a byte may happen to get one of them."""
    memory = workspace_of(module)
    touched = np.zeros(len(memory), bool)
    for paint in (0xA5, 0x5A):
        memory[:] = paint
        module.run(inputs)
        touched |= memory != paint
    return int(touched.nonzero()[0].max(initial=-1)) + 1


def workspace_of(module: HostModel) -> np.ndarray:
    """The bytes of the model's workspace."""
    name, size = module.metadata["name"], int(module.metadata["workspace"]["size"])
    library = ctypes.CDLL(str(module.library))
    return np.frombuffer((ctypes.c_uint8 * size).in_dll(library, f"{name}_workspace"), np.uint8)
