"""What both IRs share: modules, types, operators, passes."""

from __future__ import annotations

from typing import Any

from aot.errors.tvm_names import missing
from aot.ir.module import IRModule, parse
from aot.ir.structural import structural_equal, structural_hash

__all__ = ["IRModule", "parse", "structural_equal", "structural_hash"]


def __getattr__(name: str) -> Any:
    """Raise E5091: the name exists in TVM but not here."""
    raise missing("ir", name)
