"""Passes over loop nests, one a file, and their usual order."""

from __future__ import annotations

from aot.ir.transform import Sequential
from aot.tir.transform.flatten_buffer import flatten, flatten_buffer
from aot.tir.transform.simplify import simplified, simplify
from aot.tir.transform.unroll_loop import unroll, unroll_loop

__all__ = ["flatten", "flatten_buffer", "pipeline", "simplified", "simplify", "unroll", "unroll_loop"]


def pipeline() -> Sequential:
    """simplify, unroll_loop, flatten_buffer, simplify: from a kernel's own text to what the code generator prints."""
    return Sequential((simplify, unroll_loop, flatten_buffer, simplify), "tir")
