"""A typed, read-only view of a .tflite file: all that the rest of the compiler knows about the format.

`parse` never raises, whatever the bytes; what it cannot read it reports and replaces by the schema's default.  The view may
still contradict itself (an index out of range, a constant of the wrong size); `aot.frontend.tflite.check` finds that.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from aot.frontend.problems import Problems
from aot.frontend.tflite import schema
from aot.frontend.tflite.flatbuffer import CutShort, FlatbufferError, Reader
from aot.frontend.tflite.records import Record, decode_model, default_record, ints, text
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range
from aot.support.text import printable

MAX_RANK = 8
"""Maximum number of dimensions of a tensor."""

MAX_TENSOR_BYTES = 1 << 28
"""A single tensor larger than this (256 MiB) is refused: no device of this class could hold it."""

ABSENT = -1
"""Index of an optional tensor that is left out."""

_NUMPY: dict[str, str] = {
    "float64": "<f8", "float32": "<f4", "float16": "<f2", "complex64": "<c8",
    "int64": "<i8", "int32": "<i4", "int16": "<i2", "int8": "|i1",
    "uint64": "<u8", "uint32": "<u4", "uint16": "<u2", "uint8": "|u1",
    "bool": "|b1", "int4": "|i1",
}  # fmt: skip

_QUANTISABLE = frozenset({"int4", "int8", "int16", "int32", "int64", "uint8"})


@dataclass(frozen=True, slots=True, eq=False)
class BlockView:
    """Quantisation parameters stored in other tensors.

    `kind` is "blockwise" or "multi_axis"; `scales` and `zero_points` are tensor indices (-1: none); `block_size` in elements.
    """

    kind: str
    scales: int
    zero_points: int
    block_size: int
    dims: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class QuantView:
    """real = scale * (q - zero_point).  float32 scales and int64 zero points of equal length: 1, or one per slice of `axis`.

    `axis` is None if there is a single scale.
    """

    scales: npt.NDArray[np.float32]
    zero_points: npt.NDArray[np.int64]
    axis: int | None
    block: BlockView | None = None
    custom: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class SparseDim:
    """One traversed dimension: `format` DENSE (then `size`) or SPARSE_CSR (then `segments` and `indices`)."""

    format: str
    size: int
    segments: npt.NDArray[np.int64]
    indices: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class SparsityView:
    """The layout of a sparse constant's non-zero values (TACO's format, as documented in the schema)."""

    traversal_order: tuple[int, ...]
    block_map: tuple[int, ...]
    dims: tuple[SparseDim, ...]


@dataclass(frozen=True, slots=True, eq=False)
class TensorView:
    """A tensor.  `data` is a constant's value in the tensor's shape, None for a value computed at run time.

    A dimension of -1 is 1 in `shape`; `shape_signature` keeps the file's value.  int4 values are unpacked to int8 in
    `data`; a sparse constant's `data` is the flat array of its stored values.  `raw` is the buffer's bytes (empty: none).
    """

    index: int
    name: str
    shape: tuple[int, ...]
    shape_signature: tuple[int, ...]
    dtype: str
    raw: memoryview
    data: npt.NDArray[Any] | None
    quant: QuantView | None
    is_variable: bool
    sparsity: SparsityView | None
    external: bool
    where: str
    has_rank: bool = True

    @property
    def is_open(self) -> bool:
        """Whether the file leaves dimensions of a computed value open, so that its `shape` says little."""
        signature = self.shape_signature
        return len(signature) != len(self.shape) or any(n < 0 for n in signature) or not (self.shape or self.has_rank)

    @property
    def extent(self) -> int:
        """Number of elements, counting an empty dimension as one: a bound for buffers and strides."""
        return prod(max(d, 1) for d in self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes, with a negative dimension multiplied as is; 0 for types without a fixed size."""
        return stored_bytes(self.dtype, prod(self.shape))


