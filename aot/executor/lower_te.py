"""The te compiler: lowers fused relay functions to PrimFuncs with packed constants, in an order of execution."""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from aot.errors import Problem, UnsupportedError, internal
from aot.executor.candidates import CandidateModule, FusedModule, candidates, repeated_weights, with_cut_groups
from aot.executor.lowered import KernelCall, State, TensorRef
from aot.ir.op import F_IS_VIEW, Array, Op
from aot.ir.span import Span
from aot.ir.transform import PassContext, module_pass
from aot.ir.type import TensorType, TupleType
from aot.memory.liveness import Control
from aot.memory.order import Order, Work, lowest_peak_order
from aot.op.tensor import ConcatenateAttrs
from aot.relay import call, var
from aot.relay.analysis import results_of, trip_count
from aot.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, While, operands, post_order, result_types
from aot.relay.state import carried, input_vars, state_of, state_vars
from aot.relay.transform.partition import call_group
from aot.support.names import NameSupply, c_identifier
from aot.system.disk_memo import recall
from aot.topi.strategy import Lowered


@module_pass(required=True, phase=FusedModule)
def lower_te(module: FusedModule, _context: PassContext) -> CandidateModule:
    """Lower every fused call of main, in an order of execution, by all kernels that accept it; the module has the preferred one.

    In: a FusedModule after cut_groups.  Out: a CandidateModule.
    """
    config, drafts = module.config, module.cache.drafts
    mode = config.mode
    key = mode.fastest_only, mode.packed_only, mode.larger_kernels, mode.shares_functions, config.limits_ram, config.keeps_weights
    if key not in drafts:
        drafts[key] = replace(_Compiler(module).draft(), key=key)
    return replace(drafts[key], config=config, planning=module.planning)


