"""Drawn kernels in three places: the TIR interpreter, C on this machine with ASan and UBSan, instructions on a board."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np

from tests.topi.batch import Batch
from tests.topi.drawn import Case
from tests.topi.groups import run_all

FULL = os.environ.get("AOT_FULL") == "1"
RANDOM = 2000 if FULL else 12
"""Random layers of a kernel in each place."""
BATCH = 50
"""Cases of one program."""


def interpreted(cases: Iterable[Case]) -> None:
    """Equal to the meaning in the interpreter."""
    for case in cases:
        for found, expected in zip(run_all(case.lowered, case.inputs), case.expected, strict=True):
            np.testing.assert_array_equal(found.reshape(expected.shape), expected, err_msg=case.text, strict=True)


def groups_of(cases: Sequence[Case]) -> Iterator[list[Case]]:
    """In programs of `BATCH` cases."""
    for done in range(0, len(cases), BATCH):
        yield list(cases[done : done + BATCH])


def on_board(board: str, groups: Iterable[list[Case]], folder: Path) -> None:
    """Equal on a board, or on this machine as "host"."""
    for cases in groups:
        assert Batch(cases).run(board, folder / board) == []


def drawn_on_board(board: str, cases: Iterator[Case], folder: Path, *, together: int = BATCH) -> None:
    """The next `RANDOM` of endless cases; `together` of them are made at once, and are one program."""
    on_board(board, (list(islice(cases, min(together, RANDOM - done))) for done in range(0, RANDOM, together)), folder)
