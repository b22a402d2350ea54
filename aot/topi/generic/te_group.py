"""The generic path: any fused group whose operators have te rules, lowered as one loop nest over its result."""

from __future__ import annotations

from dataclasses import replace

from aot.ir.op import Op
from aot.ir.type import TensorType
from aot.op.common.layer import FLOAT_ACTIVATIONS
from aot.op.common.te_rule import F_TE, TeContext
from aot.relay.analysis import LAYERS, layer_cost
from aot.relay.expr import Call, Constant, Expr, post_order, tensor_type, with_operands
from aot.support.dataclass import dataclass
from aot.target.target import Target
from aot.te.tensor import TensorFn, elements_of, emit_nest, tensor_fn
from aot.tir.buffer import Buffer
from aot.tir.builder import IRBuilder
from aot.tir.expr import Expr as Scalar
from aot.tir.expr import binop, imm
from aot.tir.function import FuncAttrs
from aot.topi.generic.flat import compose
from aot.topi.layer.elementwise import te_of
from aot.topi.strategy import Group, Lowered, OpImplementation, register_impl, register_planned


def accepts(group: Group, _target: Target) -> bool:
    calls = [e for e in post_order(group.result) if isinstance(e, Call)]
    if not isinstance(group.result.type, TensorType) or any(v.type.dtype == "complex64" for v in group.params):
        return False  # tensor expressions have one number per element
    return all(isinstance(c.op, Op) and c.op.name in F_TE for c in calls)


def lower(group: Group, _target: Target, name: str) -> Lowered:
    b = IRBuilder(name)
    ctx = TeContext(b)
    tensors: dict[int, TensorFn] = {id(v): elements_of(b.input("data", v.type.shape, v.type.dtype)) for v in group.params}
    result_type = group.result.type
    assert isinstance(result_type, TensorType)
    out = b.output("out", result_type.shape, result_type.dtype)
    emit_nest(b, out, compose(ctx, group.result, tensors))
    calls = [e for e in post_order(group.result) if isinstance(e, Call)]
    macs = sum(layer_cost(c).macs for c in calls if c.name in LAYERS)
    kernel = "generic." + "_".join(c.name.rsplit(".", 1)[-1] for c in calls)
    return Lowered(b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span, macs=macs)), dict(ctx.constants))


register_impl(OpImplementation("generic.te", "*", accepts, lower, plevel=0))


# Sums, differences and products of float32 without clamps, if a single test shows that the results are finite.
#
# ADD, SUB and MUL of LiteRT end with a clamp to the finite numbers, two comparisons each.  Without these clamps, an overflow
# stays infinite or becomes NaN through all later sums, differences and products, also in a product with other results.  So if the
# product of a few results is finite, no clamp would have changed anything; otherwise they are computed again with all clamps.


ARITHMETIC = frozenset({"add", "subtract", "multiply", "relu"})
"""Operators that, apart from clamps, keep infinities and NaN."""

MOVES = frozenset({"reshape", "transpose", "strided_slice", "nn.pad"})

LEAVES = frozenset({"qnn.dequantize", "qnn.lut", "qnn.multiply", "qnn.add"})

LAST = {"qnn.quantize": 4, "qnn.steps": 2}
"""Operators that may follow, and how many elements then share one test, as their code is repeated for each."""

UNROLL = 4

CLAMP = FLOAT_ACTIVATIONS["NONE"]

_COST = {"qnn.quantize": 15, "qnn.steps": 45, "qnn.multiply": 12, "qnn.add": 12}


@dataclass(frozen=True, slots=True)
class Plan:
    """`whole`: the results with all clamps; `quick`: without the clamps that finite numbers do not need; `last`: the operator
    that follows.
    """

    whole: Call
    quick: Call
    last: Call | None
    unroll: int


def plan_finite(group: Group, target: Target) -> Plan | None:
    """The plan of a group; None without an FPU, for other operators, without a clamp to leave out, or if rows do not split into
    groups of two to five.
    """
    result = group.result
    if not target.has("fpu") or not isinstance(result, Call) or not isinstance(result.type, TensorType) or not result.type.shape:
        return None
    last = result if str(result.op) in LAST and len(result.args) == 1 else None
    whole = last.args[0] if last is not None else result
    if not isinstance(whole, Call) or tensor_type(whole).dtype != "float32":
        return None
    allowed = ARITHMETIC | MOVES | LEAVES
    calls = [e for e in post_order(whole) if isinstance(e, Call)]
    if any(not isinstance(c.op, Op) or c.op.name not in allowed for c in calls):
        return None
    quick = without_clamps(whole)
    most = LAST[str(last.op)] if last is not None else UNROLL
    unroll = max(n for n in range(1, most + 2) if tensor_type(whole).shape[-1] % n == 0 and n != 3 * (most == 2))
    if quick is whole or unroll == 1:
        return None
    return Plan(whole, quick, last, unroll)