class _Compiler:
    """Names tensors and turns nodes into layer calls."""

    def __init__(self, module: FusedModule) -> None:
        self._module, self._func = module, module.main
        self._names = NameSupply()
        self._refs: dict[int, tuple[TensorRef, ...]] = {}
        self._views: dict[TensorRef, TensorRef] = {}
        self._values: dict[TensorRef, Array] = {}
        self._calls: list[KernelCall] = []
        self._prim_funcs: dict[str, Lowered] = {}
        self._global_vars = NameSupply()
        self._controls: list[Control | None] = []
        self._conditions: list[TensorRef | None] = []
        self._variables: list[TensorRef] = []
        self._copies: dict[tuple[int, str], Function] = {}
        self._repeated = repeated_weights(self._func)
        self._orders: list[Order] = []
        self._computed_by = _last_calls(self._func)
        self._carried = carried(self._func)

    def draft(self) -> CandidateModule:
        for param in self._func.params:
            self._refs[id(param)] = (self._ref(param, param.type, param.name),)
        inputs = tuple(self._refs[id(v)][0] for v in input_vars(self._func))
        results = self._body(self._func)
        kept = state_of(self._func)
        outputs, news = results[: len(results) - len(kept)], results[len(results) - len(kept) :]
        olds = [self._one(v) for v in state_vars(self._func)]
        states = tuple(
            State(s.name, s.initial, old, new, s.shared, kept=n)
            for s, old, new, n in zip(kept, olds, news, self._carried.kept, strict=True)
        )
        if self._module.planning.io != "user":  # nothing outside the model sees them
            read = {t for c in self._calls for t in map(self._root, c.inputs)} | set(map(self._root, outputs))
            states = tuple(s for s in states if not s.shared or s.new is not s.old or s.old in read)
        return CandidateModule(
            {name: lowered.func for name, lowered in self._prim_funcs.items()},
            self._module.name,
            {name: found.constants for name, found in self._prim_funcs.items()},
            inputs=inputs,
            outputs=outputs,
            calls=tuple(self._calls),
            views=self._views,
            values=self._values,
            states=states,
            controls=tuple(c for c in self._controls if c is not None),
            conditions=tuple(c for c in self._conditions if c is not None),
            variables=frozenset(self._variables),
            order=max(self._orders, key=lambda found: found.peak - found.lower_bound),
            target=self._module.target,
            cache=self._module.cache,
        )

    def _ref(self, expr: Expr, type_: TensorType, name: str) -> TensorRef:
        tensor = expr.span.tensor
        kept = self._func.attrs.get("channels", {}).get(tensor, ())
        within = isinstance(expr, Call) and self._computed_by.get(tensor) != id(expr)
        return TensorRef(self._names.fresh(c_identifier(name, default="tensor")), type_, -1 if within else tensor, kept)

    def _visit(self, expr: Expr) -> tuple[TensorRef, ...]:
        match expr:
            case Constant():
                ref = self._ref(expr, expr.type, expr.span.name or "constant")
                self._values[ref] = expr.data
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
            case If():
                return self._branch(expr)
            case While():
                return self._loop(expr)
            case _:
                raise internal(f"{expr} is not bound or not fused", where=str(expr.span))

    def _one(self, expr: Expr) -> TensorRef:
        (ref,) = self._refs[id(expr)]
        return ref

    def _body(self, func: Function, late: frozenset[int] = frozenset()) -> tuple[TensorRef, ...]:
        """Visit all nodes of a function whose parameters have tensors; return its results."""
        order, found = searched_order(func, late)
        self._orders.append(found)
        for expr in order:
            if id(expr) not in self._refs:
                self._refs[id(expr)] = self._visit(expr)
        return self._refs[id(func.body)]

    def _inner(
        self, func: Function, operands: Sequence[TensorRef], late: frozenset[int] = frozenset()
    ) -> tuple[TensorRef, ...]:  # fmt: skip
        """The results of a branch, or of a loop's condition or body; such a function is closed: it reads only its parameters."""
        outer, self._refs = self._refs, {id(p): (o,) for p, o in zip(func.params, operands, strict=True)}
        results = self._body(func, late)
        self._refs = outer
        return results

    def _branch(self, expr: If) -> tuple[TensorRef, ...]:
        """Lower both branches in turn; each copies its results into tensors that both share.

        Values that both branches return unchanged are not copied.
        """
        operands = [self._one(a) for a in expr.args]
        same = [a if a == b else None for a, b in zip(*map(handed_on, (expr.then_branch, expr.else_branch)), strict=True)]
        results = tuple(
            self._variable(expr, type_) if k is None else operands[k]
            for k, type_ in zip(same, result_types(expr.then_branch), strict=True)
        )
        number = self._begin(self._one(expr.cond))
        first, middle = len(self._calls), 0
        for branch in (expr.then_branch, expr.else_branch):
            for source, target in zip(self._inner(branch, operands), results, strict=True):
                if target in self._variables:
                    self._copy(source, target, expr.span)
            middle = middle or len(self._calls)
        self._end(number, Control("if", first, middle, len(self._calls)))
        return results

    def _loop(self, expr: While) -> tuple[TensorRef, ...]:
        """Lower a loop: copies of the initial values into the variables, the condition, the body, copies of its results to them.

        A value that the body returns unchanged is not a variable.  A result that is itself another variable is first copied
        elsewhere, until all variables have been read.
        """
        operands = [self._one(a) for a in expr.args]
        fixed = [k == i for i, k in enumerate(handed_on(expr.body))]
        variables = tuple(o if f else self._variable(expr, o.type) for o, f in zip(operands, fixed, strict=True))
        for source, target, f in zip(operands, variables, fixed, strict=True):
            if not f:
                self._copy(source, target, expr.span)
        number = self._begin(None)
        first = len(self._calls)
        (condition,) = self._inner(expr.cond, variables)
        middle = len(self._calls)
        results = list(self._inner(expr.body, variables, own_updates(expr.body)))
        moving = [i for i, f in enumerate(fixed) if not f]
        for i in moving:
            if self._root(results[i]) in variables and not fixed[variables.index(self._root(results[i]))]:
                kept = TensorRef(self._names.fresh(f"{results[i].name}_kept"), results[i].type)
                self._copy(results[i], kept, expr.span)
                results[i] = kept
        for i in moving:
            self._copy(results[i], variables[i], expr.span)
        if first == len(self._calls):
            message = "the loop computes nothing, so it never ends, or never begins"
            raise UnsupportedError(Problem("E1164", message, str(expr.span)))
        self._conditions[number] = condition
        self._end(number, Control("while", first, middle, len(self._calls), trip_count(expr)))
        return variables

    def _begin(self, condition: TensorRef | None) -> int:
        """The number of a new branch or loop; outer ones come before inner ones."""
        self._controls.append(None)
        self._conditions.append(condition)
        return len(self._controls) - 1

    def _end(self, number: int, control: Control) -> None:
        """Complete a branch or loop; it is dropped if it has no layers."""
        self._controls[number] = control
        if control.first == control.last:
            self._controls[number] = self._conditions[number] = None

    def _variable(self, expr: Expr, type_: TensorType) -> TensorRef:
        """A tensor that is written more than once."""
        tensor = expr.span.tensor if isinstance(expr, If) and isinstance(expr.type, TensorType) else -1
        ref = TensorRef(self._names.fresh(c_identifier(expr.span.name, default="variable")), type_, tensor)
        self._variables.append(ref)
        return ref

    def _root(self, tensor: TensorRef) -> TensorRef:
        while tensor in self._views:
            tensor = self._views[tensor]
        return tensor

    def _copy(self, source: TensorRef, target: TensorRef, span: Span) -> None:
        """Add a layer that copies a tensor."""
        key = source.type.size, source.type.dtype
        if key not in self._copies:
            self._copies[key] = copying(*key)
        operators = {span.op_index: span.opcode} if span.op_index >= 0 else {}
        call = KernelCall("copy", (source,), (target,), span=span, operators=operators, fused=self._copies[key])
        self._add(call)

    def _add(self, call: KernelCall) -> None:
        """Add a layer whose kernels are still to be found; its function has a name that others may have too."""
        module = self._module
        assert call.fused is not None
        kernels = candidates(call.fused, module.target, call.func, module.config, repeated=self._repeated, cache=module.cache)
        call = replace(call, func=self._global_vars.fresh(call.func), candidates=tuple(kernels))
        self._prim_funcs[call.func] = kernels[0].lowered
        self._calls.append(call)

    def _layer(self, call: Call) -> tuple[TensorRef, ...]:
        func = call.op
        assert isinstance(func, Function)
        name = c_identifier(str(func.attrs.get("name", "layer")))
        types = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
        outputs = tuple(self._ref(call, t, call.span.name or "layer") for t in types)
        inputs = tuple(self._one(a) for a in call.args)
        operators = dict(sorted(operators_in(call).items()))
        moved = self._carried.layers.get(id(call), 0)
        self._add(KernelCall(name, inputs, outputs, span=call.span, operators=operators, carried=moved, fused=func))
        return outputs


