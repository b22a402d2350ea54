"""Drawn cases of the operators and element types that other files draw none or few of; `_drawn_count` says which these are."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest

from aot.op.math.unary import CASTABLE
from aot.testing import ModelBuilder, Quant, output_size
from tests.op._differential import ACTIVATIONS, SEEDS, check, check_tflm, dims, quants
from tests.op._layer_models import Kind, rows
from tests.op._one_op import EVERY, Spec, const, draw_array, moving, one_op, same_quant
from tests.op.gather.test_dynamic_update_slice import updates
from tests.op.gather.test_one_hot import one_hots
from tests.op.gather.test_scatter_nd import scatters
from tests.op.gather.test_take import gather_nds, gathers
from tests.op.math.test_arithmetic import COMPARISONS, SHAPES, numbers
from tests.op.math.test_arithmetic import quant as quant_of
from tests.op.reduce.test_cumsum import cumsums
from tests.op.reduce.test_topk import topks
from tests.op.tensor.pad.test_broadcast_to import broadcasts, tiles
from tests.op.tensor.pad.test_mirror_pad import mirrors
from tests.op.tensor.pad.test_reverse import reverses, sequences
from tests.op.tensor.test_pack import packs
from tests.op.tensor.test_strided_slice import slices, strided_slices
from tests.op.test_composite import EMPTY_MAP
from tests.op.test_drawn import Case, alone, run, shapes
from tests.op.vision.test_resize_bilinear import resizes

POSITIVE = ("LOG", "RSQRT")
FUNCTIONS = ["COS", "EXP", "GELU", "LOG", "LOGISTIC", "RSQRT", "SIN", "TANH", "LOG_SOFTMAX", "SOFTMAX", "L2_NORMALIZATION"]
FUNCTIONS += ["HARD_SWISH", "LEAKY_RELU", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1"]
OPTIONS: dict[str, dict[str, Any]] = {"SOFTMAX": {"beta": 1.0}, "LEAKY_RELU": {"alpha": 0.3}}
MORE_NUMBERS = [
    *((name, "int64") for name in ("ADD", "SUB", "MUL", "MINIMUM")),
    *((name, "uint32") for name in ("MUL", "MAXIMUM", "MINIMUM")),
    *((name, dtype) for name in ("FLOOR_DIV", "FLOOR_MOD") for dtype in ("int8", "int16")),
    *((name, dtype) for name in COMPARISONS for dtype in ("bool", "int16", "int64") if (name, dtype) != ("NOT_EQUAL", "int16")),
    ("BITWISE_XOR", "uint16"),
    ("LOGICAL_AND", "bool"),
    ("LOGICAL_OR", "bool"),
    ("RIGHT_SHIFT", "uint16"),
]
LEGACY = ["GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "TANH"]


def without_reference(model: bytes, *sets: Any, seed: int) -> None:
    check(model, *sets, seed=seed, oracle="tflm")


@st.composite
def float_functions(draw: st.DrawFn, name: str) -> Case:
    """Of floats from far below one to some hundreds; rows where the operator looks at rows."""
    shape, seed = draw(shapes(most=2, largest=9)), draw(SEEDS)
    data = draw_array(seed, shape, "float32") * np.float32(draw(st.sampled_from([1.0, 0.01, 0.3])))
    if name == "EXP":
        data = np.clip(data, -80, 80)
    data = np.abs(data) + np.float32(1e-3) if name in POSITIVE else data
    options = OPTIONS.get(name, {})
    if name == "GELU":
        options = {"approximate": draw(st.booleans())}
    spec = Spec(shape, "float32")
    return one_op(name, [spec], [spec], **options), [np.asarray(data, np.float32)]


@st.composite
def float_pairs(draw: st.DrawFn, name: str) -> Case:
    pair, seed = draw(SHAPES), draw(SEEDS)
    pair = (pair[0],) * 2 if name == "ATAN2" else pair  # the reference has no broadcasting there
    a, b = (draw_array(seed + i, s, "float32") for i, s in enumerate(pair))
    out = Spec(tuple(np.broadcast_shapes(*pair)), "float32")
    inputs, data = [Spec(s, "float32") for s in pair], [np.asarray(a, np.float32), np.asarray(b, np.float32)]
    if name == "POW":
        data = [np.abs(data[0]) + np.float32(1e-3), np.clip(data[1], -5.9, 5.9)]
        if data[1].size == 1:  # as a constant, for a whole one is taken in products
            whole = draw(st.integers(-3, 12))
            fixed = np.full(pair[1], whole if draw(st.booleans()) else data[1], np.float32)
            return one_op(name, [inputs[0], Spec(pair[1], "float32", None, fixed)], [out]), data[:1]
    return one_op(name, inputs, [out]), data


@st.composite
def float_slopes(draw: st.DrawFn) -> Case:
    slopes = draw(st.sampled_from([(1, 1, 6), (4, 1, 6), (6,), (4, 5, 6)]))
    alpha = Spec(slopes, "float32", None, draw_array(draw(SEEDS), slopes, "float32"))
    data = Spec((4, 5, 6), "float32")
    return one_op("PRELU", [data, alpha], [data]), None


@st.composite
def more_numbers(draw: st.DrawFn, name: str, dtype: str) -> Case:
    return numbers(name, dtype, draw(SHAPES), draw(SEEDS))


@st.composite
def legacy_functions(draw: st.DrawFn, name: str) -> Case:
    x, y = draw(quant_of("uint8")), draw(quant_of("uint8"))
    y = {"LOGISTIC": Quant(1 / 256, 0), "TANH": Quant(1 / 128, 128)}.get(name, y)
    if name == "HARD_SWISH":
        y = Quant(float(np.float32(max(y.scale, x.scale / 100))), y.zero_point)
    options = OPTIONS.get(name, {}) | ({"approximate": draw(st.booleans())} if name == "GELU" else {})
    version = 1 if name in ("HARD_SWISH", "RELU_0_TO_1", "RELU_N1_TO_1") else 2
    data = draw_array(draw(SEEDS), (1, 64), "uint8")
    return one_op(name, [Spec((1, 64), "uint8", x)], [Spec((1, 64), "uint8", y)], version=version, **options), [data]


@st.composite
def sixteen_bit_clips(draw: st.DrawFn, name: str) -> Case:
    data = Spec(draw(shapes(most=2)), "int16", draw(quant_of("int16")))
    return one_op(name, [data], [data]), None


@st.composite
def quantized(draw: st.DrawFn, source: str, result: str) -> Case:
    x = None if source == "float32" else draw(quant_of(source.replace("int32", "int16")))
    y = draw(quant_of(result))
    shape, seed = draw(shapes(most=2, largest=9)), draw(SEEDS)
    data = draw_array(seed, shape, source)
    data = data // 4096 if source == "int32" else data  # beyond 32 bits the reference is undefined
    if x is not None:
        y = Quant(float(np.float32(max(y.scale, x.scale / 1000))), y.zero_point)
    return one_op("QUANTIZE", [Spec(shape, source, x)], [Spec(shape, result, y)], version=3), [data]


@st.composite
def pools(draw: st.DrawFn, name: str) -> Case:
    n, h, w, c = draw(dims(4, largest=6))
    kernel, strides, padding = draw(dims(2, largest=4)), draw(dims(2, largest=3)), draw(st.sampled_from(["SAME", "VALID"]))
    dtype = draw(st.sampled_from(["int8", "uint8", "int16", "float32"]))
    kernel = (min(kernel[0], h), min(kernel[1], w))
    size = [output_size(i, k, stride=s, dilation=1, padding=padding) for i, k, s in zip((h, w), kernel, strides, strict=True)]
    quant = None if dtype == "float32" else draw(quant_of(dtype))
    options = {"stride_h": strides[0], "stride_w": strides[1], "filter_height": kernel[0], "filter_width": kernel[1]}
    result = Spec((n, *size, c), dtype, quant)
    activation = {"fused_activation_function": "NONE" if dtype == "float32" else draw(ACTIVATIONS)}
    return one_op(name, [Spec((n, h, w, c), dtype, quant)], [result], version=3, padding=padding, **options, **activation), None


@st.composite
def float_products(draw: st.DrawFn) -> Case:
    m, k, n = draw(dims(3, largest=6))
    adj_x, adj_y = draw(st.booleans()), draw(st.booleans())
    batch = draw(st.sampled_from([(), (2,), (2, 3)]))
    a, b = (*batch, *((k, m) if adj_x else (m, k))), (*batch, *((n, k) if adj_y else (k, n)))
    weights = draw(st.sampled_from([None, b, b[-2:]]))  # none, one matrix for each of the left side's, one for all
    data = None if weights is None else np.random.default_rng(draw(SEEDS)).normal(size=weights).astype(np.float32)
    inputs, out = [Spec(a, "float32"), Spec(weights or b, "float32", None, data)], Spec((*batch, m, n), "float32")
    return one_op("BATCH_MATMUL", inputs, [out], adj_x=adj_x, adj_y=adj_y), None


@st.composite
def transposed_layers(draw: st.DrawFn, dtype: str, weights: str) -> Case:
    """TRANSPOSE_CONV of types of weights that `test_transposed` does not draw."""
    (h, w, depth, channels), kernel, strides = draw(dims(4, largest=3)), draw(dims(2, largest=3)), draw(dims(2, largest=2))
    out = (1, h * strides[0], w * strides[1], channels)
    x, y = draw(quant_of(dtype)), draw(quant_of(dtype))
    y = Quant(float(np.float32(max(y.scale, x.scale / 4))), y.zero_point)
    wq = Quant(0.02, 120 if weights == "uint8" else 0)
    shape = (channels, *kernel, depth)
    data = draw_array(draw(SEEDS), shape, "uint8" if weights == "uint8" else "int8")
    data = data % 8 if weights == "int4" else data
    bias = Spec((channels,), "int32", Quant(x.scale * wq.scale, 0), np.arange(channels, dtype=np.int32) * 50)
    inputs = [const(out), Spec(shape, weights, wq, data), Spec((1, h, w, depth), dtype, x), bias]
    options = {"padding": "SAME", "stride_h": strides[0], "stride_w": strides[1]}
    return one_op("TRANSPOSE_CONV", inputs, [Spec(out, dtype, y)], version=3, **options), None


@st.composite
def resized(draw: st.DrawFn) -> Case:
    n, h, w, c = draw(dims(4, largest=4))
    size, align, half = draw(dims(2, largest=9)), draw(st.booleans()), draw(st.booleans())
    options = {"align_corners": align, "half_pixel_centers": half}
    both = [(n, h, w, c), (n, *size, c)]
    return moving("RESIZE_NEAREST_NEIGHBOR", draw(st.sampled_from(EVERY)), both, [const(size)], version=3, **options), None


@st.composite
def casts(draw: st.DrawFn) -> Case:
    shape, source, result = draw(shapes()), draw(st.sampled_from(CASTABLE)), draw(st.sampled_from(CASTABLE))
    return one_op("CAST", [Spec(shape, source)], [Spec(shape, result)]), [draw_array(draw(SEEDS), shape, source)]


@st.composite
def composites(draw: st.DrawFn) -> Case:
    """A transposition, or several, in a subgraph of its own, run one to three times."""
    side, dtype = draw(st.integers(1, 4)), draw(st.sampled_from(EVERY))
    b = ModelBuilder()
    part, shape = b.subgraph("part"), draw(st.sampled_from([(side, side), (side, side, side)]))
    quant = same_quant(dtype)
    params: dict[str, Any] = {"scale": quant.scale, "zero_point": quant.zero_point} if quant else {}

    def chain(graph: Any, count: int, kind: str) -> None:
        values = [graph.tensor(f"v{i}", shape, dtype, **params) for i in range(count + 1)]
        for source, result in pairwise(values):
            if kind == "TRANSPOSE":
                order = np.asarray(draw(st.permutations(range(len(shape)))), np.int32)
                graph.op(kind, [source, graph.tensor(f"order{result}", order.shape, "int32", data=order)], [result])
            else:
                graph.op(kind, [source], [result], decomposition_subgraph_index=1, name="part", composite_attributes=EMPTY_MAP)
        graph.inputs, graph.outputs = values[:1], values[-1:]

    chain(part, draw(st.integers(1, 2)), "TRANSPOSE")
    chain(b, draw(st.integers(1, 3)), "STABLEHLO_COMPOSITE")
    return b.build(b.inputs, b.outputs), None


@st.composite
def float_elus(draw: st.DrawFn) -> Case:
    spec = Spec(draw(shapes()), "float32")
    return one_op("ELU", [spec], [spec]), None


@st.composite
def byte_elus(draw: st.DrawFn) -> Case:
    """As TFLM has it, results of any scale."""
    x, y = draw(quants()), draw(quants())
    shape = draw(shapes(most=2, largest=9))
    return one_op("ELU", [Spec(shape, "int8", Quant(min(x.scale, 0.5), x.zero_point))], [Spec(shape, "int8", y)]), None


DRAWN: dict[str, st.SearchStrategy[Case]] = {
    **{f"{name} of floats": float_functions(name) for name in FUNCTIONS},
    **{f"{name} of {dtype}": more_numbers(name, dtype) for name, dtype in MORE_NUMBERS},
    **{f"{name} of legacy codes": legacy_functions(name) for name in LEGACY},
    **{f"{name} of int16": sixteen_bit_clips(name) for name in ("RELU_0_TO_1", "RELU_N1_TO_1")},
    **{f"QUANTIZE of {s} to {r}": quantized(s, r) for s, r in [("uint8", "int8"), ("int16", "int8"), ("int32", "int16")]},
    **{name: pools(name) for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D")},
    **{f"{name} of floats": float_pairs(name) for name in ("ATAN2", "POW")},
    "PRELU of floats": float_slopes(),
    "FULLY_CONNECTED": rows(Kind("int8", "int8")).map(lambda layer: (layer.build(), None)),
    "BATCH_MATMUL of floats": float_products(),
    "TRANSPOSE_CONV of 4 bits": transposed_layers("int8", "int4"),
    "TRANSPOSE_CONV of legacy codes": transposed_layers("uint8", "uint8"),
    "RESIZE_BILINEAR": alone(resizes(16)),
    "RESIZE_NEAREST_NEIGHBOR": resized(),
    "CAST": casts(),
    "STABLEHLO_COMPOSITE": composites(),
    "BROADCAST_TO": alone(broadcasts()),
    "TILE": alone(tiles()),
    "SLICE": alone(slices()),
    "STRIDED_SLICE": alone(strided_slices()),
    "PACK": alone(packs()),
    "REVERSE_V2": alone(reverses()),
    "REVERSE_SEQUENCE": sequences().map(lambda case: (case[0], case[1][0])),
    "MIRROR_PAD": alone(mirrors()),
    "DYNAMIC_UPDATE_SLICE": updates(),
    "GATHER": gathers(),
    "GATHER_ND": gather_nds(),
    "ONE_HOT": one_hots(),
    "TOPK_V2": topks(),
    "CUMSUM": cumsums(),
    "SCATTER_ND": scatters(),
}
DRAWN_ALONE = {"NOT_EQUAL": more_numbers("NOT_EQUAL", "int16")}
"""Where the reference takes a type and computes nothing."""
DRAWN_TFLM: dict[str, st.SearchStrategy[Case]] = {"ELU": byte_elus(), "ELU of floats": float_elus()}


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_drawn(name: str) -> None:
    run(DRAWN[name], check, of=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN_ALONE)
def test_drawn_without_reference(name: str) -> None:
    run(DRAWN_ALONE[name], without_reference)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN_TFLM)
def test_drawn_against_tflm(name: str) -> None:
    run(DRAWN_TFLM[name], check_tflm)
