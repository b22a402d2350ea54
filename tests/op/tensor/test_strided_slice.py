"""STRIDED_SLICE with all masks, SLICE, SPLIT, SPLIT_V, UNPACK."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given

from aot.errors import AotError
from tests.op._differential import FAST, SEEDS, SLOW, check, dims, main_of
from tests.op._one_op import EVERY, MOVABLE, Spec, const, moving, one_op


@st.composite
def strided_slices(draw: st.DrawFn) -> bytes:
    """Any mixture of ranges, ellipsis, new and dropped dimensions; numpy says what the result's shape is."""
    shape = draw(dims(draw(st.integers(1, 4))))
    kinds = draw(st.lists(st.sampled_from(["range", "range", "range", "new", "shrink"]), min_size=1, max_size=len(shape)))
    if draw(st.booleans()) and sum(k != "new" for k in kinds) < len(shape):
        kinds.insert(draw(st.integers(0, len(kinds))), "ellipsis")
    slicing = [k for k in kinds if k in ("range", "shrink")]
    at_ellipsis = kinds.index("ellipsis") if "ellipsis" in kinds else len(kinds)
    masks = dict.fromkeys(("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"), 0)
    begin, end, strides, index = [], [], [], []
    axis = 0
    for i, kind in enumerate(kinds):
        if i == at_ellipsis:
            axis += len(shape) - len(slicing)
        size = shape[axis] if kind in ("range", "shrink") else 1
        b, e = (draw(st.integers(-size - 1, size + 1)) for _ in range(2))
        s = draw(st.sampled_from([1, 2, -1, -2, 3]))
        if kind == "range":
            free = draw(st.sampled_from([0, 1, 2, 3]))
            masks["begin_mask"] |= (free & 1) << i
            masks["end_mask"] |= (free >> 1) << i
            index.append(slice(None if free & 1 else b, None if free & 2 else e, s))
        elif kind == "shrink":
            b, s = draw(st.integers(-size, size - 1)), 1
            e = b + 1
            masks["shrink_axis_mask"] |= 1 << i
            index.append(b)
        else:
            masks["new_axis_mask" if kind == "new" else "ellipsis_mask"] |= 1 << i
            index.append(None if kind == "new" else Ellipsis)
            s = 1
        axis += kind in ("range", "shrink")
        begin.append(b), end.append(e), strides.append(s)
    assume(len(shape) + kinds.count("new") <= 5)
    result = np.empty(shape, np.int8)[tuple(index)].shape
    assume(0 not in result)
    dtype = draw(st.sampled_from(EVERY))
    return moving("STRIDED_SLICE", dtype, [shape, result], [const(begin), const(end), const(strides)], **masks)


