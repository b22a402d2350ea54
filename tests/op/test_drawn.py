"""300 drawn cases for each operator that the other files draw fewer of: functions, parts, views, reductions by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

from aot.testing import Quant
from tests.op._differential import ACTIVATIONS, SEEDS, SLOW, Array, check, check_tflm, dims, quants, scales
from tests.op._drawn_count import LACKING
from tests.op._one_op import EVERY, Spec, const, draw_array, moving, one_op, same_quant
from tests.op.math.test_arithmetic import SHAPES
from tests.op.math.test_arithmetic import quant as quant_of
from tests.op.math.test_compare import COMPARISONS, version
from tests.op.math.test_select import selects
from tests.op.reduce.test_arg_reduce import arg_reductions
from tests.op.reduce.test_reduce import codes, plain
from tests.op.tensor.test_bitcast import bitcasts
from tests.op.tensor.test_block_shuffle import batches, depths
from tests.scale import cases as cases_of

Case = tuple[bytes, list[Array] | None]
"""A model, and its inputs where random ones would not do."""
CODES = ["int8", "uint8", "int16"]


def shapes(*, most: int = 4, largest: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    return st.integers(1, most).flatmap(lambda rank: dims(rank, largest=largest))


@st.composite
def functions(draw: st.DrawFn, name: str, dtypes: Sequence[str]) -> Case:
    dtype = draw(st.sampled_from(dtypes))
    data = Spec(draw(shapes()), dtype, same_quant(dtype))
    return one_op(name, [data], [data]), None


@st.composite
def of_two(draw: st.DrawFn, name: str) -> Case:
    """Comparisons of codes of two quantisations, of one now and then; extremes of one; squared differences of int8."""
    dtype = "int8" if name == "SQUARED_DIFFERENCE" else draw(st.sampled_from(CODES))
    a, b, pair = draw(quant_of(dtype)), draw(quant_of(dtype)), draw(SHAPES)
    if name in COMPARISONS:  # the reference stops the process at a scale of 1
        a, b = (Quant(min(q.scale, 0.75), q.zero_point) for q in (a, b))
    b = a if "IMUM" in name or draw(st.booleans()) else b
    shape = tuple(np.broadcast_shapes(*pair))
    result = Spec(shape, "bool") if name in COMPARISONS else Spec(shape, dtype, a)
    if name == "SQUARED_DIFFERENCE":
        largest = max(a.scale, b.scale)
        result = Spec(shape, dtype, Quant(float(np.float32(max(a.scale, largest**2 / 4000))), a.zero_point))
    number = version(name, dtype) if name in COMPARISONS else 2
    return one_op(name, [Spec(pair[0], dtype, a), Spec(pair[1], dtype, b)], [result], version=number), None


@st.composite
def dequantized(draw: st.DrawFn) -> Case:
    shape, dtype = draw(shapes()), draw(st.sampled_from(CODES))
    return one_op("DEQUANTIZE", [Spec(shape, dtype, draw(quant_of(dtype)))], [Spec(shape, "float32")], version=3), None


@st.composite
def elus(draw: st.DrawFn) -> Case:
    """Results around zero, as the reference wants them."""
    x, y = draw(quants()), draw(quants())
    return one_op("ELU", [Spec((1, 256), "int8", Quant(min(x.scale, 0.5), x.zero_point))], [Spec((1, 256), "int8", y)]), None


@st.composite
def prelus(draw: st.DrawFn) -> Case:
    dtype, shape = draw(st.sampled_from(CODES)), draw(st.sampled_from([(1, 1, 6), (4, 1, 6), (6,), (4, 5, 6)]))
    x, y, alpha = draw(quant_of(dtype)), draw(quant_of(dtype)), draw(quant_of("uint8" if dtype == "uint8" else "int8"))
    kind = "uint8" if dtype == "uint8" else "int8"
    alpha = Quant(alpha.scale, 0) if dtype == "int16" else alpha
    y = Quant(float(np.float32(max(y.scale, x.scale / 64, x.scale * alpha.scale))), y.zero_point)
    slopes = draw_array(draw(SEEDS), shape, kind)
    inputs = [Spec((4, 5, 6), dtype, x), Spec(shape, kind, alpha, slopes)]
    return one_op("PRELU", inputs, [Spec((4, 5, 6), dtype, y)]), None


@st.composite
def parts(draw: st.DrawFn, name: str) -> Case:
    """SPLIT, SPLIT_V and UNPACK along any axis."""
    shape = list(draw(shapes(largest=3)))
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    if name != "SPLIT_V":
        sizes = sizes[:1] * len(sizes) if name == "SPLIT" else [1] * len(sizes)
    shape[axis] = sum(sizes)
    dtype = draw(st.sampled_from(EVERY))
    results = [[n if i != axis % len(shape) else size for i, n in enumerate(shape)] for size in sizes]
    if name == "UNPACK":
        results = [[n for i, n in enumerate(shape) if i != axis % len(shape)] for _ in sizes]
        return moving(name, dtype, [shape, *results], num=len(sizes), axis=axis), None
    quant = same_quant(dtype)
    data, pieces = Spec(tuple(shape), dtype, quant), [Spec(tuple(r), dtype, quant) for r in results]
    inputs = [const(axis), data] if name == "SPLIT" else [data, const(sizes), const(axis)]
    return one_op(name, inputs, pieces, num_splits=len(sizes)), None


@st.composite
def pads(draw: st.DrawFn, name: str) -> Case:
    shape, dtype = draw(shapes(largest=3)), draw(st.sampled_from(EVERY))
    widths = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in shape]
    quant = same_quant(dtype)
    value = Spec((), dtype, quant, draw_array(draw(SEEDS), (), dtype))
    result = Spec(tuple(n + sum(w) for n, w in zip(shape, widths, strict=True)), dtype, quant)
    inputs = [Spec(shape, dtype, quant), const(widths, draw(st.sampled_from(["int32", "int64"])))]
    return one_op(name, [*inputs, value] if name == "PADV2" else inputs, [result], version=2), None


@st.composite
def look_ups(draw: st.DrawFn) -> Case:
    rows, rest, seed = draw(st.integers(1, 9)), draw(shapes(most=3)), draw(SEEDS)
    dtype = draw(st.sampled_from(EVERY))
    ids = np.random.default_rng(seed).integers(0, rows, draw(st.integers(1, 7)), np.int32)
    table = Spec((rows, *rest), dtype, same_quant(dtype), draw_array(seed, (rows, *rest), dtype))
    result = Spec((len(ids), *rest), dtype, table.quant)
    return one_op("EMBEDDING_LOOKUP", [Spec(ids.shape, "int32"), table], [result], version=3), [ids]


@st.composite
def scaled_look_ups(draw: st.DrawFn) -> Case:
    """float32 or float16 rows of an integer table, one scale or one a row."""
    rows, rest, seed = draw(st.integers(1, 9)), draw(shapes(most=3)), draw(SEEDS)
    rng, dtype = np.random.default_rng(seed), draw(st.sampled_from(["int8"] if prod(rest) % 2 else ["int8", "int4"]))
    lowest, highest = (-128, 127) if dtype == "int8" else (-8, 7)
    each = rng.uniform(1e-3, 2, rows if draw(st.booleans()) else 1).astype(np.float32).tolist()
    codes = rng.integers(lowest, highest, (rows, *rest), np.int8, endpoint=True)
    table = Spec((rows, *rest), dtype, data=codes, scales=tuple(each))
    ids = rng.integers(0, rows, draw(st.integers(1, 7)), np.int32)
    result = Spec((len(ids), *rest), draw(st.sampled_from(["float32", "float16"])))
    return one_op("EMBEDDING_LOOKUP", [Spec(ids.shape, "int32"), table], [result], version=3), [ids]


@st.composite
def fills(draw: st.DrawFn) -> Case:
    dtype, shape = draw(st.sampled_from(EVERY)), draw(shapes())
    quant = same_quant(dtype)
    extents = const(shape, draw(st.sampled_from(["int32", "int64"])))
    return one_op("FILL", [extents, Spec((), dtype, quant)], [Spec(shape, dtype, quant)], version=4), None


@st.composite
def views(draw: st.DrawFn, name: str) -> Case:
    shape, dtype = draw(shapes(most=3)), draw(st.sampled_from(EVERY))
    axis = draw(st.integers(0, len(shape)))
    longer = (*shape[:axis], 1, *shape[axis:])
    if name == "EXPAND_DIMS":
        where = draw(st.sampled_from([axis, axis - len(shape) - 1]))
        return moving(name, dtype, [shape, longer], [const(where)]), None
    if name == "SQUEEZE":
        return moving(name, dtype, [longer, shape], squeeze_dims=[draw(st.sampled_from([axis, axis - len(longer)]))]), None
    result = draw(st.permutations(longer).map(tuple))
    wanted = [-1 if i == axis and prod(result) else n for i, n in enumerate(result)]
    return moving(name, dtype, [shape, result], [const(wanted)]), None


@st.composite
def transposed(draw: st.DrawFn) -> Case:
    shape, dtype = draw(shapes()), draw(st.sampled_from(EVERY))
    order = draw(st.permutations(range(len(shape))))
    return moving("TRANSPOSE", dtype, [shape, [shape[i] for i in order]], [const(order)]), None


@st.composite
def joined(draw: st.DrawFn) -> Case:
    """CONCATENATION of one to four tensors, some of them constants."""
    shape, dtype = draw(shapes(largest=4)), draw(st.sampled_from(EVERY))
    axis, seed = draw(st.integers(-len(shape), len(shape) - 1)), draw(SEEDS)
    quant, where = same_quant(dtype), axis % len(shape)
    extents = [(*shape[:where], n, *shape[where + 1 :]) for n in draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))]
    fixed = [i > 0 and draw(st.booleans()) for i in range(len(extents))]
    data = [Spec(e, dtype, quant, draw_array(seed, e, dtype) if f else None) for e, f in zip(extents, fixed, strict=True)]
    result = (*shape[:where], sum(e[where] for e in extents), *shape[where + 1 :])
    return one_op("CONCATENATION", data, [Spec(result, dtype, quant)], version=2, axis=axis), None


@st.composite
def extents(draw: st.DrawFn, name: str) -> Case:
    """SHAPE and RANK, and the shape that two shapes are broadcast to."""
    shape, wide = draw(shapes()), draw(st.sampled_from(["int32", "int64"]))
    if name == "BROADCAST_ARGS":
        other = [n if draw(st.booleans()) else 1 for n in shape[draw(st.integers(0, len(shape) - 1)) :]]
        thin = [n if draw(st.booleans()) else 1 for n in shape]
        result = np.broadcast_shapes(tuple(thin), tuple(other))
        return one_op(name, [const(thin, wide), const(other, wide)], [Spec((len(result),), wide)]), None
    dtype = draw(st.sampled_from(EVERY))
    data = Spec(shape, dtype, same_quant(dtype))
    if name == "RANK":
        return one_op(name, [data], [Spec((), "int32")]), None
    return one_op(name, [data], [Spec((len(shape),), wide)], out_type=wide.upper()), None


@st.composite
def ranges(draw: st.DrawFn) -> Case:
    """Up and down, by whole and by broken steps."""
    dtype = draw(st.sampled_from(["int32", "int64", "float32"]))
    unit = 0.25 if dtype == "float32" else 1
    start, step = draw(st.integers(-50, 50)) * unit, draw(st.integers(1, 9)) * unit * draw(st.sampled_from([1, -1]))
    stop = start + step * draw(st.integers(1, 30)) - (draw(st.integers(0, 1)) * unit if abs(step) > unit else 0)
    count = int(np.ceil((stop - start) / step))
    assume(count > 0)
    return one_op("RANGE", [const(v, dtype) for v in (start, stop, step)], [Spec((count,), dtype)]), None


@st.composite
def roots(draw: st.DrawFn) -> Case:
    shape, seed = draw(shapes()), draw(SEEDS)
    return one_op("SQRT", [Spec(shape, "float32")], [Spec(shape, "float32")]), [np.abs(draw_array(seed, shape, "float32"))]


@st.composite
def sixteen_bit_rows(draw: st.DrawFn, largest: int = 40) -> Case:
    shape = draw(dims(2, largest=largest))
    x, y = Quant(float(np.float32(draw(scales()) / 512)), 0), Quant(2.0**-15, 0)
    beta = draw(st.sampled_from([1.0, 0.7]))
    return one_op("SOFTMAX", [Spec(shape, "int16", x)], [Spec(shape, "int16", y)], version=3, beta=beta), None


@st.composite
def rescaled(draw: st.DrawFn, name: str, **options: Any) -> Case:
    """A function of codes with a result of another scale; 6 is among the operand's codes, as TFLM wants it."""
    dtype = draw(st.sampled_from(["int8", "int16"]))
    x, y = draw(quant_of(dtype)), draw(quant_of(dtype))
    if name == "RELU6":
        x = Quant(max(x.scale, 0.0625 if dtype == "int8" else 2.0**-12), min(x.zero_point, 20))
    return one_op(name, [Spec((1, 200), dtype, x)], [Spec((1, 200), dtype, y)], **options), None


