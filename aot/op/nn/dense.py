"""Matrix products: dense layers of integers, of float32, and with block-quantised weights; batch_matmul."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array, OpPattern, TypeRuleError
from aot.ir.type import TensorType, Type
from aot.op.common.layer import Bounds, check_layer, np_layer, tir_layer
from aot.op.common.operator import Index, operator
from aot.support.dtype import is_float
from aot.te.tensor import TensorFn, reduce_axis, wrapping
from aot.te.tensor import sum as te_sum
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr, cast, imm


# nn.dense: FULLY_CONNECTED of TFLite.
#
# acc[m, o] = sum over k of (w[o, k] - weight_zp) * (data[m, k] - input_zp).  Oracle: TFLite's reference kernel
# `FullyConnected`, which rounds once, halves away from zero, unlike TFLite's convolutions, which round twice; TFLite Micro rounds
# twice here too (`--oracle tflm`).
@operator(
    "nn.dense",
    "FULLY_CONNECTED; int8, int16 x int8, int8 and int16 x int4, uint8; one rounding (TFLite) or two (TFLite Micro)",
    [("data", "int8, int16 [M, K]", "rows of data"), ("weight", "int8, int4 [O, K]", "one row for each output")],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class DenseAttrs:
    """Zero points that are still to be subtracted."""

    input_zp: int = 0
    weight_zp: int = 0
    acc_dtype: str = "int32"

    def infer_type(self, data: TensorType, weight: TensorType) -> Type:
        """data [M, K], weight [O, K] -> attrs.acc_dtype [M, O]."""
        if len(data.shape) != 2 or len(weight.shape) != 2:
            raise TypeRuleError(f"dense needs 2-D data and weights, not {data} and {weight}")
        if data.shape[1] != weight.shape[1]:
            raise TypeRuleError(f"rows of {data.shape[1]} data values, but weights for {weight.shape[1]}")
        return TensorType((data.shape[0], weight.shape[0]), self.acc_dtype)

    def evaluate(self, data: Array, weight: Array, *, out_type: TensorType) -> Array:
        x = data.astype(np.float64) - self.input_zp
        w = weight.astype(np.float64) - self.weight_zp
        result: Array = (x @ w.T).astype(np.int64).astype(out_type.dtype)
        return result

    def element(self, b: IRBuilder, index: Index, data: TensorFn, weight: TensorFn, *, out_type: TensorType) -> Expr:
        m, o = index
        wide = wrapping(self.acc_dtype)

        def term(k: Expr) -> Expr:
            w, x = cast("int32", weight.at(b, (o, k))) - self.weight_zp, cast("int32", data.at(b, (m, k))) - self.input_zp
            return cast(wide, w) * cast(wide, x)

        return cast(self.acc_dtype, te_sum(b, [reduce_axis(weight.shape[1], name="k")], term, dtype=wide))


DENSE_FLOAT = "nn.dense_float"


# nn.dense_float: FULLY_CONNECTED of TFLite on float32.
#
# out[m, o] = clamp(sum over k of data[m, k] * w[o, k] + bias[o]), in this order.
# Oracle: `reference_ops::FullyConnected` of float.
@operator(
    DENSE_FLOAT,
    "FULLY_CONNECTED; float32",
    [
        ("data", "float32 [M, K]", "rows of data"),
        ("weight", "float32 [O, K]", "one row for each output"),
        ("bias?", "float32 [O]", "what is added to each output channel"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class DenseFloatAttrs(Bounds):
    """The bounds of the activation."""

    def infer_type(self, data: TensorType, weight: TensorType, *bias: TensorType) -> Type:
        """data [M, K], weight [O, K], bias [O] -> float32 [M, O]."""
        check_layer((data, weight, *bias), DENSE_FLOAT, rank=2, channel_axis=0)
        if data.shape[1] != weight.shape[1]:
            raise TypeRuleError(f"rows of {data.shape[1]} data values, but weights for {weight.shape[1]}")
        return TensorType((data.shape[0], weight.shape[0]), "float32")

    def evaluate(self, data: Array, weight: Array, *bias: Array, out_type: TensorType) -> Array:
        products = (data[:, k, None] * weight[:, k] for k in range(weight.shape[1]))
        return np_layer(products, bias, attrs=self, out_type=out_type)

    def element(self, b: IRBuilder, index: Index, *args: TensorFn, out_type: TensorType) -> Expr:
        data, weight, *bias = args
        m, o = index
        axes = [reduce_axis(weight.shape[1], name="k")]
        return tir_layer(b, axes, lambda k: data.at(b, (m, k)) * weight.at(b, (o, k)), bias=bias, channel=o, attrs=self)


# qnn.dense_blockwise: FULLY_CONNECTED of float32 data with 4-bit weights that have a scale per block of a row.
#
# The data is quantised row by row (qnn.dynamic_quantize, asymmetric).  With a_b the sum of quantised values times weights and w_b
# the sum of weights of block b: out = (sum of a_b * scale_b - zp * sum of w_b * scale_b) * data_scale + bias, all in float32 in
# this order.  Oracle: `EvalBlockwise4Bit` of `kernels/fully_connected.cc`, which omits a fused activation.

BLOCKWISE = "qnn.dense_blockwise"
MOST = 1 << 12
"""Maximum weights per block; up to here the reference's sums are exact in float32."""


