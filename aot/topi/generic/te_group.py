"""The generic path: any fused group whose operators have te rules, lowered as one loop nest over its result."""

from __future__ import annotations

from aot.ir.op import Op
from aot.ir.type import TensorType
from aot.op.te_rule import F_TE, TeContext
from aot.relay.analysis import LAYERS, layer_cost
from aot.relay.expr import Call, Constant, Var, post_order
from aot.target.target import Target
from aot.te.nest import emit_nest
from aot.te.tensor import TensorFn, elements_of
from aot.tir.builder import IRBuilder
from aot.tir.function import FuncAttrs
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl


def accepts(group: Group, _target: Target) -> bool:
    calls = [e for e in post_order(group.result) if isinstance(e, Call)]
    if not isinstance(group.result.type, TensorType) or any(v.type.dtype == "complex64" for v in group.params):
        return False  # an element of a tensor expression is one number
    return all(isinstance(c.op, Op) and c.op.name in F_TE for c in calls)


def lower(group: Group, _target: Target, name: str) -> Lowered:
    b = IRBuilder(name)
    ctx = TeContext(b)
    tensors: dict[int, TensorFn] = {id(v): elements_of(b.input("data", v.type.shape, v.type.dtype)) for v in group.params}
    result_type = group.result.type
    assert isinstance(result_type, TensorType)
    out = b.output("out", result_type.shape, result_type.dtype)
    names: list[str] = []
    macs = 0
    for expr in post_order(group.result):
        match expr:
            case Constant():
                tensors[id(expr)] = ctx.value("table", expr)
            case Call(op=Op() as op):
                assert isinstance(expr.type, TensorType)
                names.append(op.name)
                macs += layer_cost(expr).macs if op.name in LAYERS else 0
                tensors[id(expr)] = F_TE.get(op.name)(ctx, [tensors[id(a)] for a in expr.args], expr.attrs, expr.type)
            case Var():
                pass
            case _:
                raise TypeError(type(expr))
    emit_nest(b, out, tensors[id(group.result)])
    kernel = "generic." + "_".join(n.rsplit(".", 1)[-1] for n in names)
    return Lowered(b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span, macs=macs)), dict(ctx.constants))


register_impl(OpImplementation("generic.te", "*", accepts, lower, plevel=0))
