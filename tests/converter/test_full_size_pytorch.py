"""PyTorch networks of the size that firmware has: instructions a multiply-accumulate on a Cortex-M4, and what transposes take."""

from __future__ import annotations

import shutil

import pytest

from aot.testing import HAVE_LITERT
from tests.converter.models import ARCHIVE_FULL_SIZE, names, read
from tests.scripts import script

MOST_PER_MAC = 2.5
MOST_TRANSPOSED = 0.02
INTEGERS = 1.41
"""What mbconv_silu of full_size.py takes a MAC, quantised by TensorFlow's converter: integers from end to end."""
NEAR_INTEGERS = 1.05


def test_all_are_there() -> None:
    assert ARCHIVE_FULL_SIZE.stat().st_size <= 500_000
    assert len(names(ARCHIVE_FULL_SIZE)) == 6


@pytest.mark.slow
@pytest.mark.qemu
@pytest.mark.skipif(shutil.which("qemu-system-arm") is None or not HAVE_LITERT, reason="QEMU or the reference is not installed")
@pytest.mark.parametrize("name", names(ARCHIVE_FULL_SIZE))
def test_bars(name: str) -> None:
    per_mac = script("per_mac")
    found = per_mac.measure(per_mac.Job(name, read(name, ARCHIVE_FULL_SIZE), "mps2-an386", "speed"))
    assert found.exact
    most = NEAR_INTEGERS * INTEGERS if name.startswith("mbconv_silu") else MOST_PER_MAC
    assert found.instructions <= most * found.macs
    _, transposed = per_mac.parts(found)
    assert transposed <= MOST_TRANSPOSED
