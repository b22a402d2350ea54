"""Integer programs, solved by HiGHS (scipy.optimize.milp)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

Row = tuple[Any, float, Any]
"""Coefficients (one row, or several), lower and upper bound."""


def minimise(objective: Any, rows: Sequence[Row], *, upper: Any, node_limit: int) -> Any | None:
    """Integers from 0 to `upper` that satisfy all rows with the least sum of `objective`; None where none are found.

    `node_limit` bounds the branches: a count, so that the result does not depend on the machine.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    with _silent():
        result = milp(
            objective,
            constraints=[LinearConstraint(*row) for row in rows],
            integrality=np.ones(len(objective)),
            bounds=Bounds(0, upper),
            options={"mip_rel_gap": 0.0, "node_limit": node_limit},
        )
    return result.x


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing reaches standard output: HiGHS prints a line of its own at times, whatever it is told, and JSON may go there."""
    try:
        kept = os.dup(1)
    except OSError:  # there is no standard output
        yield
        return
    flush = ctypes.CDLL(None).fflush if os.name == "posix" else lambda _stream: None
    flush(None)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        flush(None)  # what waits in the buffer of C must not come out later
        os.dup2(kept, 1)
        os.close(nowhere)
        os.close(kept)
