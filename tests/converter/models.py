"""The committed models, as today's converter wrote them: `make.py` says how."""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path

ARCHIVE = Path(__file__).parent / "models.zip"
KINDS = ("float32", "int8", "int8_float_io", "int16x8")

ARCHIVE_OVER_TIME = Path(__file__).parent / "over_time.zip"
KINDS_OVER_TIME = ("float32", "dynamic", "float16", "int8", "int8_float_io", "int16x8")

ARCHIVE_PYTORCH = Path(__file__).parent / "pytorch.zip"
KINDS_PYTORCH = ("float32", "dynamic", "int8")

ARCHIVE_FULL_SIZE = Path(__file__).parent / "full_size_pytorch.zip"
"""Networks to measure, not tiny: they are not among `ARCHIVES`."""
KINDS_FULL_SIZE = ("int8",)

ARCHIVE_FLEX = Path(__file__).parent / "flex.zip"
"""Loops over TensorFlow's lists, which LiteRT does not run, and the same networks unrolled: not among `ARCHIVES`."""
KINDS_FLEX = ("float32", "float16", "dynamic")

ARCHIVES = (ARCHIVE, ARCHIVE_OVER_TIME, ARCHIVE_PYTORCH)


@cache
def names(archive: Path = ARCHIVE) -> tuple[str, ...]:
    """`network.kind.tflite` of each model."""
    with zipfile.ZipFile(archive) as file:
        return tuple(sorted(file.namelist()))


def read(name: str, archive: Path = ARCHIVE) -> bytes:
    with zipfile.ZipFile(archive) as file:
        return file.read(name)


def is_committed(network: str, kind: str) -> bool:
    """Whether the archive over time has it: of the many forms of recurrent layers some kinds, to stay small."""
    form, *rest = network.split("_")
    if form == "unrolled":
        return kind == "int8" or (len(rest) == 1 and kind in ("float32", "int16x8"))
    if form == "while":
        return kind == "float32"
    if form == "fused":
        return kind in ("float32", "float16", "int8")
    return kind != "float16" or form == "streaming"


def is_committed_flex(network: str, kind: str) -> bool:
    """Whether the archive of loops over lists has it: all in float32, and one loop with other weights."""
    return kind == "float32" or network == "gru.loop"
