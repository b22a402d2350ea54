"""How often each tap of a window lies inside the image."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aot.op.nn.conv import Conv2DAttrs
from aot.relay.expr import const, tensor_type
from aot.relay.transform.channels import axis_coverage
from tests.relay.channel_nets import QuantNet


@settings(max_examples=80)
@given(st.data())
def test_coverage_counts_positions(data: st.DataObject) -> None:
    size, kernel = (data.draw(st.tuples(st.integers(1, 6), st.integers(1, 6))) for _ in range(2))
    strides, dilation = (data.draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) for _ in range(2))
    padding = data.draw(st.tuples(*[st.integers(0, 5)] * 4))
    if any((kernel[i] - 1) * dilation[i] + 1 > size[i] + padding[i] + padding[i + 2] for i in (0, 1)):
        return
    net = QuantNet()
    attrs = Conv2DAttrs(strides, padding, dilation)
    layer = net.op("nn.conv2d", net.input(1, *size, 1), const(np.ones((1, *kernel, 1), np.int8)), attrs=attrs)
    for axis in (0, 1):
        found = axis_coverage(layer, axis)
        for tap in range(kernel[axis]):
            count = tensor_type(layer).shape[axis + 1]
            rows = [p * strides[axis] + tap * dilation[axis] - padding[axis] for p in range(count)]
            assert found.inside[tap] == any(0 <= r < size[axis] for r in rows)
            assert found.outside[tap] == any(not 0 <= r < size[axis] for r in rows)