@dataclass(frozen=True, slots=True, eq=False)
class OperatorView:
    """An operator.  `inputs` may contain -1 (`ABSENT`) for an optional tensor; `where` is its name in messages."""

    index: int
    opcode: str
    version: int
    custom_name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...]
    options: Mapping[str, Any]
    custom_options: bytes
    where: str

    @property
    def kind(self) -> str:
        """The key under which an operator is registered: `CONV_2D`, or `CUSTOM:` and the custom operator's name."""
        return f"CUSTOM:{self.custom_name}" if self.opcode == "CUSTOM" else self.opcode

    def option(self, name: str) -> Any:
        """An option's value or the schema's default: int, float, bool, tuple, str for enums and strings, bytes.

        Raises KeyError for a name that is not in this operator's options table.
        """
        return self.options[name]

    def input(self, position: int) -> int:
        """Tensor index of an input, -1 if the list is shorter or the tensor is left out."""
        return self.inputs[position] if position < len(self.inputs) else ABSENT


@dataclass(frozen=True, slots=True, eq=False)
class SubgraphView:
    """A graph: `inputs` and `outputs` are indices into `tensors`; operators are in the order of execution."""

    index: int
    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tensors: tuple[TensorView, ...]
    operators: tuple[OperatorView, ...]


@dataclass(frozen=True, slots=True)
class SignatureView:
    """A named entry point; `inputs` and `outputs` are (name, tensor index) of its subgraph."""

    key: str
    subgraph: int
    inputs: tuple[tuple[str, int], ...]
    outputs: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ModelView:
    """A whole file."""

    version: int
    subgraphs: tuple[SubgraphView, ...]
    signatures: tuple[SignatureView, ...]
    buffers: tuple[memoryview, ...]


def stored_bytes(dtype: str, count: int) -> int:
    """Bytes of `count` elements in a file; 0 for types without a fixed size or unknown to us."""
    if dtype == "int4":
        return (count + 1) // 2
    type_ = _NUMPY.get(dtype)
    return count * np.dtype(type_).itemsize if type_ else 0


def parse(data: bytes, problems: Problems) -> ModelView | None:
    """The view of a file, None if nothing meaningful can be read.  Notes E10xx and never raises."""
    return _sound(data) or _parsed(data, problems)


@lru_cache(maxsize=2)
def _sound(data: bytes) -> ModelView | None:
    """The view of a file without problems, cached for its many callers; None for other files."""
    problems = Problems()
    view = _parsed(data, problems)
    return None if problems else view


def _parsed(data: bytes, problems: Problems) -> ModelView | None:
    reader = Reader(data)
    record = decode_model(reader, problems)
    if record is None:
        return None
    try:
        builder = _Builder(reader, record, problems)
        view = builder.model()
    except FlatbufferError as error:
        problems.add(error.code, error.message)
        return None
    return None if builder.faults.report(reader.size, len(view.buffers)) else view


