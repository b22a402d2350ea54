"""How a TFLite operator becomes relay calls: converters' queries to the graph walk, their registration, and their checks."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import NoReturn, Protocol

import numpy as np

from aot.errors import Problem, UnsupportedError, UsageError, call_place
from aot.frontend.check import CONVERTED_CUSTOM
from aot.frontend.flatbuffer import FlexbufferError, Scalar, read_map
from aot.frontend.tflite.converter_index import FILES
from aot.frontend.view import MAX_TENSOR_BYTES, OperatorView, stored_bytes
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType
from aot.numerics.fixed_point import activation_range, is_clamp_activation
from aot.op.common.tensors import MOVABLE
from aot.op.tensor.shape import ReshapeAttrs, StridedSliceAttrs
from aot.relay.expr import Expr, Function, call, tensor_type
from aot.relay.state import Variable
from aot.support.dataclass import dataclass
from aot.support.dtype import known_dtypes


@dataclass(frozen=True, slots=True)
class Blocks:
    """Weights [O, K] with a scale for each block of `size` along K: float32 [O, K / size]."""

    size: int
    scales: Array


class ConvertContext(Protocol):
    """The queries that a converter may ask the graph walk."""

    @property
    def oracle(self) -> str:
        """ "litert" or "tflm": whose rounding is requested."""

    @property
    def to_the_letter(self) -> bool:
        """Whether faults of LiteRT's reference kernels are to be reproduced too (`--oracle litert-reference`)."""

    @property
    def is_legacy(self) -> bool:
        """Whether uint8 values of the file are shown as int8 (`aot.frontend.tflite.retyped`)."""

    def input(self, op: OperatorView, i: int) -> Expr | None:
        """Operand i as a relay expression; None if the operator leaves it out."""

    def tensor(self, op: OperatorView, index: int) -> Expr:
        """The value of a tensor of the graph by its index."""

    def constant(self, op: OperatorView, i: int) -> Array:
        """Operand i, which must be known at compile time (E1204 otherwise)."""

    def input_type(self, op: OperatorView, i: int) -> TensorType:
        """The type of operand i."""

    def output_type(self, op: OperatorView, i: int = 0) -> TensorType:
        """The declared element type and quantisation of result i, without dimensions: those follow from the operands."""

    def intermediate_type(self, op: OperatorView, i: int) -> TensorType:
        """The declared type of the operator's intermediate tensor i, which holds only quantisation parameters."""

    def output_shape(self, op: OperatorView, i: int = 0) -> tuple[int, ...] | None:
        """The declared shape of result i if the file fixes it, else None; for shapes that the operands leave open."""

    def blocks(self, op: OperatorView, i: int) -> Blocks | None:
        """How operand i is quantised in blocks; None if it is not."""

    def span(self, op: OperatorView) -> Span: ...

    def result_span(self, op: OperatorView, i: int) -> Span:
        """The origin of result i of an operator with several results."""

    def inline(self, op: OperatorView, subgraph: int) -> Sequence[Expr]:
        """The outputs of subgraph number `subgraph` of the file on the operands of `op`."""

    def subgraphs(
        self, op: OperatorView, indices: Sequence[int], args: Sequence[Expr], *, known: frozenset[int], loop: bool = False
    ) -> tuple[list[Function], list[Variable]]:
        """Subgraphs as functions of `args` and of the variables that any of them uses; args in `known` are constants inside.

        Variables that change are additional results, for a loop all variables.
        """

    def handed_on(self, index: int) -> frozenset[int]:
        """The indices i for which a subgraph's output i is its input i."""

    def operators_of(self, index: int) -> tuple[str, ...]:
        """The operators of subgraph number `index`, in their order."""

    def variable(self, op: OperatorView, i: int, type_: TensorType | None = None) -> Variable:
        """The persistent tensor behind operand i: a tensor that is_variable, or the resource of a handle.

        `type_` is the type of a resource that has not been used before.
        """

    def own_variable(self, op: OperatorView, name: str, initial: Array, quant: QuantParams | None = None) -> Variable:
        """A persistent tensor that belongs to the operator and is not a tensor of the file."""

    def resource_id(self, name: str) -> int:
        """The number of a resource, which is the value of its handles."""

    def initialize(self, op: OperatorView, subgraph: int) -> None:
        """Set variables' initial values from a subgraph that runs once before everything else."""


