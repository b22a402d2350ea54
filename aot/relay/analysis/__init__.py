"""What can be known of a graph without running it."""

from __future__ import annotations

from aot.relay.analysis.variables import all_vars, bound_vars, free_vars

__all__ = ["all_vars", "bound_vars", "free_vars"]
