"""Where results differ."""

from __future__ import annotations

import numpy as np
import pytest

from aot.micro.run.runner import LayerResult
from aot.report.measure.divergence import compare_layers, compare_sets, difference


def test_equal_bytes_whatever_the_shape() -> None:
    a = np.arange(6, dtype=np.int8)
    assert difference(a, a.reshape(2, 3)) is None


def test_first_element_count_and_largest_difference() -> None:
    found = difference(np.array([0, -128, 5, 1], np.int8), np.array([0, 127, 5, 2], np.int8))
    assert found is not None
    assert (found.element, found.expected, found.actual, found.count, found.size, found.max_abs) == (1, -128, 127, 2, 4, 255.0)


def test_floats_are_compared_by_their_bits() -> None:
    zero = difference(np.array([0.0], np.float32), np.array([-0.0], np.float32))
    assert zero is not None
    assert zero.max_abs == 0.0
    nan = np.array([np.nan], np.float32)
    assert difference(nan, -nan) is None  # sign and payload are the processor's
    assert difference(nan, np.array([0x7FA00001], np.uint32).view(np.float32)) is None
    broken = difference(np.array([1.0], np.float32), nan)
    assert broken is not None
    assert broken.max_abs is None


def test_other_sizes_and_types_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="compared"):
        difference(np.zeros(2, np.int8), np.zeros(3, np.int8))
    with pytest.raises(ValueError, match="compared"):
        difference(np.zeros(2, np.int8), np.zeros(2, np.uint8))


def test_sets() -> None:
    good, bad = np.zeros(3, np.int8), np.array([0, 0, 4], np.int8)
    found = compare_sets([[good], [good], [good]], [[good], [bad], [bad]])
    assert not found.exact
    assert found.bad_sets == (1, 2)
    assert found.max_abs == 4
    assert found.first is not None
    assert found.first[:2] == (1, 0)
    assert compare_sets([[good]], [[good]]).exact


def test_layers_that_differ_are_found_in_order_of_execution() -> None:
    layers = [
        {"index": i, "op": op, "does": op, "ops": [i], "name": f"t{i}", "kernel": "k", "output": {"tensor": 10 + i}}
        for i, op in enumerate(["CONV_2D", "ADD", "SOFTMAX"])
    ]
    right = np.arange(4, dtype=np.int8)
    wrong = right + np.int8(1)
    trace = [LayerResult(0, output=right), LayerResult(1, output=wrong), LayerResult(2, output=wrong)]
    found = compare_layers(layers, trace, {10: right, 11: right, 12: right})
    assert [(x["layer"], x["op"], x["tensor"], x["element"]) for x in found] == [(1, "ADD", 11, 0), (2, "SOFTMAX", 12, 0)]
    # A tensor that the reference does not show, or shows in another form, is passed over.
    assert compare_layers(layers, trace, {10: right, 11: right[:2]}) == []
    # Of a tensor that has lost channels in the compiled model, the others are compared.
    wide = np.arange(8, dtype=np.int8).reshape(2, 4)
    layers[0]["output"] = {"tensor": 10, "channels": [0, 3]}
    assert compare_layers(layers[:1], [LayerResult(0, output=wide[:, [0, 3]])], {10: wide}) == []
    assert compare_layers(layers[:1], [LayerResult(0, output=wide[:, [0, 2]])], {10: wide})
    assert [x["layer"] for x in compare_layers(layers, trace, {10: right, 12: right})] == [2]


def test_what_json_cannot_say_is_text() -> None:
    found = difference(np.array([np.nan, 1], np.float32), np.array([np.inf, 1], np.float32))
    assert found is not None
    assert (found.expected, found.actual, found.max_abs) == ("nan", "inf", None)