class ForwardingContext:
    """A ConvertContext that forwards every query; subclasses override some."""

    def __init__(self, ctx: ConvertContext) -> None:
        self._ctx = ctx

    @property
    def oracle(self) -> str:
        return self._ctx.oracle

    @property
    def to_the_letter(self) -> bool:
        return self._ctx.to_the_letter

    @property
    def is_legacy(self) -> bool:
        return self._ctx.is_legacy

    def input(self, op: OperatorView, i: int) -> Expr | None:
        return self._ctx.input(op, i)

    def tensor(self, op: OperatorView, index: int) -> Expr:
        return self._ctx.tensor(op, index)

    def constant(self, op: OperatorView, i: int) -> Array:
        return self._ctx.constant(op, i)

    def input_type(self, op: OperatorView, i: int) -> TensorType:
        return self._ctx.input_type(op, i)

    def output_type(self, op: OperatorView, i: int = 0) -> TensorType:
        return self._ctx.output_type(op, i)

    def intermediate_type(self, op: OperatorView, i: int) -> TensorType:
        return self._ctx.intermediate_type(op, i)

    def output_shape(self, op: OperatorView, i: int = 0) -> tuple[int, ...] | None:
        return self._ctx.output_shape(op, i)

    def blocks(self, op: OperatorView, i: int) -> Blocks | None:
        return self._ctx.blocks(op, i)

    def span(self, op: OperatorView) -> Span:
        return self._ctx.span(op)

    def result_span(self, op: OperatorView, i: int) -> Span:
        return self._ctx.result_span(op, i)

    def inline(self, op: OperatorView, subgraph: int) -> Sequence[Expr]:
        return self._ctx.inline(op, subgraph)

    def subgraphs(
        self, op: OperatorView, indices: Sequence[int], args: Sequence[Expr], *, known: frozenset[int], loop: bool = False
    ) -> tuple[list[Function], list[Variable]]:
        return self._ctx.subgraphs(op, indices, args, known=known, loop=loop)

    def handed_on(self, index: int) -> frozenset[int]:
        return self._ctx.handed_on(index)

    def operators_of(self, index: int) -> tuple[str, ...]:
        return self._ctx.operators_of(index)

    def variable(self, op: OperatorView, i: int, type_: TensorType | None = None) -> Variable:
        return self._ctx.variable(op, i, type_)

    def own_variable(self, op: OperatorView, name: str, initial: Array, quant: QuantParams | None = None) -> Variable:
        return self._ctx.own_variable(op, name, initial, quant)

    def resource_id(self, name: str) -> int:
        return self._ctx.resource_id(name)

    def initialize(self, op: OperatorView, subgraph: int) -> None:
        self._ctx.initialize(op, subgraph)


Converter = Callable[[ConvertContext, OperatorView], Expr | Sequence[Expr]]

EVERY = " ".join(MOVABLE)
"""Types whose elements can be moved, whatever they mean."""

_ALL = ("int4", *MOVABLE[:-2], "uint64", "float16", "float32", "complex64")


def _are_types(types: str) -> bool:
    return all(t in known_dtypes() for word in types.split() for t in word.split("*"))


def _order(types: str) -> tuple[int, ...]:
    """Types in the order of EVERY, by data first."""
    return tuple(_ALL.index(t) for t in types.split("*"))


@dataclass(frozen=True, slots=True)
class Support:
    """Facts about a TFLite operator for the user: the element types of its data (`int8*int4`: data and weights), the relay
    operators that it becomes, and the oracles whose results are reproduced.
    """

    types: tuple[str, ...]
    through: tuple[str, ...]
    oracle: str = "LiteRT"
    oracles: tuple[str, ...] = ("litert", "tflm")


CONVERTERS: dict[str, Converter] = {}
"""TFLite operator name -> converter, for imported files."""

