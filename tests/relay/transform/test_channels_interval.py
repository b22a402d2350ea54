"""Intervals of channels against the values that they hold."""

from __future__ import annotations

import numpy as np

from aot.ir.type import TensorType
from aot.relay.transform.channels import channels, full_range, hull, of_array, span_of

DATA = np.random.default_rng(0).integers(-128, 128, (3, 5, 4)).astype(np.int8)


def test_a_constant_lies_between_its_smallest_and_largest_value_of_each_channel() -> None:
    found = of_array(DATA)
    assert found.lo.tolist() == [int(DATA[..., c].min()) for c in range(4)]
    assert found.hi.tolist() == [int(DATA[..., c].max()) for c in range(4)]
    assert of_array(np.array(7, np.int8)).is_constant.tolist() == [True]


def test_hull_is_the_interval_of_all_values_together() -> None:
    both = hull([of_array(DATA[:1]), of_array(DATA[1:])])
    assert (both.lo.tolist(), both.hi.tolist()) == (of_array(DATA).lo.tolist(), of_array(DATA).hi.tolist())
    rows = DATA.reshape(-1, 4)
    assert span_of(rows).lo.tolist() == both.lo.tolist()


def test_bytes_do_not_wrap() -> None:
    """Ends are wide integers, so that sums of them hold."""
    found = full_range(TensorType((2, 3), "uint8"))
    assert (found.hi * 2 - found.lo).tolist() == [510] * 3
    assert channels(TensorType((), "int8")) == 1


def test_constant_channels_and_slices() -> None:
    found = of_array(np.array([[1, 5, 9], [1, 6, 9]], np.int8))
    assert found.is_constant.tolist() == [True, False, True]
    assert found[1:].lo.tolist() == [5, 9]
