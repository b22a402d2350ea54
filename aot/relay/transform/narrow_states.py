"""Narrows states that the model keeps as float32 although it only ever stores dequantised values there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.ir.transform import PassContext, module_pass
from aot.relay.analysis import is_moved, moved_from
from aot.relay.expr import Call, Expr, Function, Var, again, call, const, is_call, make_tuple, rewrite, tensor_type, users
from aot.relay.interpreter import call_op, same_over_time
from aot.relay.state import STATE, result_exprs, state_of, state_vars
from aot.support.dtype import int_range, numpy_dtype

QUANTIZE, DEQUANTIZE = "qnn.quantize", "qnn.dequantize"


@module_pass(opt_level=1, law=same_over_time)
def narrow_states(module: IRModule, _context: PassContext, *, with_shared: bool = True) -> IRModule:
    """Store integers in states that a converter dequantised, and in the rows that are joined with them.

    `with_shared`: also narrow states that other signatures use; those are separate models with their own state.
    """
    main = module["main"]
    assert isinstance(main, Function)
    return module.with_function("main", with_narrow_states(main, with_shared=with_shared))


def with_narrow_states(main: Function, *, with_shared: bool = True) -> Function:
    """`main` with narrow states, or `main` itself if no state can be narrowed.

    A quantised streaming layer arrives as `q = quantize(concatenate(state, dequantize(x)))`; the new state is `dequantize` of a
    slice of q.  If the new state S is always dequantize(Q), the state becomes Q.  The initial value must be dequantize of some Q
    too, or be read only through a quantize that undoes the dequantize.  Then quantize moves through slices and concatenate to the
    dequantize that it undoes, which is proven here by trying all values.  The results stay bit-identical.
    """
    outputs, news = result_exprs(main)
    inputs, states = main.params[: len(main.params) - len(news)], []
    kept, olds, narrow = list[Expr](), list[Var](), dict[int, Expr]()
    readers = users(main)
    for state, var, new in zip(state_of(main), state_vars(main), news, strict=True):
        codes = None
        if is_call(new, DEQUANTIZE) and (with_shared or not state.shared):
            codes = _codes(state.initial, new)
            codes = _quantized(state.initial, var, new, readers) if codes is None else codes
        if isinstance(new, Call) and codes is not None:
            old = Var(var.name, tensor_type(new.args[0]), var.span)
            narrow[id(var)] = call(DEQUANTIZE, [old], new.attrs, span=var.span)
            state, var, new = replace(state, initial=codes), old, new.args[0]
        states.append(state)
        olds.append(var)
        kept.append(new)
    if not narrow:
        return main
    whole = Function((*inputs, *olds), make_tuple([*outputs, *kept]), {**main.attrs, STATE: tuple(states)})
    read, known = rewrite(whole, lambda expr: narrow.get(id(expr), expr)), set(map(id, olds))
    return rewrite(read, lambda expr: _integers(expr, known))


def _codes(initial: Array, new: Call) -> Array | None:
    """The integers that `new`, a call of dequantize, maps to a state's initial value; None if there are none."""
    type_ = tensor_type(new.args[0])
    every, values = _all_values(new)
    order = np.argsort(values, kind="stable")
    found = np.searchsorted(values[order], initial.reshape(-1)).clip(0, len(order) - 1)
    codes = every[order][found].reshape(type_.shape)
    return codes if values[order][found].tobytes() == np.ascontiguousarray(initial).tobytes() else None


def _quantized(initial: Array, var: Var, new: Call, readers: dict[int, list[Expr]]) -> Array | None:
    """The quantised initial value, if the state is read only through equal quantizes that undo `new`; else None."""
    found, todo = list[Call](), list[Expr | None](readers.get(id(var), []))
    while todo:
        expr = todo.pop()
        if expr is None or not (is_moved(expr) or is_call(expr, "concatenate", QUANTIZE)):
            return None
        if is_call(expr, QUANTIZE):
            found.append(expr)
        else:
            todo += readers.get(id(expr), [None])  # None: a result
    if not found or any(f.attrs != found[0].attrs for f in found) or not _undoes(found[0], new):
        return None
    whole = call(QUANTIZE, [const(initial, dtype="float32")], found[0].attrs)
    return np.asarray(call_op(whole, [initial]))


def _all_values(expr: Call) -> tuple[Array, Array]:
    """Every value that the operand of dequantize can have, and the dequantised values."""
    type_ = tensor_type(expr.args[0])
    lo, hi = int_range(type_.dtype)
    every = np.arange(lo, hi + 1).astype(numpy_dtype(type_.dtype))
    return every, np.asarray(call_op(call(DEQUANTIZE, [const(every, quant=type_.quant, dtype=type_.dtype)], expr.attrs), [every]))


def _undoes(quantize: Call, dequantize: Call) -> bool:
    """Whether quantize(dequantize(q)) is q for every q."""
    if tensor_type(dequantize.args[0]).dtype != quantize.attrs.dtype:
        return False
    every, values = _all_values(dequantize)
    return np.array_equal(call_op(call(QUANTIZE, [const(values, dtype="float32")], quantize.attrs), [values]), every)


def _integers(expr: Expr, states: set[int]) -> Expr:
    """A quantize of dequantised values, or of rows joined with a narrow state, without floats; other expressions unchanged."""
    if not is_call(expr, QUANTIZE):
        return expr
    data = expr.args[0]
    if not is_call(data, "concatenate"):
        return _undone(expr)
    if not any(is_call(o := moved_from(a), DEQUANTIZE) and id(o.args[0]) in states for a in data.args):
        return expr
    parts = [_undone(call(QUANTIZE, [a], expr.attrs, span=a.span)) for a in data.args]
    return replace(call("concatenate", parts, data.attrs, span=expr.span), type=expr.type)


def _undone(expr: Call) -> Expr:
    """quantize of a dequantised tensor, or of a slice of one, as the integers or their slice, if quantize undoes dequantize."""
    origin = moved_from(expr.args[0])
    if not is_call(origin, DEQUANTIZE) or not _undoes(expr, origin):
        return expr

    def integers(of: Expr) -> Expr:
        if of is origin:
            return origin.args[0]
        assert isinstance(of, Call)
        return again(of, [integers(of.args[0])])

    return integers(expr.args[0])
