"""float16 data in converters that do not know it: moved as the 16 bits that it is, or computed with as float32.

LiteRT's kernels of float16 convert each number to float32, compute, and round the result to float16 once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps

import numpy as np

from aot.frontend.view import OperatorView
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import TensorType
from aot.op.convert import ConvertContext, Converter, ForwardingContext
from aot.op.math.cast import CastAttrs
from aot.op.tensor.bitcast import BitcastAttrs
from aot.relay.expr import Constant, Expr, call, const, tensor_type
from aot.support.dataclass import dataclass

HALF = "float16"
LARGEST_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True, slots=True)
class _Form:
    """How a converter is shown float16 tensors: as tensors of `dtype`, that `there` and `back` lead to."""

    dtype: str
    there: Callable[[Array], Array]
    convert: Callable[[Expr, str, Span], Expr]


def _as_bits(x: Expr, dtype: str, span: Span) -> Expr:
    return call("bitcast", [x], BitcastAttrs(tensor_type(x).shape, dtype), span=span)


def _as_number(x: Expr, dtype: str, span: Span) -> Expr:
    return call("cast", [x], CastAttrs(dtype), span=span)


def rounded_to_half(x: Expr, span: Span) -> Expr:
    """float32 values as float16 has them."""
    return _as_number(_as_number(x, HALF, span), "float32", span)


_BITS = _Form("int16", lambda data: data.view(np.int16), _as_bits)
_NUMBERS = _Form("float32", lambda data: data.astype(np.float32), _as_number)


class _Shown(ForwardingContext):
    """Shows float16 tensors in another form."""

    def __init__(self, ctx: ConvertContext, form: _Form) -> None:
        super().__init__(ctx)
        self._form = form

    def _shown(self, type_: TensorType) -> TensorType:
        return replace(type_, dtype=self._form.dtype) if type_.dtype == HALF else type_

    def input(self, op: OperatorView, i: int) -> Expr | None:
        expr = self._ctx.input(op, i)
        if expr is None or self._ctx.input_type(op, i).dtype != HALF:
            return expr
        if isinstance(expr, Constant):
            return replace(const(self._form.there(np.asarray(expr.data))), span=expr.span)
        return self._form.convert(expr, self._form.dtype, expr.span)

    def constant(self, op: OperatorView, i: int) -> Array:
        data = self._ctx.constant(op, i)
        return self._form.there(data) if self._ctx.input_type(op, i).dtype == HALF else data

    def input_type(self, op: OperatorView, i: int) -> TensorType:
        return self._shown(self._ctx.input_type(op, i))

    def output_type(self, op: OperatorView, i: int = 0) -> TensorType:
        return self._shown(self._ctx.output_type(op, i))


def _same(x: Expr) -> Expr:
    return x


def _through(form: _Form, convert: Converter, then: Callable[[Expr], Expr] = _same) -> Converter:
    @wraps(convert)
    def converter(ctx: ConvertContext, op: OperatorView) -> Expr | Sequence[Expr]:
        if HALF not in {ctx.input_type(op, i).dtype for i in range(len(op.inputs)) if op.input(i) >= 0}:
            return convert(ctx, op)
        found, span = convert(_Shown(ctx, form), op), ctx.span(op)
        results = list(found) if isinstance(found, Sequence) else [found]
        for i, expr in enumerate(results):
            if ctx.output_type(op, i).dtype == HALF:
                results[i] = form.convert(then(expr), HALF, span)
        return results if isinstance(found, Sequence) else results[0]

    return converter


def moves_halves(convert: Converter) -> Converter:
    """The converter, which then takes float16 too: it sees int16."""
    return _through(_BITS, convert)


def widens_halves(convert: Converter, *, then: Callable[[Expr], Expr] = _same) -> Converter:
    """The converter, which then takes float16 too: it sees float32, to which operands are widened.

    Its float32 results are rounded after `then`.
    """
    return _through(_NUMBERS, convert, then)
