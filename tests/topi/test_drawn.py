"""Every kernel that has C of its own over random layers, and over awkward ones where it is for convolutions or matrices.

Each case is compared in the TIR interpreter, as C on this machine (with ASan and UBSan) and as instructions in QEMU.  With
AOT_FULL=1 all awkward layers and 2,000 random ones a kernel in each of the three, else a few; `-k` chooses kernels by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import pytest

from aot.op.nn.conv import Conv2DAttrs
from aot.target.target import find_target
from aot.topi.strategy import _IMPLS as REGISTERED
from tests.topi.arm_dsp.test_halfwords_int16x8 import conv2d_case
from tests.topi.drawn import KERNELS, Case, awkward_layers, make_case, random_cases
from tests.topi.every_kernel import EVERY, M4
from tests.topi.intrin.test_intrin import needs_board, needs_host
from tests.topi.layers import Layer
from tests.topi.runs import FULL, RANDOM, drawn_on_board, groups_of, interpreted, on_board

FAILED_ONCE = [
    # The compiler took the copies of runs of one pixel, all or nothing, for loops that overflow, and said so.
    ("conv arm_dsp.conv2d_chain_rows",
     Layer("conv", (1, 3, 7, 33), (1, 3, 5, 33), padding=(0, 5, 0, 0), dilation=(1, 2), pad_value=0)),
    # A weight less its zero point of 128, scaled by 2^8, left int16.
    *((f"dw arm_dsp.{name}",
       Layer("dw", (1, 3, 5, 2), (1, 3, 3, 4), (2, 1), (0, 2, 0, 1), rounding="single", spread=20.0, multiplier=2,
             seed=1065353866, ends=True, weight_zp=-1)) for name in ("depthwise", "depthwise_turned")),
]  # fmt: skip
"""Layers that random runs found, with the kernel that was wrong."""

REFUSED_ONCE = [
    # 14 operands, results of a few of which were dropped: GCC 12 found no registers.
    ((1, 5, 5, 8), (5, 1, 3, 8), Conv2DAttrs((1, 1), (0, 2, 0, 0), (1, 2))),
    ((1, 6, 2, 2), (5, 3, 3, 2), Conv2DAttrs((1, 1), (2, 2, 1, 1))),
    ((1, 5, 2, 2), (5, 3, 3, 2), Conv2DAttrs((1, 3), (2, 3, 0, 0), (1, 2))),
    ((1, 1, 2, 2), (5, 2, 1, 2), Conv2DAttrs((1, 1), (1, 0, 1, 0), (1, 2))),
]
"""Convolutions of 16-bit data whose firmware did not build."""

every_kernel = pytest.mark.parametrize("name", sorted(EVERY))
every_window = pytest.mark.parametrize("name", sorted(KERNELS))


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where programs are built that share the runtime."""
    return tmp_path_factory.mktemp("programs")


def test_every_kernel_of_an_instruction_set_is_drawn() -> None:
    """Those that are registered: what is generic has its operator's tests."""
    registered = {impl.name for impls in REGISTERED.values() for impl in impls if not impl.name.startswith("generic.")}
    assert registered - {name.split()[-1] for name in EVERY} == set()


def awkward(name: str) -> list[Case]:
    """The awkward layers that the kernel takes."""
    found = [make_case(KERNELS[name][1], layer) for layer in awkward_layers(name)]
    return [case for case in found if case is not None]


def some(cases: Sequence[Case], step: int) -> Sequence[Case]:
    """All of them with AOT_FULL=1, else every `step`-th."""
    return cases if FULL else cases[::step]


@pytest.mark.slow
@every_kernel
def test_random_in_the_interpreter(name: str) -> None:
    interpreted(islice(EVERY[name].cases(1), RANDOM))


@pytest.mark.slow
@every_window
def test_awkward_in_the_interpreter(name: str) -> None:
    taken = awkward(name)
    assert len(taken) >= 15
    interpreted(some(taken, 5))


@pytest.mark.slow
@needs_host
@every_kernel
def test_on_the_host(name: str, programs: Path) -> None:
    drawn_on_board("host", EVERY[name].cases(2), programs, together=EVERY[name].together)


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
@every_window
def test_awkward_on_the_host(name: str, programs: Path) -> None:
    on_board("host", groups_of(some(awkward(name), 10)), programs)


@pytest.mark.qemu
@needs_board
@every_kernel
def test_on_the_core(name: str, programs: Path) -> None:
    drawn_on_board(EVERY[name].board, EVERY[name].cases(3), programs, together=EVERY[name].together)


@pytest.mark.qemu
@needs_board
def test_what_was_refused_once(tmp_path: Path) -> None:
    on_board(M4, [[conv2d_case(*case) for case in REFUSED_ONCE]], tmp_path)


@pytest.mark.qemu
@needs_board
@every_window
def test_awkward_on_the_core(name: str, programs: Path) -> None:
    on_board(EVERY[name].board, groups_of(some(awkward(name), 10)), programs)


CHAINS = [name for name in sorted(KERNELS) if name.startswith("conv arm_dsp.conv2d_chain")]
"""Their code differs without DSP instructions: requantisation, packing."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CHAINS)
def test_chains_without_dsp_in_the_interpreter(name: str) -> None:
    interpreted(islice(random_cases(name, 5, core=find_target("cortex-m3")), RANDOM))


@pytest.mark.slow
@needs_host
@pytest.mark.parametrize("name", CHAINS)
def test_chains_without_dsp_on_the_host(name: str, tmp_path: Path) -> None:
    drawn_on_board("host", random_cases(name, 7, core=find_target("cortex-m3")), tmp_path)


@pytest.mark.qemu
@needs_board
@pytest.mark.parametrize("name", CHAINS)
def test_chains_without_dsp_on_the_core(name: str, programs: Path) -> None:
    drawn_on_board("mps2-an385", random_cases(name, 6, core=find_target("cortex-m3")), programs)


def test_a_wrong_result_is_found() -> None:
    """One case of the harness itself, and what it says of a kernel that is wrong."""
    case = next(random_cases("dense generic.dense", 0))
    interpreted([case])
    wrong = Case(case.text, case.lowered, case.inputs, [-1 - e for e in case.expected])
    with pytest.raises(AssertionError, match=r"generic\.dense"):
        interpreted([wrong])
