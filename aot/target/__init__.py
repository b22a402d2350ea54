"""Targets and code generation."""

from __future__ import annotations

from typing import Any

from aot.errors.tvm_names import missing
from aot.target.target import Target, TargetKind, TargetOption, register_target_kind, target_kinds

__all__ = ["Target", "TargetKind", "TargetOption", "register_target_kind", "target_kinds"]


def __getattr__(name: str) -> Any:
    """What TVM has under a name that is not here (E5091)."""
    raise missing("target", name)
