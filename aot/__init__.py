"""aot: TensorFlow Lite models compiled ahead of time to plain C for Arm Cortex-M.

`aot.check`, `aot.build`, `aot.load`, `aot.verify` and `aot.report` accept a model as a path or bytes;
`aot.build(schedule, [A, B, C])` returns a runtime.Module (docs/python.md).  The command line is `aot.cli`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from aot.support.entry_points import declare as _declare
from aot.version import __version__

if TYPE_CHECKING:
    from aot import report as report
    from aot.api import build, load, lower
    from aot.driver.options import Options
    from aot.executor.artifact import Artifact
    from aot.ir.op import get_global_func, list_global_func_names, register_func, remove_global_func
    from aot.ir.structural import structural_equal, structural_hash
    from aot.report.calls import Check, ModelReport, check, verify
    from aot.report.measure.verify import Verification
    from aot.runtime.module import HostModel

__all__ = [
    "Artifact",
    "Check",
    "HostModel",
    "ModelReport",
    "Options",
    "Verification",
    "__version__",
    "build",
    "check",
    "get_global_func",
    "list_global_func_names",
    "load",
    "lower",
    "register_func",
    "remove_global_func",
    "report",
    "structural_equal",
    "structural_hash",
    "verify",
]

_HOMES = {
    "Artifact": "aot.executor.artifact",
    "Check": "aot.report.calls",
    "HostModel": "aot.runtime.module",
    "ModelReport": "aot.report.calls",
    "Options": "aot.driver.options",
    "Verification": "aot.report.measure.verify",
    "build": "aot.api",
    "check": "aot.report.calls",
    "get_global_func": "aot.ir.op",
    "list_global_func_names": "aot.ir.op",
    "load": "aot.api",
    "lower": "aot.api",
    "register_func": "aot.ir.op",
    "remove_global_func": "aot.ir.op",
    "structural_equal": "aot.ir.structural",
    "structural_hash": "aot.ir.structural",
    "verify": "aot.report.calls",
}

_declare(
    {
        "operator": ("aot.op:load",),
        "operators": ("aot.op:load_all",),
        "constructors": ("aot.op.construct",),
        "pattern tables": ("aot.byoc:load_all",),
        "kernels": ("aot.topi:load_all",),
        "passes": ("aot.driver.front", "aot.relay.transform", "aot.tir.transform", "aot.executor.pipeline"),
        "global function target.build.c": ("aot.runtime.functions",),
    }
)


def __getattr__(name: str) -> Any:
    """Load the compiler on first use, so that `import aot` and `aot --help` stay fast."""
    if name == "report":  # a callable package
        return import_module("aot.report")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    from aot.errors.tvm_names import missing

    raise missing("", name)
