"""Many models in one file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)


def archive(models: Iterable[tuple[str, bytes]], path: Path) -> None:
    """All models in one file: the same models, the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in models:
            file.writestr(zipfile.ZipInfo(name, EPOCH), data, zipfile.ZIP_DEFLATED, compresslevel=9)