def without_clamps(whole: Call) -> Call:
    """The expression without those clamps to finite numbers that its value makes unnecessary; the same expression if there are
    none.

    An overflow is visible in the value if only sums, differences, products and movements follow, none of which has another clamp.
    """
    shown = _showing(whole)
    done: dict[int, Expr] = {}
    for expr in post_order(whole):
        new = with_operands(expr, [done[id(a)] for a in expr.args]) if isinstance(expr, Call) else expr
        if isinstance(expr, Call) and isinstance(new, Call) and id(expr) in shown and _clamps(expr):
            lo, hi = (None if bound == end else bound for bound, end in zip(_bounds(expr), CLAMP, strict=True))
            new = replace(new, attrs=replace(expr.attrs, lo=lo, hi=hi))
        done[id(expr)] = new
    call = done[id(whole)]
    assert isinstance(call, Call)
    return call


def _showing(whole: Call) -> frozenset[int]:
    """Ids of the calls whose readers all pass an infinity or NaN on to the elements of `whole` that depend on it."""
    order = [e for e in post_order(whole) if isinstance(e, Call)]
    hidden = set[int]()
    for expr in reversed(order):
        passes = str(expr.op) in ARITHMETIC | MOVES and not _cuts(expr) and id(expr) not in hidden
        if not passes:
            hidden.update(id(a) for a in expr.args)
    return frozenset(id(e) for e in order) - hidden


def _bounds(expr: Call) -> tuple[float | None, float | None]:
    return expr.attrs.lo, expr.attrs.hi


def _clamps(expr: Call) -> bool:
    """Whether a clamp to finite numbers is part of the expression."""
    float32 = tensor_type(expr).dtype == "float32"
    return float32 and str(expr.op) in ARITHMETIC and any(b == end for b, end in zip(_bounds(expr), CLAMP, strict=True))


def _cuts(expr: Call) -> bool:
    """Whether an infinity may become a finite number other than the end of the range."""
    return str(expr.op) in ARITHMETIC and any(b not in (None, end) for b, end in zip(_bounds(expr), CLAMP, strict=True))


def lower_finite(group: Group, _target: Target, name: str, plan: Plan) -> Lowered:
    b = IRBuilder(name)
    ctx = TeContext(b)
    tensors = {id(v): elements_of(b.input("data", v.type.shape, v.type.dtype)) for v in group.params}
    result = tensor_type(group.result)
    out = b.output("out", result.shape, result.dtype)
    for expr in post_order(plan.whole):
        if isinstance(expr, Constant):
            tensors[id(expr)] = ctx.value("table", expr)
    _emit_rows(ctx, plan, out, (compose(ctx, plan.quick, tensors), compose(ctx, plan.whole, tensors)))
    names = [str(e.op).rpartition(".")[2] for e in post_order(group.result) if isinstance(e, Call)]
    kernel = f"generic.{'_'.join(names)}(unroll={plan.unroll})"
    func = b.finish(FuncAttrs(kernel=kernel, span=group.anchor.span))
    each = sum(_COST.get(str(e.op), 2) for e in post_order(group.result) if isinstance(e, Call)) + 3
    instructions = result.size * (each + 1) + result.size // plan.unroll * 8 + 20
    return Lowered(func, dict(ctx.constants), instructions, plan.unroll * (4 * each + 40) + 80)


def _emit_rows(ctx: TeContext, plan: Plan, out: Buffer, forms: tuple[TensorFn, TensorFn]) -> None:
    """Emit the loops; `forms`: the quick form and the whole one."""
    b, unroll, shape = ctx.builder, plan.unroll, tensor_type(plan.whole).shape
    current: list[Scalar] = [imm(0)]
    final = None
    if plan.last is not None:
        final = te_of(ctx, plan.last, [tensor_fn(shape, "float32", lambda _b, *_i: current[0])])

    def nest(indices: tuple[Scalar, ...]) -> None:
        axis = len(indices)
        if axis < len(shape) - 1:
            with b.for_("i", shape[axis]) as i:
                nest((*indices, i))
            return
        with b.for_("c", shape[axis], step=unroll) as c:
            kept = _values(b, forms, indices, c, count=unroll)
            results = []
            for k in range(unroll):
                current[0] = kept[k]
                results.append(b.let("result", current[0] if final is None else final.at(b, (*indices, c + k))))
            for k, value in enumerate(results):
                b.store(out, (*indices, c + k), value)

    nest(())


def _values(b: IRBuilder, forms: tuple[TensorFn, TensorFn], outer: tuple[Scalar, ...], first: Scalar, *, count: int) -> Buffer:
    """The values of `count` neighbouring elements: in the quick form and, unless all are finite, in the whole one."""
    quick, whole = forms
    values = [b.let("value", quick.at(b, (*outer, first + k))) for k in range(count)]
    kept = b.local("kept", (count,), "float32")
    for k, value in enumerate(values):
        b.store(kept, k, value)
    product: Scalar = values[0]
    for value in values[1:]:
        product = product * value
    product = b.let("product", product)
    with b.if_(binop("!=", product - product, imm(0.0, "float32"))):
        for k in range(count):
            b.store(kept, k, whole.at(b, (*outer, first + k)))
    return kept


register_planned("generic.finite", "*", plan_finite, lower_finite, plevel=1, larger=True)
