"""What can be known of a graph without running it."""

from __future__ import annotations

from typing import Any

from aot.errors.tvm_names import missing
from aot.relay.analysis.variables import all_vars, bound_vars, free_vars

__all__ = ["all_vars", "bound_vars", "free_vars"]


def __getattr__(name: str) -> Any:
    """What TVM has under a name that is not here (E5091)."""
    raise missing("relay.analysis", name)
