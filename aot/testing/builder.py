"""ModelBuilder: writes .tflite files operator by operator.

The same calls give the same bytes: nothing depends on hashes, time or the machine.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import flatbuffers
import numpy as np
import tflite

FILE_IDENTIFIER = b"TFL3"
SCHEMA_VERSION = 3
DEPRECATED_CODE_LIMIT = 127
"""Operator codes above this do not fit the old 8-bit field, which then holds this number."""

OPERATOR_VERSION = {
    "ADD": 2,
    "AVERAGE_POOL_2D": 2,
    "CONCATENATION": 2,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "DEQUANTIZE": 2,
    "FULLY_CONNECTED": 4,
    "LOGISTIC": 2,
    "MAX_POOL_2D": 2,
    "MEAN": 2,
    "PAD": 2,
    "RESIZE_NEAREST_NEIGHBOR": 2,
    "SOFTMAX": 2,
    "TRANSPOSE": 2,
}
"""First version of an operator that supports int8; 1 for all others."""

Scale = float | Sequence[float] | np.ndarray
ZeroPoint = int | Sequence[int] | np.ndarray


@dataclass(frozen=True, slots=True)
class Sparsity:
    """How a sparse constant is stored: levels in `traversal_order`, each its size (dense) or (segments, indices)."""

    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    levels: tuple[int | tuple[Sequence[int], Sequence[int]], ...]


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int
    buffer: int
    is_variable: bool
    shape_signature: tuple[int, ...] | None
    sparsity: Sparsity | None


@dataclass(frozen=True, slots=True)
class _Operator:
    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: dict[str, OptionValue]
    table: str | None
    custom_options: bytes
    intermediates: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Signature:
    key: str
    inputs: dict[str, int]
    outputs: dict[str, int]
    subgraph: int


def pack_data(data: np.ndarray | bytes, dtype: str) -> bytes:
    """Little-endian bytes of a constant; int4 is packed two per byte, the first in the low half."""
    if isinstance(data, bytes):
        return data
    if dtype == "int4":
        low = np.asarray(data, np.int8).ravel() & 15
        low = np.append(low, np.zeros(low.size % 2, np.int8)).astype(np.uint8)
        return (low[0::2] | (low[1::2] << 4)).tobytes()
    return np.ascontiguousarray(data, np.dtype(dtype).newbyteorder("<")).tobytes()


def _tuple(value: object, kind: type) -> tuple:  # type: ignore[type-arg]
    if value is None:
        return ()
    return tuple(kind(v) for v in np.atleast_1d(np.asarray(value)).ravel())


@dataclass(slots=True)
class Subgraph:
    """One graph under construction; tensors and operators are numbered in the order of the calls."""

    model: ModelBuilder
    name: str
    tensors: list[_Tensor] = field(default_factory=list)
    operators: list[_Operator] = field(default_factory=list)
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: str = "int8",
        *,
        scale: Scale | None = None,
        zero_point: ZeroPoint | None = None,
        axis: int = 0,
        data: np.ndarray | bytes | None = None,
        buffer: int | None = None,
        is_variable: bool = False,
        shape_signature: Sequence[int] | None = None,
        sparsity: Sparsity | None = None,
    ) -> int:
        """Add a tensor and return its index.

        `data` makes it a constant (raw bytes are used as they are, whatever the shape); `buffer` shares
        a buffer made by `ModelBuilder.buffer`.  Several scales make it quantised per channel along `axis`;
        their zero points default to 0.  With `sparsity`, `data` has the stored values only.
        """
        if buffer is None:
            buffer = 0 if data is None else self.model.buffer(pack_data(data, dtype))
        scales = _tuple(scale, float)
        zero_points = _tuple(zero_point, int) or (0,) * len(scales)
        signature = None if shape_signature is None else tuple(int(d) for d in shape_signature)
        dims = tuple(int(d) for d in shape)
        self.tensors.append(
            _Tensor(check_name(name), dims, dtype, scales, zero_points, axis, buffer, is_variable, signature, sparsity)
        )
        return len(self.tensors) - 1

    def op(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        /,
        *,
        version: int | None = None,
        table: str | None = None,
        intermediates: Sequence[int] = (),
        **options: OptionValue,
    ) -> int:
        """Add builtin operator `name` ("CONV_2D") and return its index.

        -1 among `inputs` means that an optional tensor is left out.  `options` are the fields of the
        schema's option table in snake case; `table` overrides the table.  `intermediates` are tensors with quantisation
        parameters for an LSTM.
        """
        code = enumerator("BuiltinOperator", name)
        entry = self.model.code(code, version=version or OPERATOR_VERSION.get(name, 1))
        table = table or options_name(name)
        if options and table is None:
            raise TypeError(f"{name} has no options")
        self.operators.append(_Operator(entry, tuple(inputs), tuple(outputs), options, table, b"", tuple(intermediates)))
        return len(self.operators) - 1

    def custom_op(self, name: str, inputs: Sequence[int], outputs: Sequence[int], *, custom_options: bytes = b"") -> int:
        """Add custom operator `name` with its opaque options and return its index."""
        code = self.model.code(enumerator("BuiltinOperator", "CUSTOM"), version=1, custom=name)
        self.operators.append(_Operator(code, tuple(inputs), tuple(outputs), {}, None, custom_options))
        return len(self.operators) - 1


class ModelBuilder:
    """A model under construction: `tensor` and `op` add to its main graph, `build` gives the file's bytes."""

    def __init__(self, description: str = "aot test model") -> None:
        self.description = description
        self.buffers: list[bytes] = [b""]
        self.codes: list[tuple[int, int, str]] = []
        self.subgraphs: list[Subgraph] = [Subgraph(self, "main")]
        self.signatures: list[_Signature] = []
        self.metadata: list[tuple[str, bytes]] = []
        self.tensor = self.subgraphs[0].tensor
        self.op = self.subgraphs[0].op
        self.custom_op = self.subgraphs[0].custom_op

    def buffer(self, data: bytes) -> int:
        """Add a constant buffer and return its index."""
        self.buffers.append(data)
        return len(self.buffers) - 1

    def code(self, builtin: int, *, version: int = 1, custom: str = "") -> int:
        """Index of the operator code, added on first use."""
        entry = (builtin, version, custom)
        if entry not in self.codes:
            self.codes.append(entry)
        return self.codes.index(entry)

    def subgraph(self, name: str) -> Subgraph:
        """Add another graph; set its `inputs` and `outputs` yourself."""
        self.subgraphs.append(Subgraph(self, name))
        return self.subgraphs[-1]

    def signature(self, key: str, *, inputs: dict[str, int], outputs: dict[str, int], subgraph: int = 0) -> None:
        """Give a graph a named signature: argument name -> tensor index."""
        self.signatures.append(_Signature(key, inputs, outputs, subgraph))

    def build(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """Return the file, with these tensors as inputs and outputs of the main graph."""
        self.subgraphs[0].inputs, self.subgraphs[0].outputs = tuple(inputs), tuple(outputs)
        return self.serialize()

    def serialize(self) -> bytes:
        """Return the file with the subgraphs exactly as they are in `subgraphs` (which may be empty)."""
        fb = flatbuffers.Builder(1024)
        metadata = [(fb.CreateString(name), self.buffer(data)) for name, data in self.metadata]
        buffers = offset_vector(fb, [_write_buffer(fb, data) for data in self.buffers])
        del self.buffers[len(self.buffers) - len(metadata) :]
        graphs = offset_vector(fb, [_write_subgraph(fb, graph) for graph in self.subgraphs])
        codes = offset_vector(fb, [_write_code(fb, *entry) for entry in self.codes])
        signatures = offset_vector(fb, [_write_signature(fb, s) for s in self.signatures])
        entries = offset_vector(fb, [_write_metadata(fb, *m) for m in metadata])
        description = fb.CreateString(self.description)
        tflite.ModelStart(fb)
        tflite.ModelAddVersion(fb, SCHEMA_VERSION)
        tflite.ModelAddOperatorCodes(fb, codes)
        tflite.ModelAddSubgraphs(fb, graphs)
        tflite.ModelAddDescription(fb, description)
        tflite.ModelAddBuffers(fb, buffers)
        if self.metadata:
            tflite.ModelAddMetadata(fb, entries)
        if self.signatures:
            tflite.ModelAddSignatureDefs(fb, signatures)
        fb.Finish(tflite.ModelEnd(fb), FILE_IDENTIFIER)
        return bytes(fb.Output())


def _write_buffer(fb: flatbuffers.Builder, data: bytes) -> int:
    vector = aligned_bytes(fb, data) if data else None
    tflite.BufferStart(fb)
    if vector is not None:
        tflite.BufferAddData(fb, vector)
    return int(tflite.BufferEnd(fb))


def _write_code(fb: flatbuffers.Builder, builtin: int, version: int, custom: str) -> int:
    name = fb.CreateString(custom) if custom else None
    tflite.OperatorCodeStart(fb)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(fb, min(builtin, DEPRECATED_CODE_LIMIT))
    if name is not None:
        tflite.OperatorCodeAddCustomCode(fb, name)
    tflite.OperatorCodeAddVersion(fb, version)
    tflite.OperatorCodeAddBuiltinCode(fb, builtin)
    return int(tflite.OperatorCodeEnd(fb))


def _write_metadata(fb: flatbuffers.Builder, name: int, buffer: int) -> int:
    tflite.MetadataStart(fb)
    tflite.MetadataAddName(fb, name)
    tflite.MetadataAddBuffer(fb, buffer)
    return int(tflite.MetadataEnd(fb))


def _write_quantization(fb: flatbuffers.Builder, tensor: _Tensor) -> int:
    scale = int_vector(fb, tensor.scale, dtype="float32")
    zero_point = int_vector(fb, tensor.zero_point, dtype="int64")
    tflite.QuantizationParametersStart(fb)
    tflite.QuantizationParametersAddScale(fb, scale)
    tflite.QuantizationParametersAddZeroPoint(fb, zero_point)
    tflite.QuantizationParametersAddQuantizedDimension(fb, tensor.axis)
    return int(tflite.QuantizationParametersEnd(fb))


def _write_sparsity(fb: flatbuffers.Builder, sparsity: Sparsity) -> int:
    levels = offset_vector(fb, [_write_level(fb, level) for level in sparsity.levels])
    order, blocks = int_vector(fb, sparsity.traversal_order), int_vector(fb, sparsity.block_map)
    tflite.SparsityParametersStart(fb)
    tflite.SparsityParametersAddTraversalOrder(fb, order)
    tflite.SparsityParametersAddBlockMap(fb, blocks)
    tflite.SparsityParametersAddDimMetadata(fb, levels)
    return int(tflite.SparsityParametersEnd(fb))


def _write_level(fb: flatbuffers.Builder, level: int | tuple[Sequence[int], Sequence[int]]) -> int:
    vectors = []
    for values in () if isinstance(level, int) else level:
        numbers = int_vector(fb, values)
        tflite.Int32VectorStart(fb)
        tflite.Int32VectorAddValues(fb, numbers)
        vectors.append(int(tflite.Int32VectorEnd(fb)))
    kind = enumerator("SparseIndexVector", "Int32Vector")
    tflite.DimensionMetadataStart(fb)
    tflite.DimensionMetadataAddFormat(fb, enumerator("DimensionType", "SPARSE_CSR" if vectors else "DENSE"))
    if vectors:
        tflite.DimensionMetadataAddArraySegmentsType(fb, kind)
        tflite.DimensionMetadataAddArraySegments(fb, vectors[0])
        tflite.DimensionMetadataAddArrayIndicesType(fb, kind)
        tflite.DimensionMetadataAddArrayIndices(fb, vectors[1])
    else:
        tflite.DimensionMetadataAddDenseSize(fb, level)
    return int(tflite.DimensionMetadataEnd(fb))


def _write_tensor(fb: flatbuffers.Builder, tensor: _Tensor) -> int:
    shape = int_vector(fb, tensor.shape)
    name = fb.CreateString(tensor.name)
    quantization = _write_quantization(fb, tensor) if tensor.scale else None
    signature = None if tensor.shape_signature is None else int_vector(fb, tensor.shape_signature)
    sparsity = None if tensor.sparsity is None else _write_sparsity(fb, tensor.sparsity)
    tflite.TensorStart(fb)
    tflite.TensorAddShape(fb, shape)
    tflite.TensorAddType(fb, enumerator("TensorType", tensor.dtype))
    tflite.TensorAddBuffer(fb, tensor.buffer)
    tflite.TensorAddName(fb, name)
    if quantization is not None:
        tflite.TensorAddQuantization(fb, quantization)
    tflite.TensorAddIsVariable(fb, tensor.is_variable)
    if sparsity is not None:
        tflite.TensorAddSparsity(fb, sparsity)
    if signature is not None:
        tflite.TensorAddShapeSignature(fb, signature)
    tflite.TensorAddHasRank(fb, True)
    return int(tflite.TensorEnd(fb))


def _write_operator(fb: flatbuffers.Builder, op: _Operator) -> int:
    inputs, outputs = int_vector(fb, op.inputs), int_vector(fb, op.outputs)
    intermediates = int_vector(fb, op.intermediates) if op.intermediates else None
    options = option_table(fb, op.table, op.options) if op.table else None
    custom = aligned_bytes(fb, op.custom_options) if op.custom_options else None
    tflite.OperatorStart(fb)
    tflite.OperatorAddOpcodeIndex(fb, op.code)
    tflite.OperatorAddInputs(fb, inputs)
    tflite.OperatorAddOutputs(fb, outputs)
    if op.table and options is not None and hasattr(tflite.BuiltinOptions2, op.table):
        tflite.OperatorAddBuiltinOptions2Type(fb, enumerator("BuiltinOptions2", op.table))
        tflite.OperatorAddBuiltinOptions2(fb, options)
    elif op.table and options is not None:
        tflite.OperatorAddBuiltinOptionsType(fb, enumerator("BuiltinOptions", op.table))
        tflite.OperatorAddBuiltinOptions(fb, options)
    if custom is not None:
        tflite.OperatorAddCustomOptions(fb, custom)
    if intermediates is not None:
        tflite.OperatorAddIntermediates(fb, intermediates)
    return int(tflite.OperatorEnd(fb))


def _write_subgraph(fb: flatbuffers.Builder, graph: Subgraph) -> int:
    tensors = offset_vector(fb, [_write_tensor(fb, t) for t in graph.tensors])
    operators = offset_vector(fb, [_write_operator(fb, o) for o in graph.operators])
    inputs, outputs = int_vector(fb, graph.inputs), int_vector(fb, graph.outputs)
    name = fb.CreateString(graph.name)
    tflite.SubGraphStart(fb)
    tflite.SubGraphAddTensors(fb, tensors)
    tflite.SubGraphAddInputs(fb, inputs)
    tflite.SubGraphAddOutputs(fb, outputs)
    tflite.SubGraphAddOperators(fb, operators)
    tflite.SubGraphAddName(fb, name)
    return int(tflite.SubGraphEnd(fb))


def _write_tensor_map(fb: flatbuffers.Builder, name: str, index: int) -> int:
    text = fb.CreateString(name)
    tflite.TensorMapStart(fb)
    tflite.TensorMapAddName(fb, text)
    tflite.TensorMapAddTensorIndex(fb, index)
    return int(tflite.TensorMapEnd(fb))


def _write_signature(fb: flatbuffers.Builder, signature: _Signature) -> int:
    inputs = offset_vector(fb, [_write_tensor_map(fb, n, i) for n, i in signature.inputs.items()])
    outputs = offset_vector(fb, [_write_tensor_map(fb, n, i) for n, i in signature.outputs.items()])
    key = fb.CreateString(signature.key)
    tflite.SignatureDefStart(fb)
    tflite.SignatureDefAddInputs(fb, inputs)
    tflite.SignatureDefAddOutputs(fb, outputs)
    tflite.SignatureDefAddSignatureKey(fb, key)
    tflite.SignatureDefAddSubgraphIndex(fb, signature.subgraph)
    return int(tflite.SignatureDefEnd(fb))


# ---- vectors and option tables of flatbuffers, driven by the field setters of the `tflite` package


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
    """Write a byte vector whose first element is aligned to `align` (the schema requires 16)."""
    fb.StartVector(1, len(data), align)
    fb.head = fb.head - len(data)
    fb.Bytes[fb.head : fb.head + len(data)] = data
    return int(fb.EndVector())


def _camel(field: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in field.split("_"))


def _setter(module: ModuleType, table: str, field: str) -> Any:
    adder = f"{table}Add{_camel(field)}".upper()
    for name, value in vars(module).items():
        if name.upper() == adder:
            return value
    raise TypeError(f"{table} has no field {field!r}")


def option_table(fb: flatbuffers.Builder, table: str, options: dict[str, OptionValue]) -> int:
    """Write option table `table` with the given fields (snake case) and return its offset.

    Names of enumerators, plain strings and vectors of integers or floats are accepted as values; TypeError for a field that
    the schema does not have.
    """
    module = importlib.import_module(f"tflite.{table}")
    ready: dict[str, Any] = {}
    for name, value in sorted(options.items()):
        if isinstance(value, str):
            enum = ENUM_OF_FIELD.get(name)
            ready[name] = enumerator(enum, value) if enum else fb.CreateString(value)
        elif isinstance(value, (list, tuple, np.ndarray)):
            is_real = any(isinstance(v, float) for v in value)
            wide = str(value.dtype) if isinstance(value, np.ndarray) else "int32"
            ready[name] = int_vector(fb, value, dtype="float32" if is_real else wide)
        else:
            ready[name] = value
    getattr(module, f"{table}Start")(fb)
    for name, value in ready.items():
        _setter(module, table, name)(fb, value)
    return int(getattr(module, f"{table}End")(fb))


def check_name(name: str) -> str:
    """Refuse names that the schema's strings cannot hold."""
    if re.search("\x00", name):
        raise ValueError("a name must not contain NUL")
    return name


# ---- TensorFlow Lite's int8 quantisation: real = scale * (q - zero_point)


INT8_MIN, INT8_MAX = -128, 127


@dataclass(frozen=True, slots=True)
class Quant:
    """Per-tensor parameters."""

    scale: float
    zero_point: int = 0

    def quantize(self, x: np.ndarray) -> np.ndarray:
        """Real values to int8, rounded half to even and clamped."""
        q = np.rint(x / self.scale) + self.zero_point
        return np.asarray(np.clip(q, INT8_MIN, INT8_MAX), np.int8)

    def dequantize(self, q: np.ndarray) -> np.ndarray:
        """int8 to real values (float64)."""
        return self.scale * (q.astype(np.float64) - self.zero_point)


def float32(x: float) -> float:
    """`x` as stored in the file (scales are 32-bit floats there)."""
    return float(np.float32(x))


def quant_of_range(low: float, high: float) -> Quant:
    """Parameters that spread [low, high] over all 256 values; 0 is exactly representable, as TFLite requires."""
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    scale = float32((high - low) / (INT8_MAX - INT8_MIN)) if high > low else 1.0
    zero_point = round(INT8_MIN - low / scale)
    return Quant(scale, int(np.clip(zero_point, INT8_MIN, INT8_MAX)))


def quantize_weights(w: np.ndarray, axis: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric int8 weights in [-127, 127] and their scales: one per slice along `axis`, or one for all."""
    others = tuple(i for i in range(w.ndim) if i != axis) if axis is not None else None
    peak = np.abs(w).max(axis=others, keepdims=True)
    scale = (np.where(peak > 0, peak, 1.0) / INT8_MAX).astype(np.float32)
    q = np.clip(np.rint(w / scale), -INT8_MAX, INT8_MAX).astype(np.int8)
    return q, scale.ravel()


def quantize_bias(b: np.ndarray, input_scale: float, weight_scale: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int32 bias and its scale, which is the product of the input's and the weights' scales."""
    scale = (np.float32(input_scale) * weight_scale).astype(np.float32)
    return np.rint(b / scale.astype(np.float64)).astype(np.int32), scale


# ---- variables


def handle(graph: Subgraph, name: str) -> int:
    """The result of VAR_HANDLE: a tensor that represents the variable of that name."""
    tensor = graph.tensor(f"{name}/handle", (), "resource")
    graph.op("VAR_HANDLE", [], [tensor], container="", shared_name=name)
    return tensor


def read(graph: Subgraph, of: int, shape: Sequence[int], dtype: str, **quant: Any) -> int:
    """The value of a variable by its handle."""
    tensor = graph.tensor(f"read_{len(graph.tensors)}", shape, dtype, **quant)
    graph.op("READ_VARIABLE", [of], [tensor])
    return tensor


def assign(graph: Subgraph, to: int, value: int) -> None:
    """Assign a value to a variable."""
    graph.op("ASSIGN_VARIABLE", [to, value], [])


def initialize(b: ModelBuilder, values: Mapping[str, np.ndarray[Any, Any]], **quants: Mapping[str, Any]) -> None:
    """A CALL_ONCE, here in the main graph, that initialises variables; `quants` by name, as in `tensor`."""
    init = b.subgraph("init")
    for name, data in values.items():
        to = handle(init, name)
        assign(init, to, init.tensor(f"{name}/initial", data.shape, str(data.dtype), data=data, **quants.get(name, {})))
    b.op("CALL_ONCE", [], [], init_subgraph_index=len(b.subgraphs) - 1)