SUPPORT: dict[str, Support] = {}
"""TFLite operator name -> its support, for imported files."""


def converter_of(opcode: str) -> Converter | None:
    """The converter of an operator, `CONV_2D` or `CUSTOM:Mine`, if there is one."""
    if opcode not in CONVERTERS and opcode in FILES:
        importlib.import_module(f"aot.frontend.tflite.{FILES[opcode]}")
    return CONVERTERS.get(opcode)


def load_all() -> None:
    """Import the converters of all operators."""
    for file in sorted(set(FILES.values())):
        importlib.import_module(f"aot.frontend.tflite.{file}")


def _enter_custom(opcode: str) -> None:
    if opcode.startswith("CUSTOM:"):
        CONVERTED_CUSTOM.add(opcode.removeprefix("CUSTOM:"))


for _opcode in FILES:
    _enter_custom(_opcode)


def from_tflite(
    opcode: str, types: str, through: str, *, oracle: str = "LiteRT", oracles: tuple[str, ...] = ()
) -> Callable[[Converter], Converter]:
    """Register a converter for an operator, `CONV_2D` or `CUSTOM:Mine`; `types` and `through` are words, as in `Support`.

    UsageError E5102 if the operator has one already, E5112 if the arguments are not words.
    """
    if not all(isinstance(text, str) for text in (opcode, types, through)) or not opcode or not _are_types(types):
        message = "from_tflite needs an operator, element types and names of relay operators, all as words, not "
        raise UsageError(Problem("E5112", message + f"{opcode!r}, {types!r}, {through!r}", call_place()))

    def register(func: Converter) -> Converter:
        if converter_of(opcode) is not None:
            raise UsageError(Problem("E5102", f"there are two converters for {opcode}", call_place()))
        _enter_custom(opcode)
        CONVERTERS[opcode] = func
        run_by = oracles or (("tflm",) if oracle == "TFLM" else ("litert", "tflm") if "LiteRT" in oracle else ("litert",))
        SUPPORT[opcode] = Support(tuple(sorted(types.split(), key=_order)), tuple(through.split()), oracle, run_by)
        return func

    return register


def operand(ctx: ConvertContext, op: OperatorView, i: int) -> Expr:
    """Operand i, which must be present."""
    expr = ctx.input(op, i)
    if expr is None:
        unsupported(ctx, op, f"operand {i} is missing", code="E1205")
    return expr


def unsupported(ctx: ConvertContext, op: OperatorView, message: str, *, code: str = "E1203") -> NoReturn:
    """Refuse this operator, naming it and its tensor."""
    raise UnsupportedError(Problem(code, message, str(ctx.span(op))))


def require_dtype(
    ctx: ConvertContext, op: OperatorView, type_: TensorType, allowed: Collection[str], *, what: str = "data"
) -> None:
    """Refuse element types other than `allowed`."""
    if type_.dtype not in allowed:
        unsupported(ctx, op, f"{what} of {type_.dtype} is not supported; only {', '.join(sorted(allowed))}", code="E1202")


def require_room(ctx: ConvertContext, op: OperatorView, shape: Sequence[int], dtype: str, *, what: str) -> None:
    """Refuse an array of the converter's own, sized by an option of the file, that exceeds the limit for a tensor."""
    size = stored_bytes(dtype, prod(shape))
    if size > MAX_TENSOR_BYTES:
        unsupported(ctx, op, f"{what} of shape {list(shape)} needs {size} bytes, more than {MAX_TENSOR_BYTES}", code="E1216")


def _why_zero(type_: TensorType) -> str:
    """The origin of a scale of 0 with 16 bits, and the remedy; the file's check accepts it for constants of zeros."""
    if type_.dtype != "int16" or type_.quant is None or type_.quant.scale[0] != 0:
        return ""
    origin = "from a constant of zeros as in normalisations with 16-bit activations"
    return f" {origin}, which LiteRT does not run: keep the normalisation in float or int8"


