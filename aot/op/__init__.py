"""Operators of the graph: an operator's file is imported on first use; `load_all` imports them all."""

from __future__ import annotations

import importlib

from aot.op.operator_index import OPERATORS


def load(name: str) -> None:
    """Import the file that registers an operator, if it is one of ours."""
    if name in OPERATORS:
        importlib.import_module(f"{__name__}.{OPERATORS[name]}")


def load_all() -> None:
    """Import every file that registers operators."""
    for file in sorted(set(OPERATORS.values())):
        importlib.import_module(f"{__name__}.{file}")