def _last_calls(func: Function) -> dict[int, int]:
    """Tensor of the .tflite -> id of the call in `func` that computes it.

    This is the call with the operator's last node: an operator may become several layers, and the last one may contain other
    operators too.  A view of a node of the same operator shares its bytes and does not count.
    """
    last: dict[int, int] = {}
    for expr in post_order(func.body):
        if not isinstance(expr, Call):
            continue
        inner = post_order(expr.op.body) if isinstance(expr.op, Function) else [expr]
        viewed = expr.args[0].span.tensor if isinstance(expr.op, Op) and F_IS_VIEW.find(expr.op.name) else None
        last.update({e.span.tensor: id(expr) for e in inner if isinstance(e, Call) and e.span.tensor != viewed})
    return last


# ---- the order of execution: operands before users, with the lowest peak of live memory


def execution_order(func: Function, late: Container[int] = ()) -> list[Expr]:
    """All nodes, operands before users: in the order of the file, unless another order has a lower peak of live memory.

    Nodes whose id is in `late` come as late as possible.
    """
    return searched_order(func, late)[0]


def searched_order(func: Function, late: Container[int] = ()) -> tuple[list[Expr], Order]:
    """The nodes as `execution_order` returns them, and how good the order of the layers is."""
    nodes = post_order(func.body)
    after = _renewals(func, nodes)
    ranks = {id(e): LAST if id(e) in late else max(operators_in(e), default=-1) for e in nodes}  # as in the file
    order = _sorted(nodes, ranks, after)
    layers = [e for e in order if _is_layer(e)]
    found = _lowest_peak(func, order, layers, after)
    best = [layers[k] for k in found.order]
    if best == layers:
        return order, found
    return _sorted(nodes, {id(e): -1 for e in nodes} | {id(e): i for i, e in enumerate(best)}, after), found


