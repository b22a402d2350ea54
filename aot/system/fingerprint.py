"""What tells one version of the compiler from another."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Iterator
from functools import cache
from pathlib import Path


@cache
def compiler_fingerprint() -> str:
    """Changes when a file of the package does (by its size and time), or the Python that runs it."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(f"{root} {platform.python_version()}".encode())
    for path, size, when in sorted(_files(root)):
        digest.update(f"{path} {size} {when}\n".encode())
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(Path(entry.path))
            elif not entry.name.endswith(".pyc"):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns
