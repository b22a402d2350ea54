"""How much a piece of Python does, counted and not timed: the same number on a busy machine, and with coverage measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(run: Callable[[], object], *, most: int = 1 << 62) -> int:
    """Calls of functions, Python's and C's, while `run()` runs in this thread; AssertionError at once when more than `most`.

    What grows too fast or goes round in circles makes too many of them long before it would end.  What is imported late or
    kept from one run to the next makes the first run longer: bounds leave room, some times what was counted.
    """
    count = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1
            if count > most:
                raise AssertionError(f"more than {most:,} calls")  # ends the counting, too

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        run()
    finally:
        sys.setprofile(before)
    return count
