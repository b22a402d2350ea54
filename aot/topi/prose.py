"""The idea of each kernel, in a sentence (kernels.toml): for the comment above it in generated C and for docs/kernels.md."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from aot.support.dataclass import dataclass

FILE = Path(__file__).with_name("kernels.toml")


@dataclass(frozen=True, slots=True)
class Prose:
    """Kernels with one idea: patterns of their names, the layers they accept, and what a weight occupies in flash."""

    kernels: Sequence[str]
    layers: str
    idea: str
    weights: str = "–"


@cache
def rows() -> Sequence[Prose]:
    """The rows of the table; the first that fits a kernel's name counts."""
    return tuple(Prose(**row) for row in tomllib.loads(FILE.read_text(encoding="utf-8"))["row"])


@cache
def comment_of(kernel: str) -> str:
    """The sentence for the comment above a kernel, with the page that explains more.

    `kernel`: its name, with or without arguments in parentheses.  Empty for a kernel that computes its operator step by step.
    """
    name = kernel.partition("(")[0]
    idea = next((row.idea for row in rows() if any(fnmatchcase(name, pattern) for pattern in row.kernels)), "")
    return f"{idea[0].upper()}{idea[1:]} (docs/kernels.md)." if idea else ""


def table() -> list[str]:
    """The lines of the table of docs/kernels.md."""
    head = ["| kernel | layers | idea | weights in flash |", "|---|---|---|---|"]
    return head + [f"| {', '.join(f'`{k}`' for k in r.kernels)} | {r.layers} | {r.idea} | {r.weights} |" for r in rows()]
