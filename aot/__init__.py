"""aot: TensorFlow Lite models compiled ahead of time to plain C for Arm Cortex-M.

`aot.build(model, target="cortex-m4")` yields an Artifact (C sources and metadata), `aot.build(schedule, [A, B, C])` a
runtime.Module (docs/python.md); the command line is `aot.cli`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aot.version import __version__

if TYPE_CHECKING:
    from aot.api import build, lower
    from aot.driver.options import Options
    from aot.executor.artifact import Artifact
    from aot.ir.global_func import get_global_func, list_global_func_names, register_func, remove_global_func

__all__ = [
    "Artifact",
    "Options",
    "__version__",
    "build",
    "get_global_func",
    "list_global_func_names",
    "lower",
    "register_func",
    "remove_global_func",
]

_HOMES = {
    "Artifact": "aot.executor.artifact",
    "Options": "aot.driver.options",
    "build": "aot.api",
    "get_global_func": "aot.ir.global_func",
    "list_global_func_names": "aot.ir.global_func",
    "lower": "aot.api",
    "register_func": "aot.ir.global_func",
    "remove_global_func": "aot.ir.global_func",
}


def __getattr__(name: str) -> Any:
    """Load the compiler only when it is requested, so that `import aot` and `aot --help` stay quick."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'aot' has no attribute '{name}'")
