"""Names of TVM's that are not here: what there is in their place, or why there is nothing (docs/tvm.md)."""

from __future__ import annotations

from aot.errors import Problem, UsageError, call_place
from aot.errors.tvm_index import NAMES


class TvmNameError(UsageError, AttributeError):
    """E5091: a name of TVM's that is not here; an AttributeError as well, so that hasattr works."""


def is_tvm_name(name: str) -> bool:
    """Whether TVM has this name (without `tvm.`) and docs/tvm.md lists what to use instead."""
    return name in NAMES


def missing(module: str, name: str) -> AttributeError:
    """The error for `module.name`, which does not exist; `module` is TVM's without `tvm.`, empty for its root."""
    full = f"{module}.{name}" if module else name
    if not is_tvm_name(full):
        return AttributeError(f"'{module or 'aot'}' has no attribute '{name}'")
    return TvmNameError(Problem("E5091", f"TVM's {full} {NAMES[full]}", call_place()))
