"""What a compilation yields: C sources as text and everything that is known about them as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aot.errors import Problem, UsageError

_FILE_ENDS = ("internal", "kernels", "params", "test")
"""Of a model's files and of a project's test vector, after the model's name."""


@dataclass(frozen=True, slots=True)
class Artifact:
    """The result of `aot.build`.

    `files` maps file names (`kws.h`, `kws.c`, `kws_kernels.c`, `kws_params.c`) to their text.
    `metadata` is the content of `metadata.json` (docs/metadata.md), plain JSON values only.
    `graph` is the model as a graph of kernel calls (docs/python.md), where it was built in this process.
    """

    name: str
    files: Mapping[str, str]
    metadata: Mapping[str, Any]
    graph: Mapping[str, Any] | None = None

    def export(self, folder: Path) -> list[Path]:
        """Write all files below `folder` (created when missing); return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in self.files.items():
            path = folder / name
            path.write_text(text, encoding="utf-8", newline="\n")
            written.append(path)
        return written


def check_names(names: Sequence[str]) -> None:
    """Two models of the same name, or whose files would have the same names (`a_params` and `a`), are an error (E5043)."""
    if len(set(names)) != len(names):
        raise UsageError(Problem("E5043", f"models need different names; these are: {', '.join(sorted(names))}"))
    clashes = [(n, f"{n}_{end}") for n in names for end in _FILE_ENDS if f"{n}_{end}" in names]
    if clashes:
        raise UsageError(*(Problem("E5043", f"model {b}: {b} is also the name of files of model {a}") for a, b in clashes))
