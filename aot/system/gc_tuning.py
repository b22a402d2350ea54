"""Fewer garbage collections during compilation."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS_BETWEEN = 500_000
"""New objects before a garbage collection."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Context with at least `OBJECTS_BETWEEN` new objects between garbage collections.

    IRs are trees without reference cycles, and most objects of a compilation live until its end: collections took two fifths of
    the time.  If the caller collects even less often, or never, that is kept.
    """
    before = gc.get_threshold()
    if 0 < before[0] < OBJECTS_BETWEEN:
        gc.set_threshold(OBJECTS_BETWEEN, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
