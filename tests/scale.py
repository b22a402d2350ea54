"""How many cases the long random tests try."""

from __future__ import annotations

import os


def cases(full: int) -> int:
    """`full` with AOT_FULL=1 in the environment, a tenth of it otherwise: enough for every change, the rest for a release."""
    return full if os.environ.get("AOT_FULL") == "1" else max(1, full // 10)