def require_quant(
    ctx: ConvertContext, op: OperatorView, type_: TensorType, *, what: str = "data", may_be_zero: bool = False
) -> tuple[float, int]:
    """(scale, zero point) of a per-tensor quantised operand; the scale must be positive.

    `may_be_zero`: scale 0, which the file may give to constants of zeros, is accepted as well.
    """
    quant = type_.quant
    if quant is None:
        unsupported(ctx, op, f"{what} of {type_.dtype} has no quantisation parameters", code="E1206")
    if len(quant.scale) != 1:
        unsupported(ctx, op, f"{what} is quantised per channel", code="E1223")
    if not 0 < quant.scale[0] < float("inf") and not (may_be_zero and quant.scale[0] == 0):
        unsupported(ctx, op, f"{what} has scale {quant.scale[0]}{_why_zero(type_)}", code="E1226")
    return quant.scale[0], quant.zero_point[0]


def require_alike(
    ctx: ConvertContext, op: OperatorView, types: Sequence[TensorType], allowed: Collection[str], *, may_be_zero: bool = False
) -> tuple[tuple[float, int], ...]:
    """(scale, zero point) of each of `types`, which must all have the first one's element type, one of `allowed`.

    `may_be_zero`: see `require_quant`; does not apply to the last one, the result.
    """
    for type_ in types:
        require_dtype(ctx, op, type_, {types[0].dtype} & set(allowed) or {"int8"})
    operands = (require_quant(ctx, op, t, may_be_zero=may_be_zero) for t in types[:-1])
    return (*operands, require_quant(ctx, op, types[-1]))


def require_rows(ctx: ConvertContext, op: OperatorView, data: TensorType, *, most: int) -> None:
    """Refuse data without a last axis of 1 to `most` elements."""
    if not data.shape or not 0 < data.shape[-1] <= most:
        unsupported(ctx, op, f"rows of 1 to {most} elements are supported")


def require_same_quant(ctx: ConvertContext, op: OperatorView, a: TensorType, b: TensorType) -> None:
    """Refuse an operator that would have to rescale, which TFLite does not do here either."""
    if a.quant is None and b.quant is None:
        return
    if not have_same_quant(a.quant, b.quant):
        unsupported(ctx, op, "input and output differ in scale or zero point", code="E1227")


def have_same_quant(a: QuantParams | None, b: QuantParams | None) -> bool:
    """Whether both quantisations give the same values; with scale 0 all values are zero, which any scale has."""
    if a is None or b is None or a.zero_point != b.zero_point:
        return a is b
    return a.scale == b.scale or (0.0,) in (a.scale, b.scale)


def fused_range(ctx: ConvertContext, op: OperatorView, out_type: TensorType) -> tuple[int, int]:
    """The clamp of the operator's fused activation in quantised values of its output."""
    activation = op.option("fused_activation_function")
    if not is_clamp_activation(activation):
        unsupported(ctx, op, f"the fused activation {activation} is not supported")
    return activation_range(activation, out_type)


# The options of custom operators: a FlexBuffers map, or the numbers of a C struct; every entry is checked before use.