LAST = 1 << 30
"""The rank of nodes that come last."""


def _is_layer(expr: Expr) -> bool:
    """Whether a node counts as a layer in the order: a fused call, or a whole branch or loop."""
    return isinstance(expr, If | While) or (isinstance(expr, Call) and isinstance(expr.op, Function))


def _renewals(func: Function, nodes: Sequence[Expr]) -> dict[int, list[Expr]]:
    """For each node that updates the rows of a state in place, by id: the other readers of the state, which must come before it.

    In-place updates are only those that append new rows to the remaining ones, and only if no layer reads the result.
    """
    states = state_vars(func)
    if not states:
        return {}
    news = func.body.fields[-len(states) :] if isinstance(func.body, Tuple) else (func.body,)
    found: dict[int, list[Expr]] = {}
    for old, new in zip(states, news, strict=True):
        if not (isinstance(new, Call) and isinstance(new.op, Function) and any(a is old for a in new.args)):
            continue
        result = new.op.body
        if not isinstance(result, Call) or str(result.op) != "concatenate" or new.type != old.type or len(new.args) > 2:
            continue
        readers = [e for e in nodes if _is_layer(e) and e is not new and any(_shown(o) is old for o in operands(e))]
        if not any(_shown(o) is new for e in nodes if _is_layer(e) for o in operands(e)):
            found[id(new)] = readers
    return found


def _shown(expr: Expr) -> Expr:
    """The tensor that a view shows."""
    while isinstance(expr, Call) and isinstance(expr.op, Op):
        expr = expr.args[0]
    return expr


def _lowest_peak(
    func: Function, order: Sequence[Expr], layers: Sequence[Expr], after: Mapping[int, Sequence[Expr]]
) -> Order:  # fmt: skip
    """The order of the layers, as indices into `layers`, that needs the least memory."""
    tensors: dict[int, tuple[int, ...]] = {}
    sizes: list[int] = []
    kept = {id(v) for v in state_vars(func)}  # not in the workspace
    for e in (*func.params, *order):
        if id(e) in tensors:
            continue
        match e:
            case Constant():
                tensors[id(e)] = ()
            case TupleGetItem():
                tensors[id(e)] = (tensors[id(e.value)][e.index],)
            case Tuple():
                tensors[id(e)] = tuple(t for f in e.fields for t in tensors[id(f)])
            case Call(op=Op()):
                tensors[id(e)] = tensors[id(e.args[0])]
            case _ if id(e) in kept:
                tensors[id(e)] = ()
            case _:
                types = e.type.fields if isinstance(e.type, TupleType) else (e.type,)
                tensors[id(e)] = tuple(range(len(sizes), len(sizes) + len(types)))
                sizes += [t.nbytes if isinstance(t, TensorType) and id(e) not in after else 0 for t in types]
    reads = {id(e): [t for a in operands(e) for t in tensors[id(a)]] for e in layers}
    writes = {id(e): [*tensors[id(e)]] for e in layers}
    for key, readers in after.items():  # a tensor of zero bytes enforces the order
        for reader in readers:
            reads[key].append(len(sizes))
            writes[id(reader)].append(len(sizes))
            sizes.append(0)
    work = [Work(tuple(reads[id(e)]), tuple(writes[id(e)])) for e in layers]
    inputs = [t for v in func.params for t in tensors[id(v)]]
    outputs = tensors[id(func.body)]

    def unpacked(data: tuple[list[int], int, int]) -> Order | None:
        order, peak, bound = data
        return Order(tuple(order), peak, bound) if sorted(order) == list(range(len(work))) and 0 <= bound <= peak else None

    return recall(
        "order",
        lambda: repr((work, sizes, inputs, outputs)).encode(),
        lambda: _solved(tuple(work), tuple(sizes), tuple(inputs), tuple(outputs)),
        pack=lambda found: [found.order, found.peak, found.lower_bound],
        unpack=unpacked,
    )


