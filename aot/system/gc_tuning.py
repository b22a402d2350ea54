"""Fewer searches for reference cycles while a network is compiled."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_BETWEEN = 500_000
"""New objects after which Python looks for cycles."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Python looks for cycles after `OBJECTS_BETWEEN` new objects at the earliest; afterwards as before.

    IRs are trees that hold no cycles, and most objects of a compilation live until its end: looking for some took two fifths of
    it.  A caller who looks less often, or never, keeps that.
    """
    before = gc.get_threshold()
    if 0 < before[0] < OBJECTS_BETWEEN:
        gc.set_threshold(OBJECTS_BETWEEN, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