class CustomOptions:
    """The options of one operator; E1116 if they cannot be read or lack one that is requested, E1122 for one out of range."""

    def __init__(self, ctx: ConvertContext, op: OperatorView) -> None:
        self._ctx, self._op = ctx, op
        try:
            self._found = read_map(op.custom_options)
        except FlexbufferError as error:
            unsupported(ctx, op, f"its options cannot be read: {error}", code="E1116")

    def _get(self, name: str, default: Scalar | None) -> Scalar:
        value = self._found.get(name, default)
        if value is None:
            unsupported(self._ctx, self._op, f"its options lack {name}", code="E1116")
        return value

    def integer(self, name: str, low: int, high: int, *, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self._get(name, default)
        if int(value) != value or not low <= value <= high:
            unsupported(self._ctx, self._op, f"its option {name} is {value}, not a number from {low} to {high}", code="E1122")
        return int(value)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """True or false."""
        return bool(self._get(name, default))

    def real(self, name: str, *, default: float | None = None) -> float:
        """A number."""
        return float(self._get(name, default))


PADDING_NAMES = {1: "SAME", 2: "VALID"}
"""TfLitePadding."""
ACTIVATION_NAMES = {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
"""TfLiteFusedActivation, limited to clamps."""


def struct_options(ctx: ConvertContext, op: OperatorView, number: int) -> tuple[int, ...]:
    """The first `number` int32 of options that are a LiteRT struct such as `TfLitePoolParams`; E1116 for fewer."""
    data = bytes(op.custom_options)
    if len(data) < 4 * number:
        unsupported(ctx, op, f"its options have {len(data)} bytes, not {4 * number}", code="E1116")
    return struct.unpack_from(f"<{number}i", data)


def padding_name(ctx: ConvertContext, op: OperatorView, padding: int) -> str:
    """SAME or VALID; E1122 for another number."""
    if padding not in PADDING_NAMES:
        unsupported(ctx, op, f"its padding is {padding}, neither 1 (SAME) nor 2 (VALID)", code="E1122")
    return PADDING_NAMES[padding]


def steps_and_window(ctx: ConvertContext, op: OperatorView, *pairs: tuple[int, int]) -> None:
    """E1122 for a stride or an extent of a window below 1."""
    if min(n for pair in pairs for n in pair) < 1:
        unsupported(ctx, op, f"strides or window {', '.join(map(str, pairs))} not supported", code="E1122")


def constant_ints(ctx: ConvertContext, op: OperatorView, i: int) -> list[int]:
    """Operand i, a constant, as a flat list."""
    return [int(n) for n in ctx.constant(op, i).ravel()]


def one_int(ctx: ConvertContext, op: OperatorView, i: int) -> int:
    """Operand i, a constant of one element (E1122 otherwise)."""
    values = constant_ints(ctx, op, i)
    if len(values) != 1:
        unsupported(ctx, op, f"operand {i} must be a scalar, but has {len(values)} elements", code="E1130")
    return values[0]


def normalized_axis(ctx: ConvertContext, op: OperatorView, axis: int, rank: int) -> int:
    """`axis` counted from the front; E1122 if there is no such dimension."""
    if not -rank <= axis < rank:
        unsupported(ctx, op, f"axis {axis} is out of range for {rank} dimensions", code="E1126")
    return axis % rank


def reshaped(expr: Expr, shape: Sequence[int], span: Span) -> Expr:
    """`expr` reshaped; unchanged if the shape matches."""
    if tensor_type(expr).shape == tuple(shape):
        return expr
    return call("reshape", [expr], ReshapeAttrs(tuple(shape)), span=span)


def normalized_axes(axes: Array, rank: int) -> tuple[int, ...]:
    """Distinct axes in order; negative ones count from the end. ValueError for an invalid axis."""
    positions = {int(a) + rank if a < 0 else int(a) for a in np.atleast_1d(axes).ravel()}
    if any(not 0 <= a < rank for a in positions):
        raise ValueError(f"axes {sorted(positions)} of {rank} dimensions")
    return tuple(sorted(positions))


def constant_axes(ctx: ConvertContext, op: OperatorView, i: int, rank: int) -> tuple[int, ...]:
    """Operand i, a constant, as axes (E1122 for an invalid one)."""
    try:
        return normalized_axes(ctx.constant(op, i), rank)
    except ValueError as error:
        unsupported(ctx, op, str(error), code="E1126")


def is_plain(*types: TensorType) -> bool:
    """Whether operands are plain numbers, not quantised values."""
    return all(t.dtype not in ("int8", "uint8", "int16") or t.quant is None for t in types)


def slice_of(ctx: ConvertContext, op: OperatorView, data: Expr, positions: Sequence[range]) -> Expr:
    """The elements of `data` at these positions of each dimension; `data` itself if that is all of them."""
    shape = tensor_type(data).shape
    if all(p == range(n) for p, n in zip(positions, shape, strict=True)):
        return data
    begin = tuple(p.start if len(p) else 0 for p in positions)
    attrs = StridedSliceAttrs(begin, tuple(p.step for p in positions), tuple(map(len, positions)))
    return call("strided_slice", [data], attrs, span=ctx.span(op))
