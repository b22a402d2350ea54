"""The smallest model of each operator, given the element type of its data: what `aot ops` says of types is tried out on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aot.testing import ModelBuilder, Quant, Sparsity
from aot.testing.builder import assign, handle, initialize, read
from tests.op._blockwise import blockwise
from tests.op._lstm_basic_models import Basic, basic_model
from tests.op._lstm_models import Lstm, bidirectional_model, lstm_model
from tests.op._one_op import Spec, const, moving, one_op, same_quant
from tests.op._rnn_models import Rnn, rnn_model
from tests.op._svdf_models import Svdf, svdf_model
from tests.op.gather._forms import FORMS as STABLEHLO_FORMS
from tests.op.mediapipe._models import FORMS as MEDIAPIPE_FORMS
from tests.op.mediapipe._models import LAYERS as MEDIAPIPE_LAYERS
from tests.op.signal._models import FORMS as SIGNAL_FORMS
from tests.op.vision._poses import form as poses_form

DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "float16", "float32")
COMPLEX = ("COMPLEX_ABS", "REAL", "IMAG", "RESHAPE", "EXPAND_DIMS", "SQUEEZE")
"""Operators that take complex64."""
Form = Callable[[str], bytes]
SHAPE = (2, 4)
IMAGE = (1, 4, 4, 4)


def codes(shape: Sequence[int], dtype: str, scale: float = 0.5) -> Spec:
    """A tensor, with quantisation where the type has it."""
    quant = same_quant(dtype)
    return Spec(tuple(shape), dtype, None if quant is None else Quant(scale, quant.zero_point))


def unary(name: str, scale: float = 0.5, *, shape: Sequence[int] = SHAPE, **options: Any) -> Form:
    return lambda dtype: one_op(name, [codes(shape, dtype)], [codes(shape, dtype, scale)], **options)


def binary(name: str, result: str = "", **options: Any) -> Form:
    """Two tensors; a result of `result`'s type, or the operands'."""
    return lambda dtype: one_op(name, [codes(SHAPE, dtype)] * 2, [codes(SHAPE, result or dtype)], **options)


def plain(name: str) -> Form:
    """Two tensors of numbers as they stand."""
    return lambda dtype: one_op(name, [Spec(SHAPE, dtype)] * 2, [Spec(SHAPE, dtype)])


def move(name: str, *shapes: Sequence[int], operands: Sequence[Spec] = (), **options: Any) -> Form:
    return lambda dtype: moving(name, dtype, shapes, operands, **options)


def indices(name: str, result: str, operand: Spec) -> Form:
    return lambda dtype: one_op(name, [codes(SHAPE, dtype), operand], [Spec((2,), result)], output_type=result.upper())


def reduction(name: str) -> Form:
    return lambda dtype: one_op(name, [codes(SHAPE, dtype), const([1])], [codes((2,), dtype)], keep_dims=False)


def window(name: str, *, weight: tuple[int, ...] = (), bias: bool = True, **options: Any) -> Callable[[str, str], bytes]:
    """A layer of data and weights of given types."""

    def build(dtype: str, weights: str) -> bytes:
        per_tensor = Quant(0.5, 0)
        w = Spec(weight, weights, None if weights == "float32" else per_tensor, np.ones(weight, weights.replace("int4", "int8")))
        bias_type = {"float32": "float32", "int16": "int64"}.get(dtype, "int32")
        b = Spec(weight[-1:], bias_type, Quant(0.25, 0) if dtype != "float32" else None, np.zeros(weight[-1:], bias_type))
        x, y = codes(options["shape"], dtype), codes(options["result"], dtype)
        rest = {k: v for k, v in options.items() if k not in ("shape", "result", "first")}
        return one_op(
            name, [*options.get("first", ()), x, w, b] if not options.get("first") else [*options["first"], w, x, b], [y], **rest
        )

    return build


def stored(dtype: str) -> bytes:
    """DEQUANTIZE; of types that only weights are stored in, a constant."""
    data = {"int4": np.ones(SHAPE, np.int8), "float16": np.ones(SHAPE, np.float16)}.get(dtype)
    quant = Quant(0.5, 0) if dtype == "int4" else codes(SHAPE, dtype).quant
    return one_op("DEQUANTIZE", [Spec(SHAPE, dtype, quant, data)], [Spec(SHAPE, "float32")], version=6)


def scaled_embedding(_dtype: str) -> bytes:
    """float32 rows of an integer table."""
    table = Spec(SHAPE, "int8", data=np.ones(SHAPE, np.int8), scales=(0.5,) * SHAPE[0])
    return one_op("EMBEDDING_LOOKUP", [Spec((3,), "int32"), table], [Spec((3, 4), "float32")], version=3)


def sparse(dtype: str) -> bytes:
    """DENSIFY of a constant that has no zeros."""
    b = ModelBuilder()
    values = np.ones(SHAPE, "int8" if dtype == "int4" else dtype)
    quant = {"scale": 0.5, "zero_point": 0} if dtype in ("int4", "int8", "uint8", "int16") else {}
    x = b.tensor("x", SHAPE, dtype, data=values, sparsity=Sparsity((0, 1), (), SHAPE), **quant)  # type: ignore[arg-type]
    y = b.tensor("y", SHAPE, dtype, **quant)  # type: ignore[arg-type]
    b.op("DENSIFY", [x], [y])
    return b.build([], [y])


def svdf(dtype: str, weights: str) -> bytes:
    """Two units of two filters with a memory of three."""
    kind = {"int8*int8": "int8", "float32*int8": "hybrid", "float32*float32": "float32"}.get(f"{dtype}*{weights}")
    return svdf_model(Svdf(kind)) if kind else window("SVDF", weight=(4, 4), shape=(2, 4), result=(2, 4))(dtype, weights)


def lstm(op: str, dtype: str, weights: str) -> bytes:
    """One without anything optional; of uint8 the basic kernel."""
    if (op, dtype, weights) == ("LSTM", "uint8", "uint8"):
        return basic_model(Basic(dtype))
    kinds = {"int8": ("int8", "int16", "float32"), "float32": ("float32",)}.get(weights, ())
    dtype, given = ("hybrid" if (dtype, weights) == ("float32", "int8") else dtype), dtype
    other = window(op, weight=(4, 4), shape=(2, 4), result=(2, 4))
    return lstm_model(Lstm(op, dtype)) if given in kinds else other(given, weights)


def bidirectional(dtype: str, weights: str) -> bytes:
    """Both directions, merged."""
    kind = {"float32*int8": "hybrid", "float32*float32": "float32"}.get(f"{dtype}*{weights}")
    other = window("BIDIRECTIONAL_SEQUENCE_LSTM", weight=(4, 4), shape=(2, 4), result=(2, 4))
    return bidirectional_model(Lstm(dtype=kind), merged=True) if kind else other(dtype, weights)


def rnn(op: str, dtype: str, weights: str) -> bytes:
    """One without auxiliary data."""
    hybrid = {"float32*int8": True, "float32*float32": False}.get(f"{dtype}*{weights}")
    other = window(op, weight=(4, 4), shape=(2, 4), result=(2, 4))
    return other(dtype, weights) if hybrid is None else rnn_model(Rnn(op, hybrid=hybrid))


_STEPS = {"stride_h": 1, "stride_w": 1, "padding": "SAME"}
_STEPS_3D = {**_STEPS, "stride_d": 1}
_POOL = {**_STEPS, "filter_height": 2, "filter_width": 2}

LAYERS: dict[str, Callable[[str, str], bytes]] = {
    **MEDIAPIPE_LAYERS,
    "CONV_2D": window("CONV_2D", weight=(4, 1, 1, 4), shape=IMAGE, result=IMAGE, **_STEPS),
    "DEPTHWISE_CONV_2D": window(
        "DEPTHWISE_CONV_2D", weight=(1, 1, 1, 4), shape=IMAGE, result=IMAGE, depth_multiplier=1, **_STEPS
    ),
    "FULLY_CONNECTED": window("FULLY_CONNECTED", weight=(4, 4), shape=(2, 4), result=(2, 4)),
    "BIDIRECTIONAL_SEQUENCE_LSTM": lambda d, w: bidirectional(d, w),
    "LSTM": lambda d, w: lstm("LSTM", d, w),
    **{f"{n}RNN": lambda d, w, n=n: rnn(f"{n}RNN", d, w) for n in ("", "UNIDIRECTIONAL_SEQUENCE_", "BIDIRECTIONAL_SEQUENCE_")},
    "SVDF": svdf,
    "TRANSPOSE_CONV": window("TRANSPOSE_CONV", weight=(4, 1, 1, 4), shape=IMAGE, result=IMAGE, first=[const(IMAGE)], **_STEPS),
    "UNIDIRECTIONAL_SEQUENCE_LSTM": lambda d, w: lstm("UNIDIRECTIONAL_SEQUENCE_LSTM", d, w),
}
"""Operators of data and weights."""


def stateful(dtype: str) -> bytes:
    """A variable that shows each input one run later."""
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"v": np.zeros(SHAPE, dtype)})
    x, v = b.tensor("x", SHAPE, dtype), handle(main, "v")
    y = read(main, v, SHAPE, dtype)
    assign(main, v, x)
    return b.build([x], [y])


FORMS: dict[str, Form] = {
    **{n: stateful for n in ("VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE")},
    **{n: unary(n) for n in ("ABS", "CEIL", "COS", "ELU", "FLOOR", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOG", "LOGICAL_NOT")},
    **{
        n: unary(n)
        for n in ("NEG", "RELU", "RELU6", "RELU_0_TO_1", "RELU_N1_TO_1", "ROUND", "RSQRT", "SIGN", "SIN", "SQRT", "SQUARE")
    },
    **{n: unary(n, 2.0**-15) for n in ("LOGISTIC", "TANH")},
    "SOFTMAX": lambda d: one_op(
        "SOFTMAX",
        [codes(SHAPE, d)],
        [Spec(SHAPE, d, {"int8": Quant(1 / 256, -128), "uint8": Quant(1 / 256, 0), "int16": Quant(2.0**-15, 0)}.get(d))],
        beta=1.0,
    ),
    "EXP": lambda d: one_op("EXP", [codes(SHAPE, d, 1e-4)], [codes(SHAPE, d)]),
    "LOG_SOFTMAX": lambda d: one_op(
        "LOG_SOFTMAX", [codes(SHAPE, d)], [Spec(SHAPE, d, {"int8": Quant(1 / 16, 127), "uint8": Quant(1 / 16, 255)}.get(d))]
    ),
    "L2_NORMALIZATION": lambda d: one_op(
        "L2_NORMALIZATION", [codes(SHAPE, d)], [Spec(SHAPE, d, {"int8": Quant(1 / 128, 0), "uint8": Quant(1 / 128, 128)}.get(d))]
    ),
    **{n: binary(n) for n in ("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "POW", "ATAN2", "ADD_N")},
    **{n: binary(n) for n in ("SQUARED_DIFFERENCE", "LOGICAL_AND", "LOGICAL_OR")},
    **{n: plain(n) for n in ("FLOOR_DIV", "FLOOR_MOD", "BITWISE_XOR", "RIGHT_SHIFT")},
    "PRELU": lambda d: one_op("PRELU", [codes(SHAPE, d), codes((4,), d.replace("int16", "int8"))], [codes(SHAPE, d)]),
    **{n: binary(n, "bool") for n in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")},
    **{n: reduction(n) for n in ("SUM", "MEAN", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_ANY", "REDUCE_ALL")},
    "ARG_MAX": indices("ARG_MAX", "int32", const([1])),
    "ARG_MIN": indices("ARG_MIN", "int32", const([1])),
    "AVERAGE_POOL_2D": move("AVERAGE_POOL_2D", IMAGE, IMAGE, **_POOL),
    "MAX_POOL_2D": move("MAX_POOL_2D", IMAGE, IMAGE, **_POOL),
    "BATCH_MATMUL": lambda d: one_op("BATCH_MATMUL", [codes((1, 2, 4), d), codes((1, 4, 3), d)], [codes((1, 2, 3), d)]),
    "BATCH_TO_SPACE_ND": move("BATCH_TO_SPACE_ND", (4, 1, 1, 2), (1, 2, 2, 2), operands=[const([2, 2]), const([[0, 0], [0, 0]])]),
    "SPACE_TO_BATCH_ND": move("SPACE_TO_BATCH_ND", (1, 2, 2, 2), (4, 1, 1, 2), operands=[const([2, 2]), const([[0, 0], [0, 0]])]),
    "BITCAST": lambda d: one_op("BITCAST", [codes(SHAPE, d)], [Spec(SHAPE, d)]),
    "BROADCAST_ARGS": lambda d: one_op("BROADCAST_ARGS", [const([2, 1], d), const([3], d)], [Spec((2,), d)]),
    "BROADCAST_TO": move("BROADCAST_TO", (4,), SHAPE, operands=[const(SHAPE)]),
    "CAST": lambda d: one_op("CAST", [Spec(SHAPE, d)], [Spec(SHAPE, "int32" if d != "int32" else "float32")]),
    "CONCATENATION": lambda d: one_op("CONCATENATION", [codes(SHAPE, d)] * 2, [codes((4, 4), d)], axis=0),
    "CUMSUM": move("CUMSUM", SHAPE, SHAPE, operands=[const(0)]),
    "DEPTH_TO_SPACE": move("DEPTH_TO_SPACE", (1, 1, 1, 4), (1, 2, 2, 1), block_size=2),
    "SPACE_TO_DEPTH": move("SPACE_TO_DEPTH", (1, 2, 2, 1), (1, 1, 1, 4), block_size=2),
    "DENSIFY": sparse,
    "DEQUANTIZE": stored,
    "DYNAMIC_UPDATE_SLICE": lambda d: one_op(
        "DYNAMIC_UPDATE_SLICE", [codes(SHAPE, d), codes((1, 4), d), Spec((2,), "int32")], [codes(SHAPE, d)]
    ),
    "EMBEDDING_LOOKUP": lambda d: one_op("EMBEDDING_LOOKUP", [Spec((3,), "int32"), codes(SHAPE, d)], [codes((3, 4), d)]),
    "EXPAND_DIMS": move("EXPAND_DIMS", SHAPE, (1, 2, 4), operands=[const(0)]),
    "FILL": lambda d: one_op("FILL", [const(SHAPE), codes((), d)], [codes(SHAPE, d)]),
    "GATHER": lambda d: one_op("GATHER", [codes(SHAPE, d), Spec((3,), "int32")], [codes((3, 4), d)], axis=0),
    "GATHER_ND": lambda d: one_op("GATHER_ND", [codes(SHAPE, d), Spec((3, 1), "int32")], [codes((3, 4), d)]),
    "MIRROR_PAD": move("MIRROR_PAD", (3, 4), (5, 4), operands=[const([[1, 1], [0, 0]])], mode="REFLECT"),
    "ONE_HOT": lambda d: one_op("ONE_HOT", [Spec((3,), "int32"), const(4), Spec((), d), Spec((), d)], [Spec((3, 4), d)], axis=-1),
    "PACK": lambda d: one_op("PACK", [codes(SHAPE, d)] * 2, [codes((2, 2, 4), d)], axis=0, values_count=2),
    "PAD": move("PAD", SHAPE, (4, 4), operands=[const([[1, 1], [0, 0]])]),
    "PADV2": lambda d: one_op(
        "PADV2",
        [codes(SHAPE, d), const([[1, 1], [0, 0]]), Spec((), d, same_quant(d), np.zeros((), d))],
        [codes((4, 4), d)],
    ),
    "QUANTIZE": lambda d: one_op(
        "QUANTIZE", [Spec(SHAPE, d, same_quant(d) or (Quant(0.5, 0) if d == "int32" else None))], [codes(SHAPE, "int8")]
    ),
    "RANGE": lambda d: one_op("RANGE", [const(0, d), const(4, d), const(1, d)], [Spec((4,), d)]),
    "UNIQUE": lambda d: one_op("UNIQUE", [const([1, 1], d)], [Spec((1,), d), Spec((2,), "int32")], idx_out_type="INT32"),
    "WHERE": lambda d: one_op("WHERE", [const([0, 1], d)], [Spec((1, 1), "int64")]),
    "RANK": lambda d: one_op("RANK", [codes(SHAPE, d)], [Spec((), "int32")]),
    "SHAPE": lambda d: one_op("SHAPE", [codes(SHAPE, d)], [Spec((2,), "int32")], out_type="INT32"),
    "RESHAPE": move("RESHAPE", SHAPE, (8,), operands=[const([8])]),
    "SQUEEZE": move("SQUEEZE", (1, 4), (4,), squeeze_dims=[0]),
    "RESIZE_BILINEAR": move("RESIZE_BILINEAR", IMAGE, (1, 8, 8, 4), operands=[const([8, 8])]),
    "RESIZE_NEAREST_NEIGHBOR": move("RESIZE_NEAREST_NEIGHBOR", IMAGE, (1, 8, 8, 4), operands=[const([8, 8])]),
    "REVERSE_SEQUENCE": move("REVERSE_SEQUENCE", SHAPE, SHAPE, operands=[Spec((2,), "int32")], seq_dim=1, batch_dim=0),
    "REVERSE_V2": move("REVERSE_V2", SHAPE, SHAPE, operands=[const([1])]),
    "SCATTER_ND": lambda d: one_op("SCATTER_ND", [const([[0], [1]]), codes(SHAPE, d), const(SHAPE)], [codes(SHAPE, d)]),
    **{
        n: lambda d, n=n: one_op(n, [Spec(SHAPE, "bool"), codes(SHAPE, d), codes(SHAPE, d)], [codes(SHAPE, d)])  # type: ignore[misc]
        for n in ("SELECT", "SELECT_V2")
    },
    "SLICE": move("SLICE", SHAPE, (1, 4), operands=[const([0, 0]), const([1, 4])]),
    "SPLIT": lambda d: one_op("SPLIT", [const(0), codes(SHAPE, d)], [codes((1, 4), d)] * 2, num_splits=2),
    "SPLIT_V": lambda d: one_op("SPLIT_V", [codes(SHAPE, d), const([1, 1]), const(0)], [codes((1, 4), d)] * 2, num_splits=2),
    "STRIDED_SLICE": move("STRIDED_SLICE", SHAPE, (1, 4), operands=[const([0, 0]), const([1, 4]), const([1, 1])]),
    "TILE": move("TILE", SHAPE, (4, 4), operands=[const([2, 1])]),
    "TOPK_V2": lambda d: one_op("TOPK_V2", [codes(SHAPE, d), const(2)], [codes((2, 2), d), Spec((2, 2), "int32")]),
    "TRANSPOSE": move("TRANSPOSE", SHAPE, (4, 2), operands=[const([1, 0])]),
    "UNPACK": move("UNPACK", SHAPE, (4,), (4,), num=2, axis=0),
    "ZEROS_LIKE": move("ZEROS_LIKE", SHAPE, SHAPE),
    **{
        f"UNSORTED_SEGMENT_{k}": lambda d, k=k: one_op(  # type: ignore[misc]
            f"UNSORTED_SEGMENT_{k}", [Spec(SHAPE, d), Spec((2,), "int32"), const(3)], [Spec((3, 4), d)]
        )
        for k in ("SUM", "PROD", "MAX", "MIN")
    },
    "SPARSE_TO_DENSE": lambda d: one_op(
        "SPARSE_TO_DENSE", [const([[0, 1]]), const(SHAPE), Spec((1,), d), Spec((), d)], [Spec(SHAPE, d)], validate_indices=False
    ),
    "MATRIX_DIAG": lambda d: one_op("MATRIX_DIAG", [codes(SHAPE, d)], [codes((2, 4, 4), d)]),
    "MATRIX_SET_DIAG": lambda d: one_op("MATRIX_SET_DIAG", [codes(SHAPE, d), codes((2,), d)], [codes(SHAPE, d)]),
    "DILATE": lambda d: one_op(
        "DILATE", [codes(SHAPE, d), const([1, 2]), Spec((), d, same_quant(d), np.zeros((), d))], [codes((2, 7), d)]
    ),
    "BUCKETIZE": lambda d: one_op("BUCKETIZE", [Spec(SHAPE, d)], [Spec(SHAPE, "int32")], boundaries=[0.0, 1.5]),
    "FAKE_QUANT": lambda d: one_op("FAKE_QUANT", [Spec(SHAPE, d)], [Spec(SHAPE, d)], min=-1.0, max=1.0, num_bits=8),
    "L2_POOL_2D": move("L2_POOL_2D", IMAGE, IMAGE, **_POOL),
    "LOCAL_RESPONSE_NORMALIZATION": move("LOCAL_RESPONSE_NORMALIZATION", IMAGE, IMAGE, radius=1, bias=1.0, alpha=1.0, beta=0.5),
    **{n: plain(n) for n in ("STABLEHLO_ADD", "STABLEHLO_MULTIPLY", "STABLEHLO_MAXIMUM", "STABLEHLO_MINIMUM")},
    **{
        f"NON_MAX_SUPPRESSION_V{v}": lambda d, v=v: one_op(  # type: ignore[misc]
            f"NON_MAX_SUPPRESSION_V{v}",
            [Spec((3, 4), d), Spec((3,), "float32"), const(2), *[const(0.5, "float32")] * (v - 2)],
            [Spec((2,), "int32"), *[Spec((2,), "float32")] * (v - 4), Spec((), "int32")],
        )
        for v in (4, 5)
    },
    "REDUCE_WINDOW": lambda d: one_op(
        "REDUCE_WINDOW",
        [Spec(SHAPE, d), Spec((), d), *[const(n, "int64") for n in ((1, 2), (1, 1), (1, 1))]],
        [Spec((2, 3), d)],
        reduce_function=4,
    ),
    "STABLEHLO_PAD": lambda d: one_op(
        "STABLEHLO_PAD",
        [codes(SHAPE, d), Spec((), d, same_quant(d), np.zeros((), d))],
        [codes((3, 3), d)],
        edge_padding_low=np.array([1, -1]),
        edge_padding_high=np.array([0, 0]),
        interior_padding=np.array([0, 0]),
    ),
    "CONV_3D": lambda d: one_op(
        "CONV_3D",
        [Spec((1, 2, 2, 2, 1), d), const(np.ones((1, 1, 1, 1, 2)), "float32"), const([1.0, 2.0], "float32")],
        [Spec((1, 2, 2, 2, 2), d)],
        **_STEPS_3D,
    ),
    "CONV_3D_TRANSPOSE": lambda d: one_op(
        "CONV_3D_TRANSPOSE",
        [
            const((1, 2, 2, 2, 2)),
            const(np.ones((1, 1, 1, 2, 1)), "float32"),
            Spec((1, 2, 2, 2, 1), d),
            const([1.0, 2.0], "float32"),
        ],
        [Spec((1, 2, 2, 2, 2), d)],
        **_STEPS_3D,
    ),
    "COMPLEX_ABS": lambda d: one_op("COMPLEX_ABS", [Spec(SHAPE, d)], [Spec(SHAPE, "float32")]),
    "REAL": lambda d: one_op("REAL", [Spec(SHAPE, d)], [Spec(SHAPE, "float32")]),
    "IMAG": lambda d: one_op("IMAG", [Spec(SHAPE, d)], [Spec(SHAPE, "float32")]),
    "RFFT2D": lambda d: one_op("RFFT2D", [Spec(SHAPE, d), const([1, 4])], [Spec((1, 3), "complex64")]),
    **MEDIAPIPE_FORMS,
    "CUSTOM:PosenetDecoderOp": poses_form,
    **SIGNAL_FORMS,
    **STABLEHLO_FORMS,
}
"""Operators of one data type; control flow, STABLEHLO_COMPOSITE and the custom one are left out."""


def nothing_placed(dtype: str) -> bytes:
    """SPARSE_TO_DENSE by indices of which there are none."""
    b = ModelBuilder()
    quant: dict[str, Any] = {"scale": 0.5, "zero_point": 0} if dtype in ("int8", "uint8", "int16") else {}
    chosen = b.tensor("c", (2,), "bool", data=np.zeros(2, bool))
    places, y = b.tensor("p", (0, 1), "int64"), b.tensor("y", (4,), dtype, **quant)
    values, default = b.tensor("v", (1,), dtype, **quant), b.tensor("d", (), dtype, **quant)
    shape = b.tensor("s", (1,), "int32", data=np.array([4], np.int32))
    b.op("WHERE", [chosen], [places])
    b.op("SPARSE_TO_DENSE", [places, shape, values, default], [y], validate_indices=False)
    return b.build([values, default], [y])


OTHER_FORMS: dict[str, Form] = {
    "SPARSE_TO_DENSE": nothing_placed,
    "DEQUANTIZE": lambda d: (
        one_op("DEQUANTIZE", [codes(SHAPE, d)], [Spec(SHAPE, "float32")], version=6) if d == "float16" else stored(d)
    ),
    "EMBEDDING_LOOKUP": scaled_embedding,
    "GELU": unary("GELU", shape=(1, 5)),
    "FULLY_CONNECTED": lambda _types: blockwise(1, 4, 1, size=32, seed=0),
}
"""A second model of operators that become another one of the graph for other shapes or quantisations."""
