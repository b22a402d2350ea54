"""Builtin operators that few networks have, each against the reference's own kernel."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from aot.errors import AotError
from aot.relay.interpreter import evaluate
from tests.op._differential import FAST, OFTEN, SEEDS, check, check_lowering, dims, main_of
from tests.op._one_op import EVERY, Spec, const, draw_array, one_op, same_quant

Array = np.ndarray[Any, Any]
Case = tuple[bytes, list[Array]]
DIAGONALS = ["int8", "uint8", "int16", "int32", "int64", "float32"]
ACTIVATIONS = st.sampled_from(["NONE", "RELU", "RELU6", "RELU_N1_TO_1"])
LIMITED = ("ADD", "MULTIPLY")


@st.composite
def segments(draw: st.DrawFn, opcode: str) -> Case:
    ids = draw(dims(draw(st.integers(1, 2)), largest=4))
    rest, count = draw(dims(draw(st.integers(0, 2)), largest=3)), draw(st.integers(1, 4))
    dtype, seed = draw(st.sampled_from(["int32", "float32"])), draw(SEEDS)
    data = Spec((*ids, *rest), dtype)
    chosen = np.asarray(np.random.default_rng(seed).integers(-1, count, ids), np.int32)
    model = one_op(opcode, [data, Spec(ids, "int32"), const(count)], [Spec((count, *rest), dtype)])
    return model, [draw_array(seed, data.shape, dtype), chosen]


@st.composite
def sparse(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 4)), largest=4))
    count, dtype, seed = (
        draw(st.integers(1, 5)),
        draw(st.sampled_from(["int8", "uint8", "int32", "int64", "float32"])),
        draw(SEEDS),
    )
    kind, scalar, quant = draw(st.sampled_from(["int32", "int64"])), draw(st.booleans()), same_quant(dtype)
    rng = np.random.default_rng(seed)
    places = np.asarray(rng.integers(0, shape, (count, len(shape))), kind)
    if len(shape) == 1 and draw(st.booleans()):
        places = places.reshape(count)
    values = Spec(() if scalar else (count,), dtype, quant)
    default = Spec((), dtype, quant, draw_array(seed + 1, (), dtype))
    model = one_op("SPARSE_TO_DENSE", [Spec(places.shape, kind), const(shape), values, default], [Spec(shape, dtype, quant)],
                   validate_indices=False)  # fmt: skip
    return model, [places, draw_array(seed, values.shape, dtype)]


@st.composite
def diagonals(draw: st.DrawFn) -> Case:
    shape, dtype = draw(dims(draw(st.integers(1, 3)), largest=4)), draw(st.sampled_from(DIAGONALS))
    quant = same_quant(dtype)
    model = one_op("MATRIX_DIAG", [Spec(shape, dtype, quant)], [Spec((*shape, shape[-1]), dtype, quant)])
    return model, [draw_array(draw(SEEDS), shape, dtype)]


@st.composite
def set_diagonals(draw: st.DrawFn) -> Case:
    shape, dtype = draw(dims(draw(st.integers(2, 3)), largest=4)), draw(st.sampled_from(DIAGONALS))
    quant, seed = same_quant(dtype), draw(SEEDS)
    data, diagonal = Spec(shape, dtype, quant), Spec((*shape[:-2], min(shape[-2:])), dtype, quant)
    model = one_op("MATRIX_SET_DIAG", [data, diagonal], [data])
    return model, [draw_array(seed, shape, dtype), draw_array(seed + 1, diagonal.shape, dtype)]


@st.composite
def dilations(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=4))
    factors, dtype, seed = draw(dims(len(shape), largest=3)), draw(st.sampled_from(EVERY)), draw(SEEDS)
    result = tuple((n - 1) * d + 1 for n, d in zip(shape, factors, strict=True))
    quant = same_quant(dtype)
    between = Spec((), dtype, quant, draw_array(seed + 1, (), dtype))
    model = one_op("DILATE", [Spec(shape, dtype, quant), const(factors), between], [Spec(result, dtype, quant)])
    return model, [draw_array(seed, shape, dtype)]


@st.composite
def pads(draw: st.DrawFn) -> Case:
    shape = draw(dims(draw(st.integers(1, 3)), largest=4))
    inner, seed, dtype = [draw(st.integers(0, 2)) for _ in shape], draw(SEEDS), draw(st.sampled_from(EVERY))
    sizes = [(n - 1) * (i + 1) + 1 for n, i in zip(shape, inner, strict=True)]
    low = [draw(st.integers(-((n - 1) // 2), 3)) for n in sizes]
    high = [draw(st.integers(-((n - 1) // 2), 3)) for n in sizes]
    result = tuple(n + a + z for n, a, z in zip(sizes, low, high, strict=True))
    quant = same_quant(dtype)
    between = Spec((), dtype, quant, draw_array(seed + 1, (), dtype))
    options = {"edge_padding_low": low, "edge_padding_high": high, "interior_padding": inner}
    model = one_op("STABLEHLO_PAD", [Spec(shape, dtype, quant), between], [Spec(result, dtype, quant)],
                   **{k: np.array(v, np.int64) for k, v in options.items()})  # fmt: skip
    return model, [draw_array(seed, shape, dtype)]


@st.composite
def buckets(draw: st.DrawFn) -> Case:
    shape, dtype, seed = draw(dims(2)), draw(st.sampled_from(["int32", "int64", "float32"])), draw(SEEDS)
    rng = np.random.default_rng(seed)
    boundaries = np.sort(np.round(rng.normal(size=draw(st.integers(1, 9))) * 8).astype(np.float32))
    model = one_op("BUCKETIZE", [Spec(shape, dtype)], [Spec(shape, "int32")], boundaries=[float(v) for v in boundaries])
    near = np.asarray(np.round(rng.normal(size=shape) * 10), dtype)
    return model, [near if draw(st.booleans()) else draw_array(seed, shape, dtype)]


@st.composite
def fake_quants(draw: st.DrawFn) -> Case:
    shape, seed = draw(dims(2)), draw(SEEDS)
    low, high = -draw(st.floats(0, 100, width=32)), draw(st.floats(0.125, 100, width=32))
    options = {"min": low, "max": high, "num_bits": draw(st.sampled_from([8, 16, 4]))}
    model = one_op("FAKE_QUANT", [Spec(shape, "float32")], [Spec(shape, "float32")], narrow_range=False, **options)
    data = draw_array(seed, shape, "float32")
    data.flat[0] = draw(st.sampled_from([np.inf, -np.inf, np.nan, -0.0]))
    return model, [data]


@st.composite
def l2_pools(draw: st.DrawFn) -> Case:
    kernel, strides = draw(dims(2, largest=3)), draw(dims(2, largest=3))
    padding = draw(st.sampled_from(["SAME", "VALID"]))
    height, width, channels = draw(st.integers(3, 7)), draw(st.integers(3, 7)), draw(st.integers(1, 3))
    out = [
        -(-n // s) if padding == "SAME" else (n - k) // s + 1 for n, k, s in zip((height, width), kernel, strides, strict=True)
    ]
    options = {"filter_height": kernel[0], "filter_width": kernel[1], "stride_h": strides[0], "stride_w": strides[1]}
    given = Spec((2, height, width, channels), "float32")
    model = one_op("L2_POOL_2D", [given], [Spec((2, *out, channels), "float32")], padding=padding,
                   fused_activation_function=draw(ACTIVATIONS), **options)  # fmt: skip
    return model, [draw_array(draw(SEEDS), given.shape, "float32")]


@st.composite
def responses(draw: st.DrawFn) -> Case:
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), 2, draw(st.integers(1, 9)))
    options = {"bias": draw(st.floats(0.125, 4, width=32)), "alpha": draw(st.floats(0, 2, width=32))}
    options["beta"] = draw(st.sampled_from([0.5, 0.75, 1.0, 2.0]))
    given = Spec(shape, "float32")
    model = one_op("LOCAL_RESPONSE_NORMALIZATION", [given], [given], radius=draw(st.integers(0, 5)), **options)
    return model, [draw_array(draw(SEEDS), shape, "float32")]


@st.composite
def stablehlos(draw: st.DrawFn, name: str) -> Case:
    shape, dtype, seed = draw(dims(draw(st.integers(1, 3)))), draw(st.sampled_from(["int32", "int64", "float32"])), draw(SEEDS)
    given = Spec(shape, dtype)
    pair = [draw_array(seed + i, shape, dtype) for i in range(2)]
    if dtype != "float32" and name in LIMITED:  # the reference's sums must not overflow
        pair = [a >> (a.dtype.itemsize * 4 + 1) for a in pair]
    elif dtype == "float32" and draw(st.booleans()):
        pair[seed % 2].flat[0] = np.nan if name not in LIMITED else np.inf
    return one_op(f"STABLEHLO_{name}", [given, given], [given]), pair


@st.composite
def reduced_windows(draw: st.DrawFn) -> Case:
    rank, seed = draw(st.integers(1, 4)), draw(SEEDS)
    window, strides, dilations = draw(dims(rank, largest=3)), draw(dims(rank, largest=2)), draw(dims(rank, largest=2))
    spans = [(w - 1) * d + 1 for w, d in zip(window, dilations, strict=True)]
    shape = tuple(s + draw(st.integers(0, 2)) for s in spans)
    result = tuple((n - s) // t + 1 for n, s, t in zip(shape, spans, strides, strict=True))
    kind, dtype = (
        draw(st.integers(1, 4)),
        draw(st.sampled_from(["int32", "int64", "float32"])),
    )
    numbers = [const(n, "int64") for n in (window, strides, dilations)]
    first = Spec((), dtype)
    model = one_op("REDUCE_WINDOW", [Spec(shape, dtype), first, *numbers], [Spec(result, dtype)], reduce_function=kind)
    data = draw_array(seed, shape, dtype)
    if dtype != "float32":  # sums and products of the reference must not overflow
        data = np.asarray(data % 3, dtype)
    return model, [data, np.asarray(draw(st.integers(-3, 3)), dtype)]


DRAWN: list[tuple[str, st.SearchStrategy[Case]]] = [
    *((kind, segments(f"UNSORTED_SEGMENT_{kind}")) for kind in ("SUM", "PROD", "MAX", "MIN")),
    ("REDUCE_WINDOW", reduced_windows()),
    ("SPARSE_TO_DENSE", sparse()),
    ("MATRIX_DIAG", diagonals()),
    ("MATRIX_SET_DIAG", set_diagonals()),
    ("DILATE", dilations()),
    ("STABLEHLO_PAD", pads()),
    ("BUCKETIZE", buckets()),
    ("FAKE_QUANT", fake_quants()),
    ("L2_POOL_2D", l2_pools()),
    ("LOCAL_RESPONSE_NORMALIZATION", responses()),
    *((f"STABLEHLO_{name}", stablehlos(name)) for name in ("ADD", "MULTIPLY", "MAXIMUM", "MINIMUM")),
]
IDS = [name for name, _ in DRAWN]


def run(strategy: st.SearchStrategy[Case], examples: Any) -> None:
    @given(strategy)
    @examples
    def test(case: Case) -> None:
        check(case[0], case[1])

    test()


@pytest.mark.parametrize("strategy", [s for _, s in DRAWN], ids=IDS)
def test_random(strategy: st.SearchStrategy[Case]) -> None:
    run(strategy, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [s for _, s in DRAWN], ids=IDS)
def test_random_often(strategy: st.SearchStrategy[Case]) -> None:
    run(strategy, OFTEN)


def test_on_host() -> None:
    rows, ids = np.arange(12, dtype=np.float32).reshape(4, 3), np.array([1, -1, 1, 0], np.int32)
    for kind in ("SUM", "MAX"):
        inputs = [Spec((4, 3), "float32"), Spec((4,), "int32"), const(3)]
        check(one_op(f"UNSORTED_SEGMENT_{kind}", inputs, [Spec((3, 3), "float32")]), [rows, ids], host=True)
    places = [Spec((2, 2), "int32"), const([3, 3]), Spec((2,), "float32"), Spec((), "float32", None, np.float32(7))]
    sparse_model = one_op("SPARSE_TO_DENSE", places, [Spec((3, 3), "float32")], validate_indices=False)
    check(sparse_model, [np.array([[1, 2], [0, 0]], np.int32), np.array([5, 6], np.float32)], host=True)
    check(one_op("BUCKETIZE", [Spec((5,), "int64")], [Spec((5,), "int32")], boundaries=[-1.0, 0.5]), host=True)
    given = Spec((1, 2, 2, 5), "float32")
    check(one_op("LOCAL_RESPONSE_NORMALIZATION", [given], [given], radius=2, bias=1.0, alpha=0.5, beta=0.75), host=True)
    check(one_op("FAKE_QUANT", [given], [given], min=-3.0, max=5.0, num_bits=8, narrow_range=False), host=True)


def test_places_outside_are_left_out() -> None:
    """The reference stops with an error; here no access may leave the tensor."""
    inputs = [Spec((3, 2), "int64"), const([2, 2]), Spec((3,), "float32"), Spec((), "float32", None, np.float32(0))]
    model = one_op("SPARSE_TO_DENSE", inputs, [Spec((2, 2), "float32")], validate_indices=False)
    data = [np.array([[-1, 0], [1, 1], [1 << 40, 0]]), np.array([1, 2, 4], np.float32)]
    found = evaluate(main_of(model), data)
    assert found[0].tolist() == [[0, 0], [0, 2]]
    check_lowering(main_of(model), [data], [found], host=True)
    ids = [Spec((3,), "float32"), Spec((3,), "int32"), const(2)]
    model = one_op("UNSORTED_SEGMENT_SUM", ids, [Spec((2,), "float32")])
    data = [np.array([1, 2, 4], np.float32), np.array([-5, 1, 1 << 30], np.int32)]
    found = evaluate(main_of(model), data)
    assert found[0].tolist() == [0, 2]
    check_lowering(main_of(model), [data], [found], host=True)


def test_refused() -> None:
    row = Spec((4,), "float32")
    for model, code in (
        (one_op("UNSORTED_SEGMENT_SUM", [row, Spec((3,), "int32"), const(2)], [Spec((2,), "float32")]), "E1207"),
        (one_op("BUCKETIZE", [row], [Spec((4,), "int32")], boundaries=[2.0, 1.0]), "E1122"),
        (one_op("FAKE_QUANT", [row], [row], min=1.0, max=2.0, num_bits=8), "E1122"),
        (one_op("FAKE_QUANT", [row], [row], min=-1.0, max=2.0, num_bits=8, narrow_range=True), "E1203"),
        (one_op("DILATE", [row, const([0]), const(0.0, "float32")], [row]), "E1122"),
        (one_op("MATRIX_SET_DIAG", [Spec((2, 3), "float32"), Spec((3,), "float32")], [Spec((2, 3), "float32")]), "E1207"),
    ):
        with pytest.raises(AotError, match=code):
            main_of(model)