@given(strided_slices(), SEEDS)
@FAST
def test_strided_slice(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.slow
@given(strided_slices(), SEEDS)
@SLOW
def test_strided_slice_often(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.parametrize("dtype", MOVABLE)
def test_types(dtype: str) -> None:
    begin_end_strides = [const([0, 5]), const([2, 0]), const([1, -2])]
    check(moving("STRIDED_SLICE", dtype, [(3, 6), (2, 3)], begin_end_strides), host=True)
    if dtype != "uint8":
        check(moving("SLICE", dtype, [(3, 6), (2, 4)], [const([1, 0]), const([-1, 4])]))
    if dtype in ("int8", "uint8", "int16", "int32", "float32"):
        check(moving("SPLIT_V", dtype, [(3, 6), (3, 1), (3, 5)], [const([1, -1]), const(1)], num_splits=2))
    if dtype != "int64":
        check(moving("UNPACK", dtype, [(3, 2), (3,), (3,)], num=2, axis=1))


@pytest.mark.parametrize("offset", [False, True])
def test_offset(offset: bool) -> None:
    operands = [const([1, -3]), const([3, 3 if offset else 6]), const([1, 1])]
    check(moving("STRIDED_SLICE", "int8", [(5, 6), (3 if offset else 2, 3)], operands, offset=offset))


@pytest.mark.parametrize(("axis", "dtype"), [(0, "int8"), (1, "uint8"), (-1, "int16"), (2, "float32"), (0, "int32")])
def test_split(axis: int, dtype: str) -> None:
    shape = (4, 6, 2)
    part = tuple(n // 2 if i == axis % 3 else n for i, n in enumerate(shape))
    check(one_op("SPLIT", [const(axis), Spec(shape, dtype)], [Spec(part, dtype)] * 2, num_splits=2), host=True)


@given(dims(3), st.integers(-3, 2), SEEDS)
@FAST
def test_unpack(shape: tuple[int, ...], axis: int, seed: int) -> None:
    parts = [tuple(n for i, n in enumerate(shape) if i != axis % 3)] * shape[axis]
    check(moving("UNPACK", "int8", [shape, *parts], num=len(parts), axis=axis), seed=seed)


@st.composite
def slices(draw: st.DrawFn) -> bytes:
    shape = draw(dims(draw(st.integers(1, 5))))
    begin = [draw(st.integers(0, n - 1)) for n in shape]
    count = [draw(st.integers(1, n - b)) for n, b in zip(shape, begin, strict=True)]
    size = [-1 if b + c == n and draw(st.booleans()) else c for n, b, c in zip(shape, begin, count, strict=True)]
    index = draw(st.sampled_from(["int32", "int64"]))
    return moving("SLICE", draw(st.sampled_from(EVERY)), [shape, count], [const(begin, index), const(size, index)])


@given(slices(), SEEDS)
@FAST
def test_slice(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.slow
@given(slices(), SEEDS)
@SLOW
def test_slice_often(model: bytes, seed: int) -> None:
    check(model, seed=seed)


@pytest.mark.parametrize(
    ("name", "operands", "options"),
    [
        ("SLICE", [const([2]), const([9])], {}),
        ("SLICE", [const([2, 0]), const([1, 1])], {}),
        ("STRIDED_SLICE", [const([0]), const([2]), const([0])], {}),
        ("STRIDED_SLICE", [const([0, 0]), const([2, 2]), const([1, 1])], {}),
        ("STRIDED_SLICE", [const([9]), const([2]), const([1])], {"shrink_axis_mask": 1}),
        ("STRIDED_SLICE", [const([0, 0]), const([2]), const([1])], {}),
        ("SPLIT_V", [const([1, 1]), const(0)], {}),
        ("SPLIT_V", [const([8]), const(3)], {}),
    ],
)
def test_refused(name: str, operands: list[Any], options: dict[str, Any]) -> None:
    code = "E1126" if operands[-1].data.tolist() == 3 else "E1128"  # an axis, or a place along one
    with pytest.raises(AotError, match=code):
        main_of(moving(name, "int8", [(8,), (8,)], operands, **options))


def test_an_ellipsis_for_nothing() -> None:
    operands = [const([0, 0]), const([2, 2]), const([1, 1])]
    with pytest.raises(AotError, match="E1203"):
        main_of(moving("STRIDED_SLICE", "int8", [(2,), (2,)], operands, ellipsis_mask=1))


def test_shapes_are_computed_at_compile_time() -> None:
    """RESHAPE to a shape made by SHAPE, STRIDED_SLICE and PACK, as converters write `tf.reshape(x, [tf.shape(x)[0], -1])`."""
    from aot.testing import ModelBuilder

    b = ModelBuilder()
    x = b.tensor("x", (2, 3, 4), "float32")
    shape, batch, packed = b.tensor("shape", (3,), "int32"), b.tensor("batch", (), "int32"), b.tensor("packed", (2,), "int32")
    y = b.tensor("y", (2, 12), "float32")
    numbers = [b.tensor(f"c{i}", (1,), "int32", data=np.array([i], np.int32)) for i in range(2)]
    rest = b.tensor("rest", (), "int32", data=np.array(-1, np.int32))
    b.op("SHAPE", [x], [shape], out_type="INT32")
    b.op("STRIDED_SLICE", [shape, numbers[0], numbers[1], numbers[1]], [batch], shrink_axis_mask=1)
    b.op("PACK", [batch, rest], [packed], values_count=2, axis=0)
    b.op("RESHAPE", [x, packed], [y])
    check(b.build([x], [y]))
