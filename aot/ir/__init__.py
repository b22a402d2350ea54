"""What both IRs share: modules, types, operators, passes."""

from __future__ import annotations

from aot.errors.tvm_names import missing_in
from aot.ir.module import IRModule, parse
from aot.ir.structural import structural_equal, structural_hash

__all__ = ["IRModule", "parse", "structural_equal", "structural_hash"]

__getattr__ = missing_in("ir")