@lru_cache(maxsize=8)
def _solved(work: tuple[Work, ...], sizes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Order:
    """The order with the lowest peak, cached because both kernels and memory bounds need it."""
    return lowest_peak_order(work, sizes, inputs=inputs, outputs=outputs)


def _sorted(order: Sequence[Expr], rank: Mapping[int, int], after: Mapping[int, Sequence[Expr]]) -> list[Expr]:
    """Order nodes: operands before users, entries of `after` before their key; the ready node with the lowest rank is next."""
    position = {id(e): i for i, e in enumerate(order)}
    before = {id(e): {id(o): o for o in (*operands(e), *after.get(id(e), ()))} for e in order}
    waiting = {key: len(nodes) for key, nodes in before.items()}
    readers: dict[int, list[Expr]] = {}
    for e in order:
        for o in before[id(e)].values():
            readers.setdefault(id(o), []).append(e)
    heap = [(rank[id(e)], position[id(e)]) for e in order if not waiting[id(e)]]
    heapq.heapify(heap)
    result: list[Expr] = []
    while heap:
        e = order[heapq.heappop(heap)[1]]
        result.append(e)
        for reader in readers.get(id(e), ()):
            waiting[id(reader)] -= 1
            if not waiting[id(reader)]:
                heapq.heappush(heap, (rank[id(reader)], position[id(reader)]))
    return result


def operators_in(expr: Expr) -> dict[int, str]:
    """The names of the file's operators that went into a node, by index."""
    if isinstance(expr, Call) and isinstance(expr.op, Function):
        return {index: name for e in post_order(expr.op.body) for index, name in operators_in(e).items()}
    if isinstance(expr, (Call, TupleGetItem, If, While)) and expr.span.op_index >= 0:
        return {expr.span.op_index: expr.span.opcode}
    return {}


# ---- for branches and loops: copies as layers, and results that are unchanged parameters


def copying(size: int, dtype: str) -> Function:
    """A fused function that returns its operand: a concatenation of one tensor, whose kernels are marked as copies."""
    data = var("data", (max(size, 1),), dtype=dtype)
    made = call("concatenate", [data], ConcatenateAttrs(0))
    func = call_group([made], {id(data): data}).op
    assert isinstance(func, Function)
    return func


def own_updates(func: Function) -> frozenset[int]:
    """The ids of nodes in a loop's body that compute a variable's next value from its current one alone: a counter's step.

    If they run last, they may overwrite the variable, since nothing reads it any more.
    """
    found = set[int]()
    for param, result in zip(func.params, results_of(func), strict=True):
        if isinstance(result, Call) and [id(a) for a in result.args] == [id(param)]:
            found.add(id(result))
    return frozenset(found)


def handed_on(func: Function) -> list[int | None]:
    """For each result, the number of the parameter that it returns unchanged; None if it is computed."""
    numbers = {id(p): i for i, p in enumerate(func.params)}
    return [numbers.get(id(r)) for r in results_of(func)]


@module_pass(required=True, phase=FusedModule)
def cut_groups(module: FusedModule, _context: PassContext) -> FusedModule:
    """Cut fused functions that have no kernel of their own if a part of them has one.

    In and out: a FusedModule.
    """
    return replace(module, functions={"main": with_cut_groups(module.main, module.target, module.cache.accepted)})
