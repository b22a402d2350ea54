"""One float32 vector made integers at run time, as hybrid recurrent layers need it at each step."""

from __future__ import annotations

import numpy as np

from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.op.qnn.dynamic_quantize import DynamicQuantizeAttrs, evaluate_params, evaluate_quantize, evaluate_range


def quantized(x: Array, *, asymmetric: bool) -> tuple[Array, np.float32]:
    """A vector as integers without zero point, and its scale."""
    attrs, row = DynamicQuantizeAttrs(asymmetric), x[None]
    ends = evaluate_range(row, attrs=None, out_type=TensorType((1, 2), "float32"))
    params = evaluate_params(ends, attrs=attrs, out_type=TensorType((1, 3), "float32"))
    integers = evaluate_quantize(row, params, attrs=attrs, out_type=TensorType(row.shape, integer_type(asymmetric)))
    return integers[0], np.float32(params[0, 0])


def integer_type(asymmetric: bool) -> str:
    """What quantised vectors are kept in: without a zero point they may need 9 bits."""
    return "int16" if asymmetric else "int8"
