"""Maps of scalars, as the reference library writes them, and any damage to them."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from flatbuffers import flexbuffers
from hypothesis import given, settings

from aot.frontend.tflite.flatbuffer import FlexbufferError, read_map

SCALARS = st.one_of(st.booleans(), st.integers(-(1 << 40), 1 << 40), st.floats(width=32, allow_nan=False))
KEYS = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=12)


@given(st.dictionaries(KEYS, SCALARS, min_size=1, max_size=20))
@settings(max_examples=50, derandomize=True)
def test_round_trip(values: dict[str, bool | int | float]) -> None:
    assert read_map(bytes(flexbuffers.Dumps(values))) == values


def test_other_types_are_left_out() -> None:
    assert read_map(bytes(flexbuffers.Dumps({"a": 1, "b": [1, 2], "c": "text"}))) == {"a": 1}


@pytest.mark.parametrize("data", [b"", b"\x00", bytes(8), b"\xff" * 9, bytes(flexbuffers.Dumps([1, 2, 3]))])
def test_no_map(data: bytes) -> None:
    with pytest.raises(FlexbufferError):
        read_map(data)


@given(st.binary(max_size=6), st.integers(0, 80), st.integers(0, 80))
@settings(max_examples=300, derandomize=True)
def test_damaged(noise: bytes, start: int, cut: int) -> None:
    whole = bytes(flexbuffers.Dumps({"max_detections": 20, "y_scale": 10.0, "use_regular_nms": False}))
    damaged = whole[:start] + noise + whole[start + len(noise) :]
    for data in (damaged, damaged[:cut], damaged[cut:]):
        try:
            assert all(isinstance(v, (bool, int, float)) for v in read_map(data).values())
        except FlexbufferError:
            continue
