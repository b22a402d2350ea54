"""The te compiler: from fused relay functions to PrimFuncs with packed constants, in an order of execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from aot.errors import Problem, UsageError, internal
from aot.executor.cascade.items import Items
from aot.executor.cascade.search import Limits, use_cascades
from aot.executor.lower.candidates import candidates, repeated_weights
from aot.executor.lower.draft import Draft, Known
from aot.executor.lower.order import execution_order, op_indices
from aot.executor.lowered import CallLowered, LoweredModule, State, TensorRef
from aot.executor.policy import MOST_SLOWDOWN
from aot.executor.select.config import SelectionConfig
from aot.executor.select.flash_budget import choose_kernels, selected_kernels
from aot.executor.select.selection import Candidate
from aot.ir.op import F_IS_VIEW, Array, Op
from aot.ir.type import TensorType, TupleType
from aot.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, Var, While, post_order
from aot.relay.state import input_vars, state_of, state_vars
from aot.support.names import NameSupply, c_identifier
from aot.target.target import Target
from aot.topi.strategy import Lowered


def compile_main(
    func: Function, target: Target, *, name: str, policy: SelectionConfig | None = None, known: Known | None = None
) -> LoweredModule | None:
    """Lower every fused call of `func` (the main function after cut_groups) in an order of execution, and choose the kernels.

    `known` keeps what was made for the next policy.  None where nothing fits the RAM budget.
    """
    policy, known = policy or SelectionConfig(), Known() if known is None else known
    key = (policy.opt if policy.opt in ("speed", "size") else "", policy.limits_ram)
    if key not in known.drafts:
        known.drafts[key] = _Compiler(func, target, name, policy, known).draft()
    draft = known.drafts[key]
    if policy.feed_rows and len(draft.lowered.inputs) != 1:
        raise UsageError(Problem("E5054", f"{len(draft.lowered.inputs)} inputs; only a single one can be fed by rows", name))
    lowered, found = draft.lowered, list(draft.found)
    if policy.cascades or policy.whole_limit is not None:
        if (key, policy.feed_rows) not in known.items:
            lower = partial(_lower_rows, target=target, policy=policy, known=known)
            fed = lowered.inputs[0] if policy.feed_rows else None
            known.items[key, policy.feed_rows] = Items(lowered, draft.functions, found, lower=lower, fed=fed)
        items = known.items[key, policy.feed_rows].again()
        if policy.whole_limit is not None:
            found = [_within(items, i, layer, policy) for i, layer in enumerate(found)]
        else:
            cascaded = use_cascades(lowered, items, _limits(draft, policy))
            if cascaded is None:
                return None
            lowered, found = cascaded
    return choose_kernels(lowered, found, policy)


def _lower_rows(func: Function, name: str, *, target: Target, policy: SelectionConfig, known: Known) -> list[Candidate]:
    return candidates(func, target, name, policy, keyed=False, known=known)


def _within(items: Items, i: int, layer: Sequence[Candidate], policy: SelectionConfig) -> Sequence[Candidate]:
    """The kernels of layer i that run within `whole_limit`; where none does: all of them, for `ram` the one of least scratch."""
    assert policy.whole_limit is not None
    item = items.whole(i, policy.whole_limit)
    if item is not None:
        return item.kernels
    return layer if policy.opt != "ram" else (min(layer, key=lambda c: (c.scratch, c.instructions)),)


def _limits(draft: Draft, policy: SelectionConfig) -> Limits:
    """What the search for cascades may take."""
    if policy.ram_budget is not None:
        return Limits(policy.ram_budget or None)
    usual = selected_kernels(draft.found, replace(policy, opt="balanced") if policy.opt == "ram" else policy)
    most = int(MOST_SLOWDOWN * sum(c[k].instructions for c, k in zip(draft.found, usual, strict=True)))
    return Limits(None, most, small=policy.opt == "ram")


class _Compiler:
    """Gives tensors names and turns nodes into layer calls."""

    def __init__(self, func: Function, target: Target, name: str, policy: SelectionConfig, known: Known) -> None:
        self._func, self._target, self._name, self._policy, self._known = func, target, name, policy, known
        self._names = NameSupply()
        self._refs: dict[int, tuple[TensorRef, ...]] = {}
        self._views: dict[TensorRef, TensorRef] = {}
        self._values: dict[TensorRef, Array] = {}
        self._calls: list[CallLowered] = []
        self._prim_funcs: dict[str, Lowered] = {}
        self._global_vars = NameSupply()
        self._functions: list[Function] = []
        self._candidates: list[list[Candidate]] = []
        self._repeated = repeated_weights(func)
        self._computed_by = _last_calls(func)

    def draft(self) -> Draft:
        for var in self._func.params:
            self._refs[id(var)] = (self._ref(var, var.type, var.name),)
        inputs = tuple(self._refs[id(v)][0] for v in input_vars(self._func))
        for expr in execution_order(self._func):
            if id(expr) not in self._refs:
                self._refs[id(expr)] = self._visit(expr)
        kept = state_of(self._func)
        results = self._refs[id(self._func.body)]
        outputs, news = results[: len(results) - len(kept)], results[len(results) - len(kept) :]
        olds = [self._one(v) for v in state_vars(self._func)]
        states = tuple(State(s.name, s.initial, old, new) for s, old, new in zip(kept, olds, news, strict=True))
        lowered = LoweredModule(
            {name: found.func for name, found in self._prim_funcs.items()},
            self._name,
            {name: found.constants for name, found in self._prim_funcs.items()},
            inputs=inputs,
            outputs=outputs,
            calls=tuple(self._calls),
            views=self._views,
            values=self._values,
            states=states,
        )
        return Draft(lowered, tuple(self._functions), tuple(map(tuple, self._candidates)))

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
            case Var() | Call() | If() | While():
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
        global_var = self._global_vars.fresh(name)
        self._prim_funcs[global_var] = found[0].lowered
        types = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
        outputs = tuple(self._ref(call, t, call.span.name or "layer") for t in types)
        self._calls.append(
            CallLowered(
                global_var,
                tuple(self._one(a) for a in call.args),
                outputs,
                span=call.span,
                ops=tuple(sorted(set(op_indices(call)))),
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
