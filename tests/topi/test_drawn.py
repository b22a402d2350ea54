"""Every kernel of convolutions, depthwise convolutions and fully connected layers over random and awkward layers.

Each case is compared in the TIR interpreter, as C on this machine (with ASan and UBSan) and as instructions in QEMU.  With
AOT_FULL=1 all awkward layers and 2,000 random ones a kernel in each of the three, else a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from aot.target.target import find_target
from tests.topi.batch import Batch
from tests.topi.drawn import KERNELS, Case, awkward_layers, make_case, random_cases, target_of
from tests.topi.intrin.test_intrin import needs_board, needs_host
from tests.topi.layers import Layer
from tests.topi.runs import FULL, RANDOM, drawn_on_board, groups_of, interpreted, on_board

BOARDS = {"cortex-m0plus": "mps2-an385-v6m", "cortex-m3": "mps2-an385", "cortex-m4": "mps2-an386", "cortex-m55": "mps3-an547"}

FAILED_ONCE = [
    # The compiler took the copies of runs of one pixel, all or nothing, for loops that overflow, and said so.
    ("conv arm_dsp.conv2d_chain_rows",
     Layer("conv", (1, 3, 7, 33), (1, 3, 5, 33), padding=(0, 5, 0, 0), dilation=(1, 2), pad_value=0)),
]  # fmt: skip
"""Layers that random runs found, with the kernel that was wrong."""

every_kernel = pytest.mark.parametrize("name", sorted(KERNELS))


def awkward(name: str) -> list[Case]:
    """The awkward layers that the kernel takes."""
    found = [make_case(KERNELS[name][1], layer) for layer in awkward_layers(name)]
    return [case for case in found if case is not None]


def some(cases: Sequence[Case], step: int) -> Sequence[Case]:
    """All of them with AOT_FULL=1, else every `step`-th."""
    return cases if FULL else cases[::step]


def board_of(name: str) -> str:
    return BOARDS[target_of(KERNELS[name][1]).name]


@pytest.mark.slow
@every_kernel
def test_random_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 1), RANDOM))


@pytest.mark.slow
@every_kernel
def test_awkward_in_the_interpreter(name: str) -> None:
    taken = awkward(name)
    assert len(taken) >= 15
    interpreted(some(taken, 5))


@pytest.mark.slow
@needs_host
@every_kernel
def test_on_the_host(name: str, tmp_path: Path) -> None:
    drawn_on_board("host", random_cases(name, 2), tmp_path)


@pytest.mark.slow
@needs_host
@pytest.mark.parametrize(("name", "layer"), FAILED_ONCE)
def test_what_failed_once(name: str, layer: Layer, tmp_path: Path) -> None:
    case = make_case(KERNELS[name][1], layer)
    assert case is not None
    interpreted([case])
    on_board("host", iter([[case]]), tmp_path)


@pytest.mark.slow
@needs_host
@every_kernel
def test_awkward_on_the_host(name: str, tmp_path: Path) -> None:
    on_board("host", groups_of(some(awkward(name), 10)), tmp_path)


@pytest.mark.qemu
@needs_board
@every_kernel
def test_on_the_core(name: str, tmp_path: Path) -> None:
    drawn_on_board(board_of(name), random_cases(name, 3), tmp_path)


@pytest.mark.qemu
@needs_board
@every_kernel
def test_awkward_on_the_core(name: str, tmp_path: Path) -> None:
    on_board(board_of(name), groups_of(some(awkward(name), 10)), tmp_path)


CHAINS = [name for name in sorted(KERNELS) if name.startswith("conv arm_dsp.conv2d_chain")]
"""Their code differs without DSP instructions: requantisation, packing."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_chains_without_dsp_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 5, core=find_target("cortex-m3")), RANDOM))


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("name", CHAINS)
def test_chains_without_dsp_on_the_core(name: str, tmp_path: Path) -> None:
    drawn_on_board("mps2-an385", random_cases(name, 6, core=find_target("cortex-m3")), tmp_path)


def test_a_wrong_result_is_found() -> None:
    """One case of the harness itself, and what it says of a kernel that is wrong."""
    case = next(random_cases("dense generic.dense", 0))
    interpreted([case])
    wrong = Case(case.text, case.lowered, case.inputs, [-1 - e for e in case.expected])
    with pytest.raises(AssertionError, match=r"generic\.dense"):
        interpreted([wrong])


@pytest.mark.slow
@needs_host
def test_a_batch_tells_which_case_differs(tmp_path: Path) -> None:
    one, two = islice(random_cases("dense arm_dsp.dense_w8", 0), 2)
    wrong = Case(one.text, one.lowered, one.inputs, [-1 - e for e in one.expected])
    assert Batch([wrong, two]).run("host", tmp_path) == [one.text]
