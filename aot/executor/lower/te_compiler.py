"""The te compiler: from fused relay functions to PrimFuncs with packed constants, in an order of execution."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from aot.errors import Problem, UnsupportedError, UsageError, internal
from aot.executor.cascade.items import Items
from aot.executor.cascade.search import Limits, use_cascades
from aot.executor.lower.groups import accepting, group_of
from aot.executor.policy import MOST_SLOWDOWN
from aot.executor.schedule import LayerCall, Schedule, TensorRef
from aot.executor.select.selection import Budget, Candidate, Stored, choose, distinct_bytes, stored
from aot.ir.op import F_IS_VIEW, Array, Op
from aot.ir.type import TensorType, TupleType
from aot.memory.order import Work, lowest_peak_order
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, operands, post_order
from aot.support.names import NameSupply, c_identifier
from aot.target.target import Target
from aot.tir.function import PrimFunc
from aot.tir.transform import flatten, sharing_key, simplified, structural_key
from aot.topi.strategy import Group, Impl, Lowered


@dataclass(frozen=True, slots=True)
class Policy:
    """How kernels are chosen: what to favour, and limits in bytes for flash (constants and kernel code) and RAM (workspace).

    `kernels` "generic" leaves out everything that is made for an instruction set.  `feed_rows`: the input comes row by row.
    A `ram_budget` of 0 asks for the smallest workspace, whatever it costs.  `whole_limit`: bytes within which whole layers
    should run where they have kernels that can; without cascades.
    """

    opt: str = "balanced"
    kernels: str = "native"
    flash_budget: int | None = None
    ram_budget: int | None = None
    feed_rows: bool = False
    whole_limit: int | None = None

    @property
    def cascades(self) -> bool:
        """Whether layers may run row by row."""
        return self.opt == "ram" or self.ram_budget is not None or self.feed_rows

    @property
    def limits_ram(self) -> bool:
        """Whether kernels that are made for their scratch memory are in the running; a row of a cascade needs little anyway."""
        return self.ram_budget is not None or self.whole_limit is not None


def lower_group(func: Function, target: Target, name: str) -> Lowered:
    """The preferred kernel for the group, by plevel (E1209 where no kernel takes it)."""
    group = group_of(func)
    return _accepting(group, target)[0].lower(group, target, name)


@dataclass(frozen=True, slots=True)
class Draft:
    """The calls of a model in their order, with the group and all kernels of each."""

    schedule: Schedule
    functions: tuple[Function, ...]
    found: tuple[Sequence[Candidate], ...]


@dataclass(frozen=True, slots=True)
class Known:
    """What was made for one model and target, and is kept for the next policy with the same `kernels`.

    `lowered` by id of the group's function, name of the implementation and key of its code: the function (its id stays its own),
    the candidate.  `drafts` and `items` by what of the policy they depend on.
    """

    lowered: dict[tuple[int, str, str], tuple[Function, Candidate]] = field(default_factory=dict)
    drafts: dict[Hashable, Draft] = field(default_factory=dict)
    items: dict[Hashable, Items] = field(default_factory=dict)


def candidates(
    func: Function,
    target: Target,
    name: str,
    policy: Policy,
    *,
    keyed: bool = True,
    repeated: Container[Hashable] = (),
    known: Known | None = None,
) -> list[Candidate]:
    """Every kernel that takes the group, lowered, best plevel first; the generic path only where there is nothing else.

    Without `keyed` their keys tell nothing of shared code, which saves most of the time.  `repeated` are the keys of the weights
    that several layers have; kernels made for those are left out elsewhere.  What is in `known` is not lowered again.
    """
    known = Known() if known is None else known
    code_key: Callable[[PrimFunc], Hashable] = id
    if keyed:
        code_key = structural_key if policy.opt == "speed" else lambda f: sharing_key(flatten(simplified(f)))
    keys = "" if not keyed else "structural" if policy.opt == "speed" else "sharing"
    group = group_of(func)
    weights = _weights(group)
    found: list[Candidate] = []
    for impl in _accepting(group, target):
        if (impl.anchor == "*" and found) or (policy.kernels == "generic" and not impl.name.startswith("generic.")):
            continue
        if impl.small and not policy.limits_ram:
            continue
        if impl.for_repeated and not any(w.key in repeated for w in weights[:1]):
            continue
        key = (id(func), impl.name, keys)
        if key not in known.lowered:
            lowered = impl.lower(group, target, name)
            known.lowered[key] = func, _candidate(lowered, code_key(lowered.func), weights, keyed=keyed)
        found.append(known.lowered[key][1])
    return _packed(found) if policy.opt == "size" else found


def _packed(found: list[Candidate]) -> list[Candidate]:
    """Those that keep a large matrix in fewer bytes than one a weight, as they can 4-bit ones, where there are such."""
    weights = found[0].weights[0].nbytes if found and found[0].weights else 0
    return [c for c in found if weights >= LARGE_MATRIX and c.constants < weights] or found


def _candidate(lowered: Lowered, key: Hashable, weights: tuple[Stored, ...], *, keyed: bool) -> Candidate:
    return Candidate(
        lowered.func.attrs.kernel,
        lowered,
        key,
        lowered.instructions,
        sum(c.nbytes for c in lowered.constants.values()),
        lowered.code,
        sum(b.nbytes for b in lowered.func.scratch),
        weights,
        tuple(stored(lowered.constants[b.name], b.dtype) for b in lowered.func.consts) if keyed else (),
    )


WEIGHTED = frozenset({"nn.conv2d", "nn.depthwise_conv2d", "nn.dense", "nn.bias_add"})


def _weights(group: Group) -> tuple[Stored, ...]:
    """Weights and biases as the model has them, the weights first."""
    calls = [e for e in post_order(group.result) if isinstance(e, Call) and getattr(e.op, "name", "") in WEIGHTED]
    return tuple(stored(a.data, a.type.dtype) for c in calls for a in c.args if isinstance(a, Constant))


def _repeated_weights(func: Function) -> frozenset[Hashable]:
    """The keys of weights that several layers of the fused main function have."""
    layers = [group_of(e.op) for e in post_order(func.body) if isinstance(e, Call) and isinstance(e.op, Function)]
    count = Counter(w.key for group in layers for w in _weights(group)[:1])
    return frozenset(key for key, n in count.items() if n > 1)


def _accepting(group: Group, target: Target) -> list[Impl]:
    found = accepting(group, target)
    if not found:
        name = getattr(group.anchor.op, "name", "?")
        raise UnsupportedError(Problem("E1209", f"no kernel for {name} on {target.name}", str(group.anchor.span)))
    return found


def compile_main(
    func: Function, target: Target, *, name: str, policy: Policy | None = None, known: Known | None = None
) -> Schedule | None:
    """Lower every fused call of `func` (the main function after cut_groups) in an order of execution, and choose the kernels.

    `known` keeps what was made for the next policy.  None where nothing fits the RAM budget.
    """
    policy, known = policy or Policy(), Known() if known is None else known
    key = (policy.opt if policy.opt in ("speed", "size") else "", policy.limits_ram)
    if key not in known.drafts:
        known.drafts[key] = _Compiler(func, target, name, policy, known).draft()
    draft = known.drafts[key]
    if policy.feed_rows and len(draft.schedule.inputs) != 1:
        raise UsageError(Problem("E5054", f"{len(draft.schedule.inputs)} inputs; only a single one can be fed by rows", name))
    schedule, found = draft.schedule, list(draft.found)
    if policy.cascades or policy.whole_limit is not None:
        if (key, policy.feed_rows) not in known.items:
            lower = partial(_lower_rows, target=target, policy=policy, known=known)
            fed = schedule.inputs[0] if policy.feed_rows else None
            known.items[key, policy.feed_rows] = Items(schedule, draft.functions, found, lower=lower, fed=fed)
        items = known.items[key, policy.feed_rows].again()
        if policy.whole_limit is not None:
            found = [_within(items, i, layer, policy) for i, layer in enumerate(found)]
        else:
            cascaded = use_cascades(schedule, items, _limits(draft, policy))
            if cascaded is None:
                return None
            schedule, found = cascaded
    return replace(schedule, calls=choose_kernels(schedule, found, policy))


def _lower_rows(func: Function, name: str, *, target: Target, policy: Policy, known: Known) -> list[Candidate]:
    return candidates(func, target, name, policy, keyed=False, known=known)


def _within(items: Items, i: int, layer: Sequence[Candidate], policy: Policy) -> Sequence[Candidate]:
    """The kernels of layer i that run within `whole_limit`; where none does: all of them, for `ram` the one of least scratch."""
    assert policy.whole_limit is not None
    item = items.whole(i, policy.whole_limit)
    if item is not None:
        return item.kernels
    return layer if policy.opt != "ram" else (min(layer, key=lambda c: (c.scratch, c.instructions)),)


def _limits(draft: Draft, policy: Policy) -> Limits:
    """What the search for cascades may take."""
    if policy.ram_budget is not None:
        return Limits(policy.ram_budget or None)
    usual = _selected(draft.found, replace(policy, opt="balanced") if policy.opt == "ram" else policy)
    most = int(MOST_SLOWDOWN * sum(c[k].instructions for c, k in zip(draft.found, usual, strict=True)))
    return Limits(None, most, small=policy.opt == "ram")


def execution_order(func: Function) -> list[Expr]:
    """All nodes, operands before users: in the order of the file, unless another one has less memory alive at its peak."""
    nodes = post_order(func.body)
    order = _sorted(nodes, {id(e): _rank(e) for e in nodes})
    layers = [e for e in order if isinstance(e, Call) and isinstance(e.op, Function)]
    best = _lowest_peak(func, order, layers)
    if best == layers:
        return order
    return _sorted(nodes, {id(e): -1 for e in nodes} | {id(e): i for i, e in enumerate(best)})


def _lowest_peak(func: Function, order: Sequence[Expr], layers: Sequence[Call]) -> list[Call]:
    """The layers in the order that needs the least memory."""
    tensors: dict[int, tuple[int, ...]] = {}
    sizes: list[int] = []
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
            case Var() | Call():
                types = e.type.fields if isinstance(e.type, TupleType) else (e.type,)
                tensors[id(e)] = tuple(range(len(sizes), len(sizes) + len(types)))
                sizes += [t.nbytes if isinstance(t, TensorType) else 0 for t in types]
    work = [Work(tuple(t for a in e.args for t in tensors[id(a)]), tensors[id(e)]) for e in layers]
    inputs = [t for v in func.params for t in tensors[id(v)]]
    return [layers[k] for k in lowest_peak_order(work, sizes, inputs=inputs, outputs=tensors[id(func.body)])]


def _sorted(order: Sequence[Expr], rank: Mapping[int, int]) -> list[Expr]:
    """Operands before users; among those that are ready, the one with the smallest rank."""
    position = {id(e): i for i, e in enumerate(order)}
    waiting = {id(e): len({id(o) for o in operands(e)}) for e in order}
    readers: dict[int, list[Expr]] = {}
    for e in order:
        for o in {id(o): o for o in operands(e)}.values():
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
    return max(_op_indices(expr), default=-1)


def _op_indices(expr: Expr) -> Iterator[int]:
    if isinstance(expr, Call) and isinstance(expr.op, Function):
        for e in post_order(expr.op.body):
            yield from _op_indices(e)
    elif isinstance(expr, (Call, TupleGetItem)) and expr.span.op_index >= 0:
        yield expr.span.op_index


class _Compiler:
    """Gives tensors names and turns nodes into layer calls."""

    def __init__(self, func: Function, target: Target, name: str, policy: Policy, known: Known) -> None:
        self._func, self._target, self._name, self._policy, self._known = func, target, name, policy, known
        self._names = NameSupply()
        self._refs: dict[int, tuple[TensorRef, ...]] = {}
        self._views: dict[TensorRef, TensorRef] = {}
        self._constants: dict[TensorRef, Array] = {}
        self._calls: list[LayerCall] = []
        self._functions: list[Function] = []
        self._candidates: list[list[Candidate]] = []
        self._repeated = _repeated_weights(func)
        self._computed_by = _last_calls(func)

    def draft(self) -> Draft:
        for var in self._func.params:
            self._refs[id(var)] = (self._ref(var, var.type, var.name),)
        inputs = tuple(self._refs[id(v)][0] for v in self._func.params)
        for expr in execution_order(self._func):
            if id(expr) not in self._refs:
                self._refs[id(expr)] = self._visit(expr)
        outputs = self._refs[id(self._func.body)]
        schedule = Schedule(self._name, inputs, outputs, tuple(self._calls), self._views, self._constants)
        return Draft(schedule, tuple(self._functions), tuple(map(tuple, self._candidates)))

    def _ref(self, expr: Expr, type_: TensorType, name: str) -> TensorRef:
        tensor = expr.span.tensor
        kept = self._func.attrs.get("channels", {}).get(tensor, ())
        within = isinstance(expr, Call) and self._computed_by.get(tensor) != id(expr)
        return TensorRef(self._names.fresh(c_identifier(name, default="tensor")), type_, -1 if within else tensor, kept)

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
        name = c_identifier(str(func.attrs.get("name", "layer")))
        found = candidates(func, self._target, name, self._policy, repeated=self._repeated, known=self._known)
        self._candidates.append(found)
        self._functions.append(func)
        lowered = found[0].lowered
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


def _last_calls(func: Function) -> dict[int, int]:
    """Tensor of the .tflite -> id of the call in `func` that computes it.

    That of the operator's last node: an operator may become several layers, and the last may hold other operators too.  A view
    of a node of the same operator has its bytes.
    """
    last: dict[int, int] = {}
    for expr in post_order(func.body):
        if not isinstance(expr, Call):
            continue
        inner = post_order(expr.op.body) if isinstance(expr.op, Function) else [expr]
        viewed = expr.args[0].span.tensor if isinstance(expr.op, Op) and F_IS_VIEW.find(expr.op.name) else None
        last.update({e.span.tensor: id(expr) for e in inner if isinstance(e, Call) and e.span.tensor != viewed})
    return last


CODE_ALLOWANCE = 12 * 1024
"""Bytes of code that `balanced` and `size` plan with, beside the weights."""

LARGE_MODEL = 96 * 1024
"""Bytes of constants from which on `balanced` lets code grow with them."""

SIZE_FACTOR = 1.12
"""Constants of `size`, as a multiple of the smallest: weights of one byte, with three words a channel to requantise."""

LARGE_MATRIX = 2560
"""4-bit weights from so many on stay packed in `size`; packing smaller ones can cost more in code than it saves."""

RESERVE = 320
"""Bytes by which estimates of code may fall short; `size` keeps its 12 KiB."""

MAIN_CODE = 1536
"""Bytes of the main function and the runtime, which no kernel's estimate counts."""

