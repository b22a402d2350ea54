"""Which rows an operator reads for rows of its result."""

from __future__ import annotations

import numpy as np
import pytest

from aot.op.nn.conv import Conv2DAttrs
from aot.relay.expr import call, const
from aot.relay.transform.sliding import NotLocalError, RowMap, row_form
from tests.relay.slide_nets import MOVING


def test_reads_what_a_window_covers() -> None:
    assert RowMap(5, 2, 1).reads((3, 6)) == (5, 14)


def test_an_operator_over_time_is_not_local() -> None:
    layer = call("nn.conv2d", [MOVING, const(np.ones((1, 1, 1, 1), np.int8))], Conv2DAttrs((1, 1), (0, 0, 0, 0)))
    with pytest.raises(NotLocalError, match="sums over the axis that slides"):
        row_form(layer, [3, None])
