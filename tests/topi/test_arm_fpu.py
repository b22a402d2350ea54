"""Every float32 kernel of arm_fpu over random layers: interpreter, C on this machine with ASan and UBSan, instructions in QEMU.

With AOT_FULL=1 2,000 layers a kernel in each of the three, else a few.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tests.topi.drawn_float import KERNELS, random_cases
from tests.topi.intrin.test_intrin import needs_board, needs_host
from tests.topi.runs import RANDOM, drawn_on_board, interpreted

every_kernel = pytest.mark.parametrize("name", sorted(KERNELS))


@every_kernel
def test_some_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 4), 2))


@pytest.mark.slow
@every_kernel
def test_random_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 1), RANDOM))


@pytest.mark.slow
@needs_host
@every_kernel
def test_on_the_host(name: str, tmp_path: Path) -> None:
    drawn_on_board("host", random_cases(name, 2), tmp_path)


@pytest.mark.qemu
@needs_board
@every_kernel
def test_on_the_core(name: str, tmp_path: Path) -> None:
    drawn_on_board("mps2-an386", random_cases(name, 3), tmp_path)
