"""How a TFLite operator becomes relay calls: converters' queries to the graph walk, their registration, and their checks."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from math import prod
from typing import Any, NoReturn, Protocol

import numpy as np

from aot.errors import Problem, UnsupportedError, UsageError, call_place
from aot.frontend.tflite.check import CONVERTED_CUSTOM
from aot.frontend.tflite.converter_index import FILES
from aot.frontend.tflite.flatbuffer import FlexbufferError, Scalar, read_map
from aot.frontend.tflite.view import MAX_TENSOR_BYTES, OperatorView, stored_bytes
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType
from aot.numerics.fixed_point import activation_range, is_clamp_activation, quantize_multiplier, real_multiplier
from aot.op.common.tensors import MOVABLE
from aot.op.tensor import ReshapeAttrs, StridedSliceAttrs
from aot.relay.expr import Call, Constant, Expr, Function, call, const, tensor_type
from aot.relay.state import Variable
from aot.support.dataclass import dataclass
from aot.support.dtype import known_dtypes


@dataclass(frozen=True, slots=True)
class Blocks:
    """Weights [O, K] with a scale for each block of `size` along K: float32 [O, K / size]."""

    size: int
    scales: Array


class ConvertContext(Protocol):
    """What converters may ask the graph walk (aot.frontend.tflite.graph.GraphWalk, which says what each answer is)."""

    @property
    def oracle(self) -> str: ...
    @property
    def to_the_letter(self) -> bool: ...
    def input(self, op: OperatorView, i: int) -> Expr | None: ...
    def tensor(self, op: OperatorView, index: int) -> Expr: ...
    def constant(self, op: OperatorView, i: int) -> Array: ...
    def input_type(self, op: OperatorView, i: int) -> TensorType: ...
    def output_type(self, op: OperatorView, i: int = 0) -> TensorType: ...
    def intermediate_type(self, op: OperatorView, i: int) -> TensorType: ...
    def output_shape(self, op: OperatorView, i: int = 0) -> tuple[int, ...] | None: ...
    def blocks(self, op: OperatorView, i: int) -> Blocks | None: ...
    def span(self, op: OperatorView) -> Span: ...
    def result_span(self, op: OperatorView, i: int) -> Span: ...
    def inline(self, op: OperatorView, subgraph: int) -> Sequence[Expr]: ...
    def subgraphs(
        self, op: OperatorView, indices: Sequence[int], args: Sequence[Expr], *, known: frozenset[int], loop: bool = False
    ) -> tuple[list[Function], list[Variable]]: ...
    def handed_on(self, index: int) -> frozenset[int]: ...
    def operators_of(self, index: int) -> tuple[str, ...]: ...
    def variable(self, op: OperatorView, i: int, type_: TensorType | None = None) -> Variable: ...
    def own_variable(self, op: OperatorView, name: str, initial: Array) -> Variable: ...
    def resource_id(self, name: str) -> int: ...
    def initialize(self, op: OperatorView, subgraph: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Form:
    """Another form in which a converter sees some tensors: `type_of` gives the types (others it returns as they are), `array`
    the values of constants, `convert(x, source, target, span)` the values that are computed.
    """

    type_of: Callable[[TensorType], TensorType]
    array: Callable[[Array], Array]
    convert: Callable[[Expr, TensorType, TensorType, Span], Expr]


class Operator:
    """An operator of the file as its converter sees it: operands and results as relay, and checks that refuse the operator.

    `ctx` and `view` are the graph walk and the operator in the file.  Operands and results are shown in `forms`, one after the
    other; `order`: the positions in the file of operands 0, 1, ... (None: the same).
    """

    __slots__ = ("ctx", "forms", "inputs", "opcode", "oracle", "order", "outputs", "view")

    def __init__(
        self, ctx: ConvertContext, view: OperatorView, *, forms: tuple[Form, ...] = (), order: Sequence[int] | None = None
    ) -> None:
        self.ctx, self.view, self.forms, self.order = ctx, view, forms, order
        self.opcode, self.inputs, self.outputs = view.opcode, view.inputs, view.outputs
        self.oracle = ctx.oracle

    # What the file says.

    @property
    def span(self) -> Span:
        return self.ctx.span(self.view)

    def option(self, name: str) -> Any:
        return self.view.option(name)

    def _place(self, i: int) -> int:
        return i if self.order is None else self.order[i]

    def input(self, i: int) -> Expr | None:
        """Operand i; None if the operator leaves it out."""
        expr = self.ctx.input(self.view, self._place(i))
        if expr is None or not self.forms:
            return expr
        type_ = self.ctx.input_type(self.view, self._place(i))
        for form in self.forms:
            shown = form.type_of(type_)
            if shown is not type_ and isinstance(expr, Constant):
                expr = replace(const(form.array(np.asarray(expr.data)), quant=shown.quant), span=expr.span)
            elif shown is not type_:
                expr = form.convert(expr, type_, shown, expr.span)
            type_ = shown
        return expr

    def operand(self, i: int) -> Expr:
        """Operand i, which must be present."""
        expr = self.input(i)
        if expr is None:
            self.refuse(f"operand {i} is missing", code="E1205")
        return expr

    def operands(self, *positions: int) -> list[Expr]:
        """These operands, which must be present."""
        return [self.operand(i) for i in positions]

    def constant(self, i: int) -> Array:
        """Operand i, which must be known at compile time (E1204 otherwise)."""
        data = self.ctx.constant(self.view, self._place(i))
        if self.forms:
            type_ = self.ctx.input_type(self.view, self._place(i))
            for form in self.forms:
                shown = form.type_of(type_)
                data, type_ = data if shown is type_ else form.array(data), shown
        return data

    def type(self, i: int, allowed: Collection[str] | None = None, *, what: str = "data") -> TensorType:
        """The type of operand i, which must be one of `allowed` (None: any)."""
        return self._shown(self.ctx.input_type(self.view, self._place(i)), allowed, what)

    def types(self, *positions: int) -> list[TensorType]:
        """The types of these operands."""
        return [self.type(i) for i in positions]

    def result_type(self, i: int = 0, allowed: Collection[str] | None = None, *, what: str = "a result") -> TensorType:
        """The declared element type, one of `allowed`, and quantisation of result i; its dimensions follow from the operands."""
        return self._shown(self.ctx.output_type(self.view, i), allowed, what)

    def _shown(self, type_: TensorType, allowed: Collection[str] | None, what: str) -> TensorType:
        for form in self.forms:
            type_ = form.type_of(type_)
        if allowed is not None:
            self.require_dtype(type_, allowed, what=what)
        return type_

    def result_shape(self, i: int = 0) -> tuple[int, ...] | None:
        """The declared shape of result i if the file fixes it, else None; for shapes that the operands leave open."""
        return self.ctx.output_shape(self.view, i)

    def variable(self, i: int, type_: TensorType | None = None) -> Variable:
        """See `ConvertContext.variable`."""
        return self.ctx.variable(self.view, i, type_)

    def own_variable(self, name: str, initial: Array) -> Variable:
        """See `ConvertContext.own_variable`."""
        return self.ctx.own_variable(self.view, name, initial)

    def ints(self, i: int) -> list[int]:
        """Operand i, a constant, as a flat list."""
        return [int(n) for n in self.constant(i).ravel()]

    def one_int(self, i: int) -> int:
        """Operand i, a constant of one element (E1130 otherwise)."""
        values = self.ints(i)
        if len(values) != 1:
            self.refuse(f"operand {i} must be a scalar, but has {len(values)} elements", code="E1130")
        return values[0]

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front; E1126 if there is no such dimension."""
        if not -rank <= axis < rank:
            self.refuse(f"axis {axis} is out of range for {rank} dimensions", code="E1126")
        return axis % rank

    def axes(self, i: int, rank: int) -> tuple[int, ...]:
        """Operand i, a constant, as axes (E1126 for an invalid one)."""
        try:
            return normalized_axes(self.constant(i), rank)
        except ValueError as error:
            self.refuse(str(error), code="E1126")

    # Calls, with the operator as their origin.

    def call(self, name: str, args: Sequence[Expr], attrs: Any = None) -> Call:
        """A call of the relay operator `name`."""
        return call(name, args, attrs, span=self.span)

    def reshaped(self, expr: Expr, shape: Sequence[int]) -> Expr:
        """`expr` reshaped; unchanged if the shape matches."""
        if tensor_type(expr).shape == tuple(shape):
            return expr
        return self.call("reshape", [expr], ReshapeAttrs(tuple(shape)))

    def slice_of(self, data: Expr, positions: Sequence[range]) -> Expr:
        """The elements of `data` at these positions of each dimension; `data` itself if that is all of them."""
        shape = tensor_type(data).shape
        if all(p == range(n) for p, n in zip(positions, shape, strict=True)):
            return data
        begin = tuple(p.start if len(p) else 0 for p in positions)
        attrs = StridedSliceAttrs(begin, tuple(p.step for p in positions), tuple(map(len, positions)))
        return self.call("strided_slice", [data], attrs)

    # Checks, which refuse the operator.

    def refuse(self, message: str, *, code: str = "E1203") -> NoReturn:
        """Refuse this operator, naming it and its tensor."""
        raise UnsupportedError(Problem(code, message, str(self.span)))

    def require_dtype(self, type_: TensorType, allowed: Collection[str], *, what: str = "data") -> None:
        """Refuse element types other than `allowed`."""
        if type_.dtype not in allowed:
            self.refuse(f"{what} of {type_.dtype} is not supported; only {', '.join(sorted(allowed))}", code="E1202")

    def require_room(self, shape: Sequence[int], dtype: str, *, what: str) -> None:
        """Refuse an array of the converter's own, sized by an option of the file, that exceeds the limit for a tensor."""
        size = stored_bytes(dtype, prod(shape))
        if size > MAX_TENSOR_BYTES:
            self.refuse(f"{what} of shape {list(shape)} needs {size} bytes, more than {MAX_TENSOR_BYTES}", code="E1216")

    def quant(self, type_: TensorType, *, what: str = "data", may_be_zero: bool = False) -> tuple[float, int]:
        """(scale, zero point) of a per-tensor quantised operand; the scale must be positive.

        `may_be_zero`: scale 0, which the file may give to constants of zeros, is accepted as well.
        """
        quant = type_.quant
        if quant is None:
            self.refuse(f"{what} of {type_.dtype} has no quantisation parameters", code="E1206")
        if len(quant.scale) != 1:
            self.refuse(f"{what} is quantised per channel", code="E1223")
        if not 0 < quant.scale[0] < float("inf") and not (may_be_zero and quant.scale[0] == 0):
            self.refuse(f"{what} has scale {quant.scale[0]}{_why_zero(type_)}", code="E1226")
        return quant.scale[0], quant.zero_point[0]

    def quants(
        self, types: Sequence[TensorType], allowed: Collection[str], *, may_be_zero: bool = False
    ) -> tuple[tuple[float, int], ...]:
        """(scale, zero point) of each of `types`, which must all have the first one's element type, one of `allowed`.

        `may_be_zero`: see `quant`; does not apply to the last one, the result.
        """
        for type_ in types:
            self.require_dtype(type_, {types[0].dtype} & set(allowed) or {"int8"})
        return (*(self.quant(t, may_be_zero=may_be_zero) for t in types[:-1]), self.quant(types[-1]))

    def require_symmetric(self, dtype: str, *zero_points: int, by: str = "TFLite") -> None:
        """Refuse int16 values with a zero point."""
        if dtype == "int16" and any(zero_points):
            self.refuse(f"int16 with a non-zero zero point is not supported ({by} rejects it too)", code="E1224")

    def real_multiplier(self, dtype: str, factors: tuple[float, ...], divisors: tuple[float, ...] = (1.0,)) -> float:
        """Factors over divisors, with the roundings of the reference's kernel for this type."""
        return real_multiplier(self.opcode, dtype, factors, divisors, oracle=self.oracle)

    def multiplier(self, dtype: str, factors: tuple[float, ...], divisors: tuple[float, ...] = (1.0,)) -> tuple[int, int]:
        """The same as (multiplier, shift)."""
        return quantize_multiplier(self.real_multiplier(dtype, factors, divisors))

    def require_rows(self, data: TensorType, *, most: int) -> None:
        """Refuse data without a last axis of 1 to `most` elements."""
        if not data.shape or not 0 < data.shape[-1] <= most:
            self.refuse(f"rows of 1 to {most} elements are supported")

    def require_same_quant(self, a: TensorType, b: TensorType) -> None:
        """Refuse an operator that would have to rescale, which TFLite does not do here either."""
        if (a.quant is not None or b.quant is not None) and not have_same_quant(a.quant, b.quant):
            self.refuse("input and output differ in scale or zero point", code="E1227")

    def fused_range(self, out_type: TensorType) -> tuple[int, int]:
        """The clamp of the operator's fused activation in quantised values of its output."""
        activation = self.option("fused_activation_function")
        if not is_clamp_activation(activation):
            self.refuse(f"the fused activation {activation} is not supported")
        return activation_range(activation, out_type)


