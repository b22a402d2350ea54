"""What a compilation yields: C sources as text and everything that is known about them as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Artifact:
    """The result of `aot.build`.

    `files` maps file names (`kws.h`, `kws.c`, `kws_kernels.c`, `kws_params.c`) to their text.
    `metadata` is the content of `metadata.json` (docs/metadata.md), plain JSON values only.
    """

    name: str
    files: Mapping[str, str]
    metadata: Mapping[str, Any]

    def export(self, folder: Path) -> list[Path]:
        """Write all files below `folder` (created when missing); return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in self.files.items():
            path = folder / name
            path.write_text(text, encoding="utf-8", newline="\n")
            written.append(path)
        return written