class _Builder:
    """Converts records to views; one per file; caches what tensors share."""

    def __init__(self, reader: Reader, record: Record, problems: Problems) -> None:
        self.reader = reader
        self.record = record
        self.problems = problems
        self.faults = CutShort(problems)
        self.buffers = tuple(self._buffer(i, r) for i, r in enumerate(record["buffers"] or ()))
        self.unpacked: dict[tuple[int, str], npt.NDArray[Any]] = {}

    def model(self) -> ModelView:
        subgraphs = tuple(self._subgraph(i, r) for i, r in enumerate(self.record["subgraphs"] or ()))
        signatures = tuple(_signature(r) for r in self.record["signature_defs"] or ())
        for i, metadata in enumerate(self.record["metadata"] or ()):
            self._bytes_of(metadata["buffer"], f"metadata {i}")  # its buffer exists
        return ModelView(self.record["version"], subgraphs, signatures, self.buffers)

    def _buffer(self, index: int, record: Record) -> memoryview:
        """The bytes of a buffer: inside the table, or (files may exceed 2 GB) at an offset of the file."""
        if record["offset"] <= 1:
            return memoryview(b"") if record["data"] is None else record["data"]
        return self._block(record["offset"], record["size"], what="its data", where=f"buffer {index}")

    def _block(self, offset: int, size: int, *, what: str, where: str) -> memoryview:
        try:
            return self.reader.block(offset, size, what)
        except FlatbufferError as error:
            self.faults.add(error, where)
            return memoryview(b"")

    def _bytes_of(self, index: int, where: str) -> memoryview:
        if index < len(self.buffers):
            return self.buffers[index]
        if index == 0:  # "no data" by convention, even if the model has no buffers at all
            return memoryview(b"")
        self.problems.add("E1103", f"buffer {index} does not exist, the model has {len(self.buffers)}", where)
        return memoryview(b"")

    def _subgraph(self, index: int, record: Record) -> SubgraphView:
        name = text(record["name"])
        suffix = f' of subgraph {index} "{printable(name)}"' if index else ""
        tensors = tuple(self._tensor(i, r, suffix) for i, r in enumerate(record["tensors"] or ()))
        operators = tuple(self._operator(i, r, tensors=tensors, suffix=suffix) for i, r in enumerate(record["operators"] or ()))
        return SubgraphView(index, name, ints(record["inputs"]), ints(record["outputs"]), tensors, operators)

    def _tensor(self, index: int, record: Record, suffix: str) -> TensorView:
        name = text(record["name"])
        where = f'tensor {index} "{printable(name)}"{suffix}'
        written = ints(record["shape"])
        shape = tuple(1 if n == -1 else n for n in written)
        signature, dtype = ints(record["shape_signature"]) or written, record["type"].lower()
        raw = self._bytes_of(record["buffer"], where)
        sparsity = None if record["sparsity"] is None else _sparsity(record["sparsity"])
        data = self._data(record["buffer"], dtype, raw=raw, shape=shape, sparse=sparsity is not None)
        quant, variable = _quant(record["quantization"], dtype, shape), record["is_variable"]
        external, has_rank = record["external_buffer"] != 0, record["has_rank"]
        return TensorView(
            index, name, shape, signature, dtype, raw, data, quant, variable, sparsity, external, where, has_rank
        )  # fmt: skip

    def _data(self, buffer: int, dtype: str, *, raw: memoryview, shape: tuple[int, ...], sparse: bool) -> npt.NDArray[Any] | None:
        """The constant's array over the file's bytes; None if there is none or its size does not match the shape."""
        if dtype not in _NUMPY or len(shape) > MAX_RANK or any(d < 0 for d in shape):
            return None
        count = prod(shape)
        if prod(max(d, 1) for d in shape) > MAX_TENSOR_BYTES:
            return None
        if not count:
            return np.empty(shape, _NUMPY[dtype])
        if not raw or (not sparse and len(raw) != stored_bytes(dtype, count)):
            return None
        elements = self._elements(buffer, dtype, raw)
        return elements if sparse else elements[:count].reshape(shape)

    def _elements(self, buffer: int, dtype: str, raw: memoryview) -> npt.NDArray[Any]:
        if dtype not in ("int4", "bool"):
            width = np.dtype(_NUMPY[dtype]).itemsize
            return np.frombuffer(raw, _NUMPY[dtype], len(raw) // width)
        key = (buffer, dtype)
        if key not in self.unpacked:
            self.reader.charge(2 * len(raw))
            packed = np.frombuffer(raw, np.uint8)
            values = _unpack_int4(packed) if dtype == "int4" else packed != 0
            values.flags.writeable = False
            self.unpacked[key] = values
        return self.unpacked[key]

    def _operator(self, index: int, record: Record, *, tensors: tuple[TensorView, ...], suffix: str) -> OperatorView:
        outputs = ints(record["outputs"])
        first = outputs[0] if outputs and 0 <= outputs[0] < len(tensors) else None
        opcode, version, custom = self._opcode(record["opcode_index"], f"op {index}{suffix}")
        label = f"CUSTOM:{printable(custom)}" if opcode == "CUSTOM" else opcode
        name = "" if first is None else f' "{printable(tensors[first].name)}"'
        where = f"op {index} {label}{name}{suffix}"
        options = MappingProxyType(self._options(record, opcode, where))
        blob = record["custom_options"] or b""
        if record["large_custom_options_offset"] > 1:
            place = record["large_custom_options_offset"], record["large_custom_options_size"]
            block = self._block(*place, what="its custom options", where=where)
            self.reader.charge(len(block))
            blob = bytes(block)
        inputs, between = ints(record["inputs"]), ints(record["intermediates"])
        return OperatorView(index, opcode, version, custom, inputs, outputs, between, options, blob, where)

    def _opcode(self, index: int, where: str) -> tuple[str, int, str]:
        """(name, version, custom name) of an entry in the table of operator codes."""
        codes = self.record["operator_codes"] or ()
        if index >= len(codes):
            self.problems.add("E1103", f"operator code {index} does not exist, the model has {len(codes)}", where)
            return "UNKNOWN", 1, ""
        code = codes[index]
        # Files before 2020 have only the 8-bit field; in later files it also holds the number, or 127.
        number = max(code["builtin_code"], code["deprecated_builtin_code"])
        names = schema.enums()["BuiltinOperator"]
        if number < 0:
            self.problems.add("E1010", f"operator code {index} has the unknown number {number}", where)
            return "UNKNOWN", 1, ""
        name = names[number] if number < len(names) else f"BUILTIN_{number}"
        return name, code["version"], text(code["custom_code"])

    def _options(self, record: Record, opcode: str, where: str) -> dict[str, Any]:
        """An operator's options; the defaults if the file has none."""
        expected = schema.options_tables().get(opcode, "")
        options = record["builtin_options"] or record["builtin_options2"]
        if options is not None and options[0] != expected and expected:
            self.problems.add("E1116", f"its options are {options[0]}, expected {expected}", where)
            options = None
        if options is None:
            return _plain(default_record(expected), expected) if expected else {}
        return _plain(options[1], options[0])


def _plain(record: Record, table: str) -> dict[str, Any]:
    """Options as plain Python values; absent vectors and strings are empty."""
    result: dict[str, Any] = {}
    for field in schema.tables()[table]:
        value = record[field.name]
        if field.kind == "vector":
            value = tuple(bytes(value)) if isinstance(value, memoryview) else ints(value)
        elif field.kind == "string":
            value = text(value)
        elif field.kind == "bytes":
            value = value or b""
        result[field.name] = value
    return result


def _signature(record: Record) -> SignatureView:
    def names(maps: tuple[Record, ...] | None) -> tuple[tuple[str, int], ...]:
        return tuple((text(m["name"]), m["tensor_index"]) for m in maps or ())

    key = text(record["signature_key"])
    return SignatureView(key, record["subgraph_index"], names(record["inputs"]), names(record["outputs"]))


def _quant(record: Record | None, dtype: str, shape: tuple[int, ...]) -> QuantView | None:
    """Quantisation of an integer tensor, None without scales; floats have none, whatever a converter left there."""
    if record is None or dtype not in _QUANTISABLE:
        return None
    member: str = record["details"][0] if record["details"] else ""
    details: Record = record["details"][1] if record["details"] else {}
    block = None
    if member in ("BlockwiseQuantization", "MultiAxisQuantization"):
        kind = "blockwise" if member == "BlockwiseQuantization" else "multi_axis"
        dims = ints(details["block_shape" if kind == "blockwise" else "quantized_dimensions"])
        block = BlockView(kind, details["scales"], details["zero_points"], details["block_size"], dims)
    scales = np.array(() if record["scale"] is None else record["scale"], np.float32)
    if not scales.size and block is None and member != "CustomQuantization":
        return None
    zeros = record["zero_point"]
    zero_points = np.array(np.zeros(scales.size) if zeros is None or not len(zeros) else zeros, np.int64)
    axis = record["quantized_dimension"] if scales.size > 1 else None
    if axis is not None and len(shape) == 1 and not 0 <= axis < 1:
        axis = 0  # converters before 2020 copied the weights' dimension (3) to one-dimensional biases
    return QuantView(scales, zero_points, axis, block, member == "CustomQuantization")


def _sparsity(record: Record) -> SparsityView:
    dims = tuple(
        SparseDim(d["format"], d["dense_size"], _indices(d["array_segments"]), _indices(d["array_indices"]))
        for d in record["dim_metadata"] or ()
    )
    return SparsityView(ints(record["traversal_order"]), ints(record["block_map"]), dims)


def _indices(union: tuple[str, Record] | None) -> npt.NDArray[np.int64]:
    if union is None or union[1]["values"] is None:
        return np.empty(0, np.int64)
    values = union[1]["values"]
    return np.array(np.frombuffer(values, np.uint8) if isinstance(values, memoryview) else values, np.int64)


def _unpack_int4(packed: npt.NDArray[np.uint8]) -> npt.NDArray[np.int8]:
    """Two's complement nibbles, the low one first, to int8."""
    values = np.empty(2 * packed.size, np.int8)
    signed = packed.view(np.int8)
    values[0::2] = np.left_shift(signed, 4) >> 4
    values[1::2] = signed >> 4
    return values


# Multiply-accumulates and shapes of a model as stored in its file, before any operator is fused, rewritten or removed.


def nominal_macs(model: bytes) -> int:
    """MACs of one inference of the first graph: convolutions (also depthwise and transposed), dense layers, matrix products.

    Padding and channels with zero weights count as if they were computed.  0 if it is not a model.
    """
    view = parse(model, Problems())
    if view is None or not view.subgraphs:
        return 0
    return sum(operator_macs(view.subgraphs[0], op) for op in view.subgraphs[0].operators)


def operator_count(model: bytes) -> int:
    """Operators of the first graph; 0 if it is not a model."""
    view = parse(model, Problems())
    return len(view.subgraphs[0].operators) if view is not None and view.subgraphs else 0


def nominal_shapes(model: bytes) -> dict[int, tuple[int, ...]]:
    """The shapes of the first graph's tensors as stored in the file, by index; empty if it is not a model."""
    view = parse(model, Problems())
    return {i: tuple(t.shape) for i, t in enumerate(view.subgraphs[0].tensors)} if view is not None and view.subgraphs else {}


def operator_macs(graph: SubgraphView, op: OperatorView) -> int:
    """MACs from the shapes of weights and result; 0 if one of them does not exist."""
    if not op.outputs or not 0 <= op.outputs[0] < len(graph.tensors) or not 0 <= op.input(1) < len(graph.tensors):
        return 0
    out, second = graph.tensors[op.outputs[0]].extent, graph.tensors[op.input(1)].shape
    match op.kind:
        case "CONV_2D":
            return out * prod(second[1:])
        case "DEPTHWISE_CONV_2D":
            return out * prod(second[1:-1])
        case "FULLY_CONNECTED":
            return out * prod(second[-1:])
        case "TRANSPOSE_CONV" if 0 <= op.input(2) < len(graph.tensors):
            return graph.tensors[op.input(2)].extent * prod(second[:-1])
        case "BATCH_MATMUL" if len(second) > 1:
            return out * second[-1 if op.option("adj_y") else -2]
    return 0


_ONLY_POSITIVE = {"RSQRT": 1, "SQRT": 0, "LOG": 1}
"""Operators whose kernels for quantised values fail on a negative operand, and the lowest value above the zero point allowed."""


def input_restrictions(model: bytes) -> dict[int, dict[str, Any]]:
    """Restrictions by the operators that read an input of the first graph directly (aot.frontend.formats.Values)."""
    view = parse(model, Problems())
    if view is None or not view.subgraphs:
        return {}
    graph = view.subgraphs[0]
    values: dict[int, dict[str, Any]] = {}
    place = {tensor: i for i, tensor in enumerate(graph.inputs)}
    for op in graph.operators:
        tensor = graph.tensors[op.inputs[0]] if op.inputs and op.inputs[0] in place else None
        if tensor is None:
            continue
        if op.opcode == "TRANSPOSE_CONV":
            values[place[tensor.index]] = {"fixed": list(graph.tensors[op.outputs[0]].shape)}
        elif op.opcode in _ONLY_POSITIVE and tensor.quant is not None:
            lowest = int(tensor.quant.zero_points[0]) + _ONLY_POSITIVE[op.opcode]
            values[place[tensor.index]] = {"range": [lowest, int_range(tensor.dtype)[1]]}
    return values


# Sparse constants: the dense array that TensorFlow Lite's sparsity format describes.
#
# A tensor of D dimensions with B blocked ones is stored as a tree of D + B levels, in `traversal_order`; numbers below D are the
# tensor's dimensions (counted in blocks if blocked), numbers from D on are positions within a block, along dimension
# `block_map[i - D]`.  A DENSE level has all its positions, a SPARSE_CSR level those that `segments` and `indices` list for each
# parent node.  The stored values are the leaves.  Source: the comments of `SparsityParameters` in the schema.


Ints = npt.NDArray[np.int64]


class SparsityError(ValueError):
    """A description that contradicts itself, the shape or the number of stored values."""


def to_dense(values: npt.NDArray[Any], shape: tuple[int, ...], sparsity: SparsityView) -> npt.NDArray[Any]:
    """The tensor of `shape`, zero where nothing is stored; raises SparsityError."""
    levels = len(shape) + len(sparsity.block_map)
    order = sparsity.traversal_order
    if sorted(order) != list(range(levels)) or len(sparsity.dims) != levels:
        raise SparsityError(f"traversal order {list(order)} of {levels} levels")
    if any(not 0 <= d < len(shape) for d in sparsity.block_map) or len(set(sparsity.block_map)) != len(sparsity.block_map):
        raise SparsityError(f"blocks of dimensions {list(sparsity.block_map)}")
    extents = _extents(shape, sparsity)
    coordinates: dict[int, Ints] = {}
    nodes = 1
    for level, dim in zip(order, sparsity.dims, strict=True):
        parents, positions = _children(dim, nodes, extents[level], most=prod(shape))
        coordinates = {k: v[parents] for k, v in coordinates.items()} | {level: positions}
        nodes = len(positions)
    if nodes != values.size:
        raise SparsityError(f"{nodes} positions for {values.size} stored values")
    dense = np.zeros(shape, values.dtype)
    dense[tuple(_index(coordinates, d, len(shape), sparsity, extents) for d in range(len(shape)))] = values.reshape(-1)
    return dense


def _extents(shape: tuple[int, ...], sparsity: SparsityView) -> list[int]:
    """Positions of each level, by its number: blocks of each dimension, then elements of each block."""
    extents = list(shape)
    sizes = dict(zip(sparsity.traversal_order, (d.size for d in sparsity.dims), strict=True))
    for i, dimension in enumerate(sparsity.block_map):
        size = sizes[len(shape) + i]
        if size <= 0 or shape[dimension] % size:
            raise SparsityError(f"blocks of {size} along a dimension of {shape[dimension]}")
        extents[dimension] = shape[dimension] // size
        extents.append(size)
    return extents


def _children(dim: SparseDim, nodes: int, extent: int, *, most: int) -> tuple[Ints, Ints]:
    """The parent and the position of every node of the next level."""
    if dim.format == "DENSE":
        if dim.size != extent or nodes * extent > most:
            raise SparsityError(f"a dense level of {dim.size}, expected {extent} positions")
        return np.repeat(np.arange(nodes), extent), np.tile(np.arange(extent), nodes)
    counts = np.diff(dim.segments)
    whole = dim.segments.size == nodes + 1 and dim.segments[0] == 0 and dim.segments[-1] == dim.indices.size
    if not whole or (counts < 0).any() or dim.indices.size > most:
        raise SparsityError(f"segments of {dim.indices.size} indices for {nodes} rows")
    if dim.indices.size and not (dim.indices.min() >= 0 and dim.indices.max() < extent):
        raise SparsityError(f"indices up to {dim.indices.max()} of {extent} positions")
    return np.repeat(np.arange(nodes), counts), dim.indices


def _index(coordinates: dict[int, Ints], dimension: int, rank: int, sparsity: SparsityView, extents: list[int]) -> Ints:
    """The index along a dimension of every stored value."""
    if dimension not in sparsity.block_map:
        return coordinates[dimension]
    block = rank + sparsity.block_map.index(dimension)
    return coordinates[dimension] * extents[block] + coordinates[block]
