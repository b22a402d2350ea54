"""The order of execution: operands before users, with the least memory alive at the peak."""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache

from aot.ir.op import Op
from aot.ir.span import Span
from aot.ir.type import TensorType, TupleType
from aot.memory.order import Order, Work, lowest_peak_order
from aot.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, Var, While, is_call, operands, post_order
from aot.relay.state import state_vars
from aot.system.facts import recall


def execution_order(func: Function, late: Container[int] = ()) -> list[Expr]:
    """All nodes, operands before users: in the order of the file, unless another one has less memory alive at its peak.

    Nodes whose id is in `late` come as late as may be.
    """
    return searched_order(func, late)[0]


def searched_order(func: Function, late: Container[int] = ()) -> tuple[list[Expr], Order]:
    """As `execution_order`, and how good the order of the layers is."""
    nodes = post_order(func.body)
    after = _renewals(func, nodes)
    order = _sorted(nodes, {id(e): LAST if id(e) in late else _rank(e) for e in nodes}, after)
    layers = [e for e in order if _is_layer(e)]
    found = _lowest_peak(func, order, layers, after)
    best = [layers[k] for k in found.order]
    if best == layers:
        return order, found
    return _sorted(nodes, {id(e): -1 for e in nodes} | {id(e): i for i, e in enumerate(best)}, after), found


LAST = 1 << 30
"""The rank of what comes last."""


def _is_layer(expr: Expr) -> bool:
    """What takes a place in the order: a fused call; a branch or loop, as one."""
    return isinstance(expr, If | While) or (isinstance(expr, Call) and isinstance(expr.op, Function))


def _renewals(func: Function, nodes: Sequence[Expr]) -> dict[int, list[Expr]]:
    """By the identity of what moves rows of a state on, in its place: the other readers of the state, which come before it.

    Only rows that are joined with new ones behind them are moved so, and only where no reader needs the result.
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
        if not is_call(result, "concatenate") or new.type != old.type or len(new.args) > 2:
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
    """The layers, by their place in `layers`, in the order that needs the least memory."""
    tensors: dict[int, tuple[int, ...]] = {}
    sizes: list[int] = []
    kept = {id(v) for v in state_vars(func)}  # has memory of its own
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
            case Var() if id(e) in kept:
                tensors[id(e)] = ()
            case Var() | Call() | If() | While():
                types = e.type.fields if isinstance(e.type, TupleType) else (e.type,)
                tensors[id(e)] = tuple(range(len(sizes), len(sizes) + len(types)))
                sizes += [t.nbytes if isinstance(t, TensorType) and id(e) not in after else 0 for t in types]
    reads = {id(e): [t for a in operands(e) for t in tensors[id(a)]] for e in layers}
    writes = {id(e): [*tensors[id(e)]] for e in layers}
    for key, readers in after.items():  # a tensor without bytes says what comes first
        for reader in readers:
            reads[key].append(len(sizes))
            writes[id(reader)].append(len(sizes))
            sizes.append(0)
    work = [Work(tuple(reads[id(e)]), tuple(writes[id(e)])) for e in layers]
    inputs = [t for v in func.params for t in tensors[id(v)]]
    outputs = tensors[id(func.body)]
    return recall(
        "order",
        lambda: repr((work, sizes, inputs, outputs)).encode(),
        lambda: _solved(tuple(work), tuple(sizes), tuple(inputs), tuple(outputs)),
        pack=lambda found: [found.order, found.peak, found.lower_bound],
        unpack=lambda data: _read(data, len(work)),
    )


def _read(data: tuple[list[int], int, int], count: int) -> Order | None:
    """What the cache holds of an order, if it can be one."""
    order, peak, bound = data
    return Order(tuple(order), peak, bound) if sorted(order) == list(range(count)) and 0 <= bound <= peak else None


@lru_cache(maxsize=8)
def _solved(work: tuple[Work, ...], sizes: tuple[int, ...], inputs: tuple[int, ...], outputs: tuple[int, ...]) -> Order:
    """Cached, because kernels and the bounds of the memory go by the same order."""
    return lowest_peak_order(work, sizes, inputs=inputs, outputs=outputs)


def _sorted(order: Sequence[Expr], rank: Mapping[int, int], after: Mapping[int, Sequence[Expr]]) -> list[Expr]:
    """Operands before users, and `after` its entries; among those that are ready, the one with the smallest rank."""
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


def _rank(expr: Expr) -> int:
    """Index of the last operator of the file that went into a node."""
    return max(operators_in(expr), default=-1)


def operators_in(expr: Expr) -> dict[int, str]:
    """The operators of the file that went into a node, by index: their names."""
    return {span.op_index: span.opcode for span in _spans(expr)}


def _spans(expr: Expr) -> Iterator[Span]:
    if isinstance(expr, Call) and isinstance(expr.op, Function):
        for e in post_order(expr.op.body):
            yield from _spans(e)
    elif isinstance(expr, (Call, TupleGetItem, If, While)) and expr.span.op_index >= 0:
        yield expr.span
