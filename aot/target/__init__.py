"""Targets and code generation."""

from __future__ import annotations

from aot.errors.tvm_names import missing_in
from aot.target.target import Target, TargetKind, TargetOption, register_target_kind, target_kinds

__all__ = ["Target", "TargetKind", "TargetOption", "register_target_kind", "target_kinds"]

__getattr__ = missing_in("target")
