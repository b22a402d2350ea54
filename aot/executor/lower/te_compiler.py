"""The te compiler: from fused relay functions to PrimFuncs with packed constants, in an order of execution."""

from __future__ import annotations

from dataclasses import replace

from aot.errors import internal
from aot.executor.lower.candidates import candidates, repeated_weights
from aot.executor.lower.draft import Draft, FusedModule
from aot.executor.lower.order import execution_order, op_indices
from aot.executor.lowered import CallLowered, State, TensorRef
from aot.executor.select.selection import Candidate
from aot.ir.module import IRModule, of_phase
from aot.ir.op import F_IS_VIEW, Array, Op
from aot.ir.transform import PassContext, module_pass
from aot.ir.type import TensorType, TupleType
from aot.relay.expr import Call, Constant, Expr, Function, If, Tuple, TupleGetItem, Var, While, post_order
from aot.relay.state import input_vars, state_of, state_vars
from aot.support.names import NameSupply, c_identifier
from aot.topi.strategy import Lowered


@module_pass(required=True)
def lower_te(module: IRModule, _context: PassContext) -> IRModule:
    """Lower every fused call of main in an order of execution: all kernels that accept it, the preferred one in the module.

    In: a FusedModule after cut_groups.  Out: a Draft.
    """
    fused = of_phase(module, FusedModule, "lower_te")
    config, known = fused.config, fused.known
    key = (config.opt if config.opt in ("speed", "size") else "", config.limits_ram)
    if key not in known.drafts:
        known.drafts[key] = replace(_Compiler(fused).draft(), key=key)
    return replace(known.drafts[key], config=config, planning=fused.planning)


class _Compiler:
    """Gives tensors names and turns nodes into layer calls."""

    def __init__(self, module: FusedModule) -> None:
        self._module, self._func = module, module.main
        self._names = NameSupply()
        self._refs: dict[int, tuple[TensorRef, ...]] = {}
        self._views: dict[TensorRef, TensorRef] = {}
        self._values: dict[TensorRef, Array] = {}
        self._calls: list[CallLowered] = []
        self._prim_funcs: dict[str, Lowered] = {}
        self._global_vars = NameSupply()
        self._functions: list[Function] = []
        self._candidates: list[list[Candidate]] = []
        self._repeated = repeated_weights(self._func)
        self._computed_by = _last_calls(self._func)

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
        return Draft(
            {name: found.func for name, found in self._prim_funcs.items()},
            self._module.name,
            {name: found.constants for name, found in self._prim_funcs.items()},
            inputs=inputs,
            outputs=outputs,
            calls=tuple(self._calls),
            views=self._views,
            values=self._values,
            states=states,
            target=self._module.target,
            groups=tuple(self._functions),
            found=tuple(map(tuple, self._candidates)),
            known=self._module.known,
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
            case Var() | Call() | If() | While():
                raise internal(f"{expr} is not bound or not fused", where=str(expr.span))

    def _one(self, expr: Expr) -> TensorRef:
        (ref,) = self._refs[id(expr)]
        return ref

    def _layer(self, call: Call) -> tuple[TensorRef, ...]:
        func = call.op
        assert isinstance(func, Function)
        name = c_identifier(str(func.attrs.get("name", "layer")))
        fused = self._module
        found = candidates(func, fused.target, name, fused.config, repeated=self._repeated, known=fused.known)
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
