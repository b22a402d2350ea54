"""Converters: how a TFLite operator becomes relay calls. The functions themselves live in the operators' files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from aot.errors import Problem, UnsupportedError, UsageError
from aot.frontend.check import CONVERTED_CUSTOM
from aot.frontend.view import OperatorView
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType
from aot.op import load_converter, operator_index
from aot.relay.expr import Expr, Function
from aot.relay.state import Variable
from aot.support.caller import call_place
from aot.support.dataclass import dataclass
from aot.support.dtype import known_dtypes


@dataclass(frozen=True, slots=True)
class Blocks:
    """Weights [O, K] with a scale for each block of `size` along K: float32 [O, K / size]."""

    size: int
    scales: Array


class ConvertContext(Protocol):
    """What a converter may ask of the graph walk."""

    @property
    def oracle(self) -> str:
        """ "litert" or "tflm": whose rounding is requested."""

    @property
    def to_the_letter(self) -> bool:
        """Whether what LiteRT's reference kernels alone do wrong is requested too (`--oracle litert-reference`)."""

    @property
    def is_legacy(self) -> bool:
        """Whether uint8 values of the file are shown as int8 (`aot.op.common.uint8`)."""

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
        """The declared shape of result i where the file means it, else None; for what the operands leave open."""

    def blocks(self, op: OperatorView, i: int) -> Blocks | None:
        """How operand i is quantised in blocks; None if it is not."""

    def span(self, op: OperatorView) -> Span: ...

    def result_span(self, op: OperatorView, i: int) -> Span:
        """Where result i of an operator with several results comes from."""

    def inline(self, op: OperatorView, subgraph: int) -> Sequence[Expr]:
        """The outputs of subgraph number `subgraph` of the file on the operands of `op`."""

    def subgraphs(
        self, op: OperatorView, indices: Sequence[int], args: Sequence[Expr], *, known: frozenset[int], loop: bool = False
    ) -> tuple[list[Function], list[Variable]]:
        """Subgraphs as functions of `args` and of the variables that any of them uses; args in `known` are constants inside.

        Of the variables those that change are further results, of a loop all of them.
        """

    def handed_on(self, index: int) -> frozenset[int]:
        """The indices i for which a subgraph's output i is its input i."""

    def operators_of(self, index: int) -> tuple[str, ...]:
        """The operators of subgraph number `index`, in their order."""

    def variable(self, op: OperatorView, i: int, type_: TensorType | None = None) -> Variable:
        """The persistent tensor behind operand i: a tensor that is_variable, or what the handle of a resource stands for.

        `type_` is that of a resource that nothing has named before.
        """

    def own_variable(self, op: OperatorView, name: str, initial: Array, quant: QuantParams | None = None) -> Variable:
        """A persistent tensor that belongs to the operator and is not a tensor of the file."""

    def resource_id(self, name: str) -> int:
        """The number of a resource, which is the value of its handles."""

    def initialize(self, op: OperatorView, subgraph: int) -> None:
        """Let a subgraph, which runs once before everything else, say with what values variables begin."""


class ForwardingContext:
    """A ConvertContext that passes every question on; a class derived from it answers some in another way."""

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

EVERY = "bool int8 uint8 int16 uint16 int32 uint32 int64 float16 float32"
"""Types whose elements are moved, whatever they mean."""

_ALL = ("int4", *EVERY.split()[:-2], "uint64", "float16", "float32", "complex64")


def _are_types(types: str) -> bool:
    return all(t in known_dtypes() for word in types.split() for t in word.split("*"))


def _order(types: str) -> tuple[int, ...]:
    """Types in the order of EVERY, by data first."""
    return tuple(_ALL.index(t) for t in types.split("*"))


@dataclass(frozen=True, slots=True)
class Support:
    """What is said of a TFLite operator: the element types of its data (`int8*int4`: data and weights), the relay operators that
    it becomes, and whose results are reproduced.
    """

    types: tuple[str, ...]
    through: tuple[str, ...]
    oracle: str = "LiteRT"


CONVERTERS: dict[str, Converter] = {}
"""TFLite operator name -> converter, as far as their files are imported."""

SUPPORT: dict[str, Support] = {}
"""TFLite operator name -> what is supported of it, as far as their files are imported."""


def converter_of(opcode: str) -> Converter | None:
    """The converter of an operator, `CONV_2D` or `CUSTOM:Mine`, if there is one."""
    if opcode not in CONVERTERS:
        load_converter(opcode)
    return CONVERTERS.get(opcode)


def _enter_custom(opcode: str) -> None:
    if opcode.startswith("CUSTOM:"):
        CONVERTED_CUSTOM.add(opcode.removeprefix("CUSTOM:"))


for _opcode in operator_index.CONVERTERS:
    _enter_custom(_opcode)


def from_tflite(opcode: str, types: str, through: str, *, oracle: str = "LiteRT") -> Callable[[Converter], Converter]:
    """Register a converter of an operator, `CONV_2D` or `CUSTOM:Mine`; `types` and `through` are words, as in `Support`.

    UsageError E5102 if the operator has one, E5112 if the arguments are no words.
    """
    if not all(isinstance(text, str) for text in (opcode, types, through)) or not opcode or not _are_types(types):
        message = "from_tflite takes an operator, element types and names of relay operators, all as words, not "
        raise UsageError(Problem("E5112", message + f"{opcode!r}, {types!r}, {through!r}", call_place()))

    def register(func: Converter) -> Converter:
        if converter_of(opcode) is not None:
            raise UsageError(Problem("E5102", f"there are two converters for {opcode}", call_place()))
        _enter_custom(opcode)
        CONVERTERS[opcode] = func
        SUPPORT[opcode] = Support(tuple(sorted(types.split(), key=_order)), tuple(through.split()), oracle)
        return func

    return register


def operand(ctx: ConvertContext, op: OperatorView, i: int) -> Expr:
    """Operand i, which must be there."""
    expr = ctx.input(op, i)
    if expr is None:
        unsupported(ctx, op, f"operand {i} is missing", code="E1205")
    return expr


def unsupported(ctx: ConvertContext, op: OperatorView, message: str, *, code: str = "E1203") -> NoReturn:
    """Refuse this operator, naming it and its tensor."""
    raise UnsupportedError(Problem(code, message, str(ctx.span(op))))
