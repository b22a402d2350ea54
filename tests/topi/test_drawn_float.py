"""Every float32 kernel of arm_fpu over random layers: interpreter, C on this machine with ASan and UBSan, instructions in QEMU.

With AOT_FULL=1 2,000 layers a kernel in each of the three, else a few.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.topi.batch import Batch
from tests.topi.drawn_float import KERNELS, random_cases
from tests.topi.intrin.test_intrin import needs_board, needs_host
from tests.topi.test_drawn import BATCH, RANDOM, interpreted

every_kernel = pytest.mark.parametrize("name", sorted(KERNELS))


def on_board(name: str, board: str, folder: Path, *, seed: int) -> None:
    cases = random_cases(name, seed)
    for done in range(0, RANDOM, BATCH):
        assert Batch(list(islice(cases, min(BATCH, RANDOM - done)))).run(board, folder / str(done)) == []


@every_kernel
def test_some_in_the_interpreter(name: str) -> None:
    interpreted(list(islice(random_cases(name, 4), 2)))


@pytest.mark.slow
@every_kernel
def test_random_in_the_interpreter(name: str) -> None:
    interpreted(list(islice(random_cases(name, 1), RANDOM)))


@pytest.mark.slow
@needs_host
@every_kernel
def test_on_the_host(name: str, tmp_path: Path) -> None:
    on_board(name, "host", tmp_path, seed=2)


@pytest.mark.qemu
@needs_board
@every_kernel
def test_on_the_core(name: str, tmp_path: Path) -> None:
    on_board(name, "mps2-an386", tmp_path, seed=3)
