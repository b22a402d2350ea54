"""The committed models, as today's converter wrote them: `make.py` says how."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path

ARCHIVE = Path(__file__).parent / "models.zip"
KINDS = ("float32", "int8", "int8_float_io", "int16x8")


@cache
def names() -> tuple[str, ...]:
    """`network.kind.tflite` of each model."""
    with zipfile.ZipFile(ARCHIVE) as file:
        return tuple(sorted(file.namelist()))


def read(name: str) -> bytes:
    with zipfile.ZipFile(ARCHIVE) as file:
        return file.read(name)
