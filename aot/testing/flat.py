"""Flatbuffer primitives: vectors and option tables, driven by the field setters of the `tflite` package."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import flatbuffers
import numpy as np
import tflite

OptionValue = bool | int | float | str | Sequence[int] | np.ndarray

OPTIONS_OF_OPERATOR = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
    "RANDOM_UNIFORM": "RandomOptions",
    "RANDOM_STANDARD_NORMAL": "RandomOptions",
    "MULTINOMIAL": "RandomOptions",
    "MEAN": "ReducerOptions",
    "SUM": "ReducerOptions",
    **{f"REDUCE_{kind}": "ReducerOptions" for kind in ("ALL", "ANY", "MAX", "MIN", "PROD")},
}
"""Operators whose option table is not simply named after them."""

ENUM_OF_FIELD = {
    "fused_activation_function": "ActivationFunctionType",
    "padding": "Padding",
    "mode": "MirrorPadMode",
    "in_data_type": "TensorType",
    "out_data_type": "TensorType",
    "out_type": "TensorType",
    "output_type": "TensorType",
    "idx_out_type": "TensorType",
    "quantized_bias_type": "TensorType",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
}
"""Option fields that take the name of an enumerator, so that callers write padding="SAME"."""


def enumerator(enum: str, name: str) -> int:
    """Return the number of `name` (any case) in the schema's `enum`; KeyError if there is none."""
    values = {k.upper(): v for k, v in vars(getattr(tflite, enum)).items() if isinstance(v, int)}
    return int(values[name.upper()])


@cache
def options_name(operator: str) -> str | None:
    """Name of the builtin-option table of `operator` ("CONV_2D"), None if it has none."""
    if operator in OPTIONS_OF_OPERATOR:
        return OPTIONS_OF_OPERATOR[operator]
    tables = {k.upper(): k for k, v in vars(tflite.BuiltinOptions).items() if isinstance(v, int)}
    tables |= {k.upper(): k for k, v in vars(tflite.BuiltinOptions2).items() if isinstance(v, int)}
    return tables.get(operator.replace("_", "") + "OPTIONS")


def int_vector(fb: flatbuffers.Builder, values: Sequence[float] | np.ndarray, *, dtype: str = "int32") -> int:
    """Write a vector of integers or floats and return its offset."""
    return int(fb.CreateNumpyVector(np.asarray(values, dtype=dtype)))


def offset_vector(fb: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    """Write a vector of tables that are already in the buffer and return its offset."""
    fb.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        fb.PrependUOffsetTRelative(offset)
    return int(fb.EndVector())


def aligned_bytes(fb: flatbuffers.Builder, data: bytes, *, align: int = 16) -> int:
    """Write a byte vector whose first element lies on a multiple of `align` (the schema asks for 16)."""
    fb.StartVector(1, len(data), align)
    fb.head = fb.head - len(data)
    fb.Bytes[fb.head : fb.head + len(data)] = data
    return int(fb.EndVector())


def _camel(field: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field.split("_"))


def _setter(module: ModuleType, table: str, field: str) -> Any:
    wanted = f"{table}Add{_camel(field)}".upper()
    for name, value in vars(module).items():
        if name.upper() == wanted:
            return value
    raise TypeError(f"{table} has no field {field!r}")


def option_table(fb: flatbuffers.Builder, table: str, options: dict[str, OptionValue]) -> int:
    """Write option table `table` with the given fields (snake case) and return its offset.

    Names of enumerators, plain strings and vectors of integers or floats are accepted as values; TypeError for a field that
    the schema does not have.
    """
    module = importlib.import_module(f"tflite.{table}")
    ready: dict[str, Any] = {}
    for field, value in sorted(options.items()):
        if isinstance(value, str):
            enum = ENUM_OF_FIELD.get(field)
            ready[field] = enumerator(enum, value) if enum else fb.CreateString(value)
        elif isinstance(value, (list, tuple, np.ndarray)):
            is_real = any(isinstance(v, float) for v in value)
            wide = str(value.dtype) if isinstance(value, np.ndarray) else "int32"
            ready[field] = int_vector(fb, value, dtype="float32" if is_real else wide)
        else:
            ready[field] = value
    getattr(module, f"{table}Start")(fb)
    for field, value in ready.items():
        _setter(module, table, field)(fb, value)
    return int(getattr(module, f"{table}End")(fb))


def check_name(name: str) -> str:
    """Refuse names that the schema's strings cannot hold."""
    if re.search("\x00", name):
        raise ValueError("a name must not contain NUL")
    return name