def _why_zero(type_: TensorType) -> str:
    """The origin of a scale of 0 with 16 bits, and the remedy; the file's check accepts it for constants of zeros."""
    if type_.dtype != "int16" or type_.quant is None or type_.quant.scale[0] != 0:
        return ""
    origin = "from a constant of zeros as in normalisations with 16-bit activations"
    return f" {origin}, which LiteRT does not run: keep the normalisation in float or int8"


def have_same_quant(a: QuantParams | None, b: QuantParams | None) -> bool:
    """Whether both quantisations give the same values; with scale 0 all values are zero, which any scale has."""
    if a is None or b is None or a.zero_point != b.zero_point:
        return a is b
    return a.scale == b.scale or (0.0,) in (a.scale, b.scale)


def normalized_axes(axes: Array, rank: int) -> tuple[int, ...]:
    """Distinct axes in order; negative ones count from the end. ValueError for an invalid axis."""
    positions = {int(a) + rank if a < 0 else int(a) for a in np.atleast_1d(axes).ravel()}
    if any(not 0 <= a < rank for a in positions):
        raise ValueError(f"axes {sorted(positions)} of {rank} dimensions")
    return tuple(sorted(positions))


def is_plain(*types: TensorType) -> bool:
    """Whether operands are plain numbers, not quantised values."""
    return all(t.dtype not in ("int8", "uint8", "int16") or t.quant is None for t in types)


