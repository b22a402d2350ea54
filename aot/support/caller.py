"""Where the user's code called us."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType


def call_place() -> str:
    """`script.py:12` of the innermost frame outside of this package; empty if there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.partition(".")[0] not in ("aot", "importlib", "functools", "contextlib"):
            return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
