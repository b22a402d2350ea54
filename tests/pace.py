"""How fast this machine runs Python now, beside the one on which bounds in seconds were set."""

from __future__ import annotations

import gc
import time

SECONDS = 0.039
"""User CPU time of `_work` on that machine, when it did nothing else."""


def slowness() -> float:
    """How many times longer Python takes now than it did where bounds were set; 1 on a machine as quick as that one, or quicker.

    A bound in seconds is multiplied by it: what shares a machine's memory and its caches, and the machine itself, differ from run
    to run, and a test of the compiler's speed is not a test of theirs.
    """
    return max(1.0, min(_work() for _ in range(3)) / SECONDS)


def _work() -> float:
    """CPU seconds of work alike a compiler's: keys made, looked up and stored, calls; no search for cycles in between."""
    was = gc.isenabled()
    gc.disable()
    try:
        start = time.process_time()
        seen: dict[tuple[int, str], list[int]] = {}
        for i in range(100_000):
            seen.setdefault((i % 4999, str(i & 31)), []).append(i)
        return time.process_time() - start
    finally:
        if was:
            gc.enable()