Converter = Callable[[Operator], Expr | Sequence[Expr]]
"""The operator's result, or its results."""
PluginConverter = Callable[[ConvertContext, OperatorView], Expr | Sequence[Expr]]

EVERY = " ".join(MOVABLE)
"""Types whose elements can be moved, whatever they mean."""

EITHER = "LiteRT, or TFLM with `--oracle tflm`"
"""The oracle of operators that the two compute differently."""

CLAMPS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
"""Activations that are a clamp."""

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


def converter(
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


# For plug-ins, whose converters are functions of the graph walk and the operator (docs/plugins.md).


def from_tflite(
    opcode: str, types: str, through: str, *, oracle: str = "LiteRT", oracles: tuple[str, ...] = ()
) -> Callable[[PluginConverter], PluginConverter]:
    """Register a converter of a plug-in, `convert(ctx, op)`; see `converter`."""
    enter = converter(opcode, types, through, oracle=oracle, oracles=oracles)

    def register(func: PluginConverter) -> PluginConverter:
        enter(lambda op: func(op.ctx, op.view))
        return func

    return register


def operand(ctx: ConvertContext, op: OperatorView, i: int) -> Expr:
    """Operand i, which must be present."""
    return Operator(ctx, op).operand(i)


def unsupported(ctx: ConvertContext, op: OperatorView, message: str, *, code: str = "E1203") -> NoReturn:
    """Refuse this operator, naming it and its tensor."""
    Operator(ctx, op).refuse(message, code=code)


def require_dtype(
    ctx: ConvertContext, op: OperatorView, type_: TensorType, allowed: Collection[str], *, what: str = "data"
) -> None:
    """Refuse element types other than `allowed`."""
    Operator(ctx, op).require_dtype(type_, allowed, what=what)


def require_quant(ctx: ConvertContext, op: OperatorView, type_: TensorType, *, what: str = "data") -> tuple[float, int]:
    """(scale, zero point) of a per-tensor quantised operand; the scale must be positive."""
    return Operator(ctx, op).quant(type_, what=what)


# The options of custom operators: a FlexBuffers map, or the numbers of a C struct; every entry is checked before use.


class CustomOptions:
    """The options of one operator; E1116 if they cannot be read or lack one that is requested, E1122 for one out of range."""

    def __init__(self, op: Operator) -> None:
        self._op = op
        try:
            self._found = read_map(op.view.custom_options)
        except FlexbufferError as error:
            op.refuse(f"its options cannot be read: {error}", code="E1116")

    def get(self, name: str, default: Scalar | None = None) -> Scalar:
        """A number of any kind."""
        value = self._found.get(name, default)
        if value is None:
            self._op.refuse(f"its options lack {name}", code="E1116")
        return value

    def integer(self, name: str, low: int, high: int, *, default: int | None = None) -> int:
        """A whole number from `low` to `high`."""
        value = self.get(name, default)
        if int(value) != value or not low <= value <= high:
            self._op.refuse(f"its option {name} is {value}, not a number from {low} to {high}", code="E1122")
        return int(value)

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """True or false."""
        return bool(self.get(name, default))

    def real(self, name: str, *, default: float | None = None) -> float:
        """A number."""
        return float(self.get(name, default))


PADDING_NAMES = {1: "SAME", 2: "VALID"}
"""TfLitePadding."""
ACTIVATION_NAMES = {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6"}
"""TfLiteFusedActivation, limited to clamps."""


def struct_options(op: Operator, number: int) -> tuple[int, ...]:
    """The first `number` int32 of options that are a LiteRT struct such as `TfLitePoolParams`; E1116 for fewer."""
    data = bytes(op.view.custom_options)
    if len(data) < 4 * number:
        op.refuse(f"its options have {len(data)} bytes, not {4 * number}", code="E1116")
    return struct.unpack_from(f"<{number}i", data)


def padding_name(op: Operator, padding: int) -> str:
    """SAME or VALID; E1122 for another number."""
    if padding not in PADDING_NAMES:
        op.refuse(f"its padding is {padding}, neither 1 (SAME) nor 2 (VALID)", code="E1122")
    return PADDING_NAMES[padding]


def steps_and_window(op: Operator, *pairs: tuple[int, int]) -> None:
    """E1122 for a stride or an extent of a window below 1."""
    if min(n for pair in pairs for n in pair) < 1:
        op.refuse(f"strides or window {', '.join(map(str, pairs))} not supported", code="E1122")
