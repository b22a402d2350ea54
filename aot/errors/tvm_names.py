"""TVM's names that aot does not have: what to use instead, or why there is no equivalent (docs/tvm.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aot.errors import Problem, UsageError, call_place
from aot.errors.tvm_index import NAMES


class TvmNameError(UsageError, AttributeError):
    """E5091: one of TVM's names that aot does not have; also an AttributeError, so that hasattr works."""


def is_tvm_name(name: str) -> bool:
    """Whether docs/tvm.md lists this name of TVM (without `tvm.`) as one that aot does not have."""
    return name in NAMES


def missing(module: str, name: str) -> AttributeError:
    """The error for a missing `module.name`; `module` is TVM's module without `tvm.`, empty for the root."""
    full = f"{module}.{name}" if module else name
    if not is_tvm_name(full):
        return AttributeError(f"'{module or 'aot'}' has no attribute '{name}'")
    return TvmNameError(Problem("E5091", f"TVM's {full} {NAMES[full]}", call_place()))


def missing_in(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of one of our modules, for names that TVM's `module` has and ours has not (E5091)."""

    def absent(name: str) -> Any:
        raise missing(module, name)

    return absent
