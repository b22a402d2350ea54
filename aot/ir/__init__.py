"""What both IRs share: modules, types, operators, passes."""

from __future__ import annotations

from aot.ir.module import IRModule, parse

__all__ = ["IRModule", "parse"]
