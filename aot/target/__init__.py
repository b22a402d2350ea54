"""Targets and code generation."""

from __future__ import annotations

from typing import Any

from aot.errors.tvm_names import missing
from aot.target.target import Target, TargetKind, TargetOption, register_target_kind, target_kinds

__all__ = ["Target", "TargetKind", "TargetOption", "register_target_kind", "target_kinds"]


def __getattr__(name: str) -> Any:
    """Raise E5091 for TVM's names that aot does not have."""
    raise missing("target", name)