CALL_CODE = 32
"""Of which a layer's call takes so many."""


def main_code(calls: int) -> int:
    """Bytes of the main function and the runtime for so many layers; those of up to 32 are taken together."""
    return MAIN_CODE + CALL_CODE * max(0, calls - 32)


def choose_kernels(draft: Schedule, found: Sequence[Sequence[Candidate]], policy: Policy) -> tuple[LayerCall, ...]:
    """The calls of `draft` with the kernels that the policy's budget selects."""
    picked = [layer[k] for layer, k in zip(found, _selected(found, policy), strict=True)]
    return tuple(
        replace(
            call,
            func=c.lowered.func,
            constants=dict(c.lowered.constants),
            candidates=tuple(layer),
            estimate=c.instructions,
        )
        for call, c, layer in zip(draft.calls, picked, found, strict=True)
    )


def _selected(found: Sequence[Sequence[Candidate]], policy: Policy) -> tuple[int, ...]:
    """The number of each layer's kernel.

    speed: no limit.  balanced: constants and code within twice the model's weights plus 12 KiB, of which code may take 12 KiB,
    and in large models one byte for 16 bytes of constants more (flash keeps a quarter of these in reserve); the tables of
    layers without weights come on top.  size: constants within 12 % of the smallest, code within 12 KiB.  ram: as balanced,
    beside the code of the cascades, which is settled; `found` then holds only kernels whose scratch the workspace has room
    for.
    An explicit budget for flash comes on top.
    """
    smallest = distinct_bytes(a for layer in found for a in _smallest(layer))
    main = main_code(len(found))
    more = 0  # bytes of code beyond the allowance, of whose estimate a quarter is kept in reserve
    code = None if policy.opt == "speed" else CODE_ALLOWANCE - main
    if code is not None and policy.opt == "size":
        code -= RESERVE
    elif code is not None:
        more = max(0, smallest - LARGE_MODEL) // 16
        code += more
    fixed = sum(layer[0].code for layer in found if layer[0].is_cascade)
    factor = {"speed": None, "size": SIZE_FACTOR}.get(policy.opt, 2)
    tables = 0
    if policy.opt != "size":
        count = Counter(layer[0].weights[0].key for layer in found if layer[0].weights)
        smallest = distinct_bytes(a for layer in found if _has_weights(layer) for a in _least(layer, count))
        tables = distinct_bytes(a for layer in found if not _has_weights(layer) for a in _smallest(layer))
    flash = None if factor is None else int(factor * smallest) + tables + CODE_ALLOWANCE - main - more // 4
    flash, code = (None if limit is None else limit + fixed for limit in (flash, code))
    if policy.flash_budget is not None:
        flash = min(f for f in (flash, policy.flash_budget - main) if f is not None)
    return choose(found, Budget(flash, code))


def _has_weights(layer: Sequence[Candidate]) -> bool:
    return bool(layer[0].weights) or layer[0].is_cascade


def _smallest(layer: Sequence[Candidate]) -> tuple[Stored, ...]:
    """The constants of the candidate that has the fewest; those that no other layer can have too stand as one."""
    best = min(layer, key=lambda c: c.constants)
    rest = best.constants - distinct_bytes(best.arrays)
    return (*best.arrays, Stored(id(best), rest))


def _least(layer: Sequence[Candidate], count: Mapping[Hashable, int]) -> tuple[Stored, ...]:
    """A layer's weights in the model, or its smallest constants where those are fewer.

    Of several layers with the same weights (`count`: how many) those weights alone: their biases differ where zero points were
    folded in, which the model has not.
    """
    weights = layer[0].weights
    if weights and count[weights[0].key] > 1:
        return weights[:1]
    least = min(c.constants for c in layer)
    return weights if weights and sum(w.nbytes for w in weights) <= least else _smallest(layer)