@operator(
    BLOCKWISE,
    "FULLY_CONNECTED; float32 data, 4-bit weights with a scale a block",
    [
        ("data", "int16 [M, K]", "quantised data without zero point"),
        ("params", "float32 [M, 3]", "of the quantised data"),
        ("weight", "uint8 [O, K / 2]", "two 4-bit weights a byte"),
        ("scales", "float32 [O, blocks]", "of the weights"),
        ("bias?", "float32 [O]", "what is added to each output"),
    ],
)
class DenseBlockwiseAttrs:
    """Number of weights per block."""

    size: int

    def infer_type(self, *types: TensorType) -> Type:
        """int16 [M, K], float32 [M, 3], uint8 [O, K / 2], float32 [O, K / size] (, float32 [O]) -> float32 [M, O]."""
        if len(types) not in (4, 5):
            raise TypeRuleError(f"{BLOCKWISE} does not accept {', '.join(map(str, types))}")
        data, params, weight, scales, *bias = types
        rows, width = data.shape if len(data.shape) == 2 else (0, 0)
        outputs = weight.shape[0] if weight.shape else 0
        kinds_fit = (data.dtype, params.dtype, weight.dtype, scales.dtype) == ("int16", "float32", "uint8", "float32")
        sizes_fit = params.shape == (rows, 3) and weight.shape == (outputs, width // 2) and 2 <= self.size <= MOST
        if not kinds_fit or not sizes_fit or self.size % 2 or scales.shape != (outputs, width // self.size) or width % self.size:
            raise TypeRuleError(f"{BLOCKWISE} of {data} by {weight} in blocks of {self.size} with scales {scales} is not valid")
        if any(b.shape != (outputs,) or b.dtype != "float32" for b in bias):
            raise TypeRuleError(f"{BLOCKWISE} of {outputs} outputs has a bias {bias[0]}")
        return TensorType((rows, outputs), "float32")

    def evaluate(self, data: Array, params: Array, weight: Array, scales: Array, *bias: Array, out_type: TensorType) -> Array:
        w, zero_points = unpacked(weight), params[:, 2:3]
        total, weights = np.zeros(out_type.shape, np.float32), np.zeros(len(w), np.float32)
        with np.errstate(all="ignore"):
            for b in range(scales.shape[1]):
                part = slice(b * self.size, (b + 1) * self.size)
                sums = w[:, part].sum(axis=1)
                codes = data[:, part].astype(np.int32) @ w[:, part].T + zero_points.astype(np.int32) * sums
                total += codes.astype(np.float32) * scales[:, b]
                weights += scales[:, b] * sums.astype(np.float32)
            value = (total - zero_points * weights) * params[:, 0:1]
            return np.asarray(value + bias[0] if bias else value, np.float32)


def packed(weight: Array) -> Array:
    """Two weights per byte, the first one in the low half."""
    low, high = weight[:, 0::2].astype(np.uint8) & 15, weight[:, 1::2].astype(np.uint8) & 15
    return np.asarray(low | (high << 4), np.uint8)


def unpacked(weight: Array) -> Array:
    """The weights from packed bytes, int32."""
    both = np.stack([weight & 15, weight >> 4], axis=-1).reshape(len(weight), -1).astype(np.int32)
    return np.asarray((both ^ 8) - 8)


# nn.batch_matmul: BATCH_MATMUL of TFLite: matrix products over broadcast leading dimensions, with either side transposed or not.
#
# acc[..., m, n] = sum over k of (a[..., m, k] - a_zp) * (b[..., k, n] - b_zp).  Oracle: `reference_ops::BatchMatMul`
# with the parameters of `batch_matmul.cc`: int8 sums in 32 bits, int16 in 64 and requantises by reduced multipliers.
@operator(
    "nn.batch_matmul",
    "BATCH_MATMUL; int8, int16, int16 x int8, float32",
    [
        ("a", "int8, int16, float32 [..., M, K]", "the left matrices"),
        ("b", "as a, or int8 [..., K, N]", "the right matrices; attrs say what is transposed"),
    ],
    OpPattern.OUT_ELEMWISE_FUSABLE,
)
class BatchMatmulAttrs:
    """Whether the last two dimensions of a side are swapped; zero points that are still to be subtracted."""

    adj_x: bool
    adj_y: bool
    a_zp: int = 0
    b_zp: int = 0
    acc_dtype: str = "int32"

    def infer_type(self, a: TensorType, b: TensorType) -> TensorType:
        """a [..., M, K], b [..., K, N] -> attrs.acc_dtype [..., M, N]."""
        if min(len(a.shape), len(b.shape)) < 2:
            raise TypeRuleError(f"batch_matmul needs two tensors of at least two dimensions, not {a} and {b}")
        (m, k), (depth, n) = matrix_of(a.shape, self.adj_x), matrix_of(b.shape, self.adj_y)
        if k != depth:
            raise TypeRuleError(f"rows of {k} values by columns of {depth}")
        try:
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        except ValueError:
            raise TypeRuleError(f"leading dimensions of {a} and {b} do not broadcast") from None
        return TensorType((*map(int, batch), m, n), self.acc_dtype)

    def evaluate(self, a: Array, b: Array, *, out_type: TensorType) -> Array:
        if is_float(out_type.dtype):
            return _float_product(a, b, self, out_type)
        x, y = a.astype(np.float64) - self.a_zp, b.astype(np.float64) - self.b_zp
        x = np.swapaxes(x, -1, -2) if self.adj_x else x
        y = np.swapaxes(y, -1, -2) if self.adj_y else y
        product: Array = x @ y
        return product.astype(np.int64).astype(out_type.dtype)

    def element(self, b: IRBuilder, i: Index, a: TensorFn, b_side: TensorFn, *, out_type: TensorType) -> Expr:
        wide = wrapping(self.acc_dtype)

        def element(b: IRBuilder, data: TensorFn, index: tuple[Expr, ...], *, zero_point: int) -> Expr:
            """One factor; `index` is the result's batch index, then row and column of the matrix as stored."""
            own = index[len(index) - len(data.shape) :]
            lead = tuple(imm(0) if n == 1 else i for n, i in zip(data.shape[:-2], own[:-2], strict=True))
            value = data.at(b, (*lead, *own[-2:]))
            return value if is_float(value.dtype) else cast(wide, cast("int32", value) - zero_point)

        *batch, m, n = i
        depth = matrix_of(a.shape, self.adj_x)[1]

        def term(k: Expr) -> Expr:
            left = (*batch, k, m) if self.adj_x else (*batch, m, k)
            right = (*batch, n, k) if self.adj_y else (*batch, k, n)
            return element(b, a, left, zero_point=self.a_zp) * element(b, b_side, right, zero_point=self.b_zp)

        zero = 0.0 if is_float(self.acc_dtype) else 0
        return cast(self.acc_dtype, te_sum(b, [reduce_axis(depth, name="k")], term, init=zero, dtype=wide))


def matrix_of(shape: tuple[int, ...], swapped: bool) -> tuple[int, int]:
    """(rows, columns) of an operand as it is multiplied."""
    rows, columns = shape[-2:]
    return (columns, rows) if swapped else (rows, columns)


def _float_product(a: Array, b: Array, attrs: BatchMatmulAttrs, out_type: TensorType) -> Array:
    """The products of one result, added one after the other in float32, as in the reference and the kernels."""
    x = np.swapaxes(a, -1, -2) if attrs.adj_x else a
    y = np.swapaxes(b, -1, -2) if attrs.adj_y else b
    total = np.zeros(out_type.shape, np.float32)
    with np.errstate(all="ignore"):
        for k in range(x.shape[-1]):
            total = total + x[..., :, k, None] * y[..., None, k, :]
    return total