@st.composite
def sums(draw: st.DrawFn) -> Case:
    """ADD_N of numbers, small enough not to overflow, which C leaves undefined."""
    shape, dtype, count, seed = draw(shapes()), draw(st.sampled_from(["int32", "float32"])), draw(st.integers(2, 5)), draw(SEEDS)
    data = [draw_array(seed + i, shape, dtype) for i in range(count)]
    data = [d // 8 for d in data] if dtype == "int32" else data
    return one_op("ADD_N", [Spec(shape, dtype)] * count, [Spec(shape, dtype)]), data


@st.composite
def clamped(draw: st.DrawFn) -> Case:
    """Fused activations of numbers."""
    shape, dtype = draw(shapes()), draw(st.sampled_from(["int32", "float32"]))
    options = {"fused_activation_function": draw(ACTIVATIONS)}
    a, b = (draw_array(draw(SEEDS), shape, dtype) // 4 for _ in range(2))
    spec = Spec(shape, dtype)
    return one_op("SUB", [spec, spec], [spec], version=2, **options), [np.asarray(a, dtype), np.asarray(b, dtype)]


def alone(models: st.SearchStrategy[bytes]) -> st.SearchStrategy[Case]:
    return models.map(lambda model: (model, None))


DRAWN: dict[str, st.SearchStrategy[Case]] = {
    "NEG": functions("NEG", ["int8", "int16", "int32", "int64", "float32"]),
    "SIGN": functions("SIGN", ["int32", "float32"]),
    "ABS of numbers": functions("ABS", ["int32", "float32"]),
    "LOGICAL_NOT": functions("LOGICAL_NOT", ["bool"]),
    "SQUARE": functions("SQUARE", ["float32"]),
    "FLOOR": functions("FLOOR", ["float32"]),
    "SQRT": roots(),
    "TRANSPOSE": transposed(),
    "CONCATENATION": joined(),
    **{name: extents(name) for name in ("SHAPE", "RANK", "BROADCAST_ARGS")},
    "RANGE": ranges(),
    "ZEROS_LIKE": functions("ZEROS_LIKE", EVERY),
    "ZEROS_LIKE of numbers": functions("ZEROS_LIKE", ["int32", "int64", "float32"]),
    **{f"{name} of codes": of_two(name) for name in (*COMPARISONS, "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")},
    "DEQUANTIZE": dequantized(),
    "PRELU": prelus(),
    **{name: parts(name) for name in ("SPLIT", "SPLIT_V", "UNPACK")},
    **{name: pads(name) for name in ("PAD", "PADV2")},
    "EMBEDDING_LOOKUP": look_ups(),
    "EMBEDDING_LOOKUP of an integer table": scaled_look_ups(),
    "FILL": fills(),
    "BITCAST": alone(bitcasts()),
    **{name: views(name) for name in ("EXPAND_DIMS", "SQUEEZE", "RESHAPE")},
    "SOFTMAX of int16": sixteen_bit_rows(),
    "ADD_N": sums(),
    "SUB with an activation": clamped(),
    **{
        name: alone(plain(name))
        for name in ("SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")
    },
    **{f"{name} of codes": codes(name).map(lambda case: (case[2], None)) for name in ("MEAN", "REDUCE_PROD")},
    **{name: alone(arg_reductions(name)) for name in ("ARG_MAX", "ARG_MIN")},
    **{name: alone(depths(name)) for name in ("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")},
    **{name: alone(batches(name)) for name in ("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")},
    **{name: alone(selects(name)) for name in ("SELECT", "SELECT_V2")},
}
DRAWN_TFLM: dict[str, st.SearchStrategy[Case]] = {
    "ELU": elus(),
    **{name: functions(name, ["float32"]) for name in ("CEIL", "ROUND")},
    "SOFTMAX of int16": sixteen_bit_rows(20),
    **{name: rescaled(name) for name in ("ABS", "RELU", "RELU6")},
    "LEAKY_RELU": rescaled("LEAKY_RELU", alpha=0.3),
}
"""Operators that the resolver of TensorFlow Lite's reference kernels lacks, and some that TFLM computes in another way."""


DRAWN_TWICE = frozenset({"BROADCAST_ARGS", "RANGE", "SIN of floats", "COS of floats", "ATAN2 of floats"})
"""Which have many equal cases among those that are drawn, and no other type."""


def run(cases: st.SearchStrategy[Case], compare: Callable[..., Any], *, of: str = "") -> None:
    """Some cases are drawn twice, those without a seed more often, and of operator `of` the reference may lack types."""
    examples = cases_of(800 if of in LACKING or of in DRAWN_TWICE else 400)

    @given(cases, SEEDS)
    @settings(SLOW, max_examples=examples)
    def test(case: Case, seed: int) -> None:
        model, inputs = case
        compare(model, *([] if inputs is None else [inputs]), seed=seed)

    test()


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_drawn(name: str) -> None:
    run(DRAWN[name], check, of=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN_TFLM)
def test_drawn_against_tflm(name: str) -> None:
    run(DRAWN_TFLM[name], check_tflm)
