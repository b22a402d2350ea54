"""The te compiler: from fused relay functions to PrimFuncs with packed constants, in an order of execution."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from aot.errors import Problem, UnsupportedError, internal
from aot.executor.schedule import LayerCall, Schedule, TensorRef
from aot.ir.op import F_IS_VIEW, T_OP_PATTERN, Array, Op
from aot.ir.type import TensorType, TupleType
from aot.op.impl import Group, Lowered, select_impl
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, operands, post_order
from aot.support.names import NameSupply, c_identifier
from aot.target.target import Target


def group_of(func: Function) -> Group:
    """Find anchor and followers of a primitive function.

    The anchor is the first call of the highest pattern kind; the followers are the calls after it.  Where a call in front of the
    anchor belongs to the group too (an injective producer), the group is one for the generic path, and the last call is its anchor.
    """
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    kinds = [T_OP_PATTERN.get(c.op.name) for c in calls if isinstance(c.op, Op)]
    if len(kinds) != len(calls):
        raise internal("a primitive function holds operator calls only")
    best = kinds.index(max(kinds))
    if best > 0:
        return Group(func, calls[-1], ())
    return Group(func, calls[0], tuple(calls[1:]))


def lower_group(func: Function, target: Target, name: str) -> Lowered:
    """Choose a kernel for the group and build it (E1209 where no kernel takes it)."""
    group = group_of(func)
    impl = select_impl(group, target)
    if impl is None:
        what = str(getattr(group.anchor.op, "name", "?"))
        raise UnsupportedError(Problem("E1209", f"no kernel for {what} on {target.name}", str(group.anchor.span)))
    return impl.lower(group, target, name)


def compile_main(func: Function, target: Target, *, name: str) -> Schedule:
    """Lower every fused call of `func` (the main function after fuse_ops) in the order of the file's operators."""
    return _Compiler(func, target, name).schedule()


def execution_order(func: Function) -> list[Expr]:
    """All nodes, operands before users; among those that are ready, the one that stands first in the file."""
    order = post_order(func.body)
    position = {id(e): i for i, e in enumerate(order)}
    waiting = {id(e): len({id(o) for o in operands(e)}) for e in order}
    readers: dict[int, list[Expr]] = {}
    for e in order:
        for o in {id(o): o for o in operands(e)}.values():
            readers.setdefault(id(o), []).append(e)
    heap = [(_rank(e), position[id(e)]) for e in order if not waiting[id(e)]]
    heapq.heapify(heap)
    result: list[Expr] = []
    while heap:
        e = order[heapq.heappop(heap)[1]]
        result.append(e)
        for reader in readers.get(id(e), ()):
            waiting[id(reader)] -= 1
            if not waiting[id(reader)]:
                heapq.heappush(heap, (_rank(reader), position[id(reader)]))
    return result


def _rank(expr: Expr) -> int:
    """Index of the last operator of the file that went into a node."""
    return max(_op_indices(expr), default=-1)


def _op_indices(expr: Expr) -> Iterator[int]:
    if isinstance(expr, Call) and isinstance(expr.op, Function):
        for e in post_order(expr.op.body):
            yield from _op_indices(e)
    elif isinstance(expr, (Call, TupleGetItem)) and expr.span.op_index >= 0:
        yield expr.span.op_index


class _Compiler:
    """Gives tensors names and turns nodes into layer calls."""

    def __init__(self, func: Function, target: Target, name: str) -> None:
        self._func, self._target, self._name = func, target, name
        self._names = NameSupply()
        self._refs: dict[int, tuple[TensorRef, ...]] = {}
        self._views: dict[TensorRef, TensorRef] = {}
        self._constants: dict[TensorRef, Array] = {}
        self._calls: list[LayerCall] = []

    def schedule(self) -> Schedule:
        for var in self._func.params:
            self._refs[id(var)] = (self._ref(var, var.type, var.name),)
        inputs = tuple(self._refs[id(v)][0] for v in self._func.params)
        for expr in execution_order(self._func):
            if id(expr) not in self._refs:
                self._refs[id(expr)] = self._visit(expr)
        outputs = self._refs[id(self._func.body)]
        return Schedule(self._name, inputs, outputs, tuple(self._calls), self._views, self._constants)

    def _ref(self, expr: Expr, type_: TensorType, name: str) -> TensorRef:
        return TensorRef(self._names.fresh(c_identifier(name, default="tensor")), type_, expr.span.tensor)

    def _visit(self, expr: Expr) -> tuple[TensorRef, ...]:
        match expr:
            case Constant():
                ref = self._ref(expr, expr.type, expr.span.name or "constant")
                self._constants[ref] = expr.data
                return (ref,)
            case Call(op=Function()):
                return self._layer(expr)
            case Call(op=Op(name=op)) if F_IS_VIEW.find(op):
                assert isinstance(expr.type, TensorType)
                ref = self._ref(expr, expr.type, expr.span.name or op)
                self._views[ref] = self._one(expr.args[0])
                return (ref,)
            case Tuple():
                return tuple(self._one(f) for f in expr.fields)
            case TupleGetItem():
                return (self._refs[id(expr.value)][expr.index],)
            case Var() | Call():
                raise internal(f"{expr} is not bound or not fused", where=str(expr.span))

    def _one(self, expr: Expr) -> TensorRef:
        (ref,) = self._refs[id(expr)]
        return ref

    def _layer(self, call: Call) -> tuple[TensorRef, ...]:
        func = call.op
        assert isinstance(func, Function)
        lowered = lower_group(func, self._target, c_identifier(str(func.attrs.get("name", "layer"))))
        types = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
        outputs = tuple(self._ref(call, t, call.span.name or "layer") for t in types)
        self._calls.append(
            LayerCall(
                lowered.func,
                tuple(self._one(a) for a in call.args),
                outputs,
                dict(lowered.constants),
                span=call.span,
                ops=tuple(sorted(set(_op_indices(call)))),
            )
        )
        return outputs
