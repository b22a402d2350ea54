"""Move transposes towards the results, past what does not mind the order of dimensions, until they meet and cancel.

Converters from PyTorch put a convolution between two transposes; what lies between one convolution and the next then runs in
the other layout, and every tensor is moved twice.
"""

from __future__ import annotations

from dataclasses import field, replace

from aot.ir.op import Op
from aot.ir.transform import PassContext, function_pass
from aot.relay.analysis.rearrangement import Rearrangement
from aot.relay.expr import Call, Expr, Function, operands, post_order, tensor_type, with_operands
from aot.relay.transform._moved import Moved, reshaped, transposed
from aot.relay.transform._sink_rules import sunk
from aot.support.dataclass import dataclass


@function_pass(opt_level=2)
def sink_transpose(func: Function, _context: PassContext) -> Function:
    """Rebuild what lies behind transposes in the layout before them, wherever fewer elements are moved then.

    In and out: operator calls.  Law: f(T(x)) = T(f'(x)) for element-wise operators, borders, slices, reductions and
    concatenations, f' being f with its dimensions renamed; a layer of integers that reads T(x) row by row takes its weights in
    another order.  Transposes and reshapes in a row are one transpose or none.  Each group of transposes that meet is judged by
    itself; one that would not move fewer elements stays as it is.  Not done: GELU, whose last elements the reference computes in
    another way; reductions of floats over dimensions that change places.
    """
    barred: set[int] = set()
    while True:
        work = _Sinking(func, frozenset(barred))
        new = work.run()
        worse = work.not_better() or work.twice()
        if not worse:
            return new if work.gains() else func
        barred |= worse


@dataclass(slots=True)
class _Sinking:
    """One walk over a function; `barred`: nodes (by their id) that stay where they are, transposes and what reads them."""

    func: Function
    barred: frozenset[int]
    plain: dict[int, Expr] = field(default_factory=dict)
    moved: dict[int, Moved] = field(default_factory=dict)
    leader: dict[int, int] = field(default_factory=dict)
    before: dict[int, int] = field(default_factory=dict)
    after: dict[int, int] = field(default_factory=dict)
    emitted: dict[tuple[int, Rearrangement], Expr] = field(default_factory=dict)
    passed: dict[int, Moved] = field(default_factory=dict)

    def run(self) -> Function:
        for expr in post_order(self.func.body):
            found = self._sunk(expr)
            if found is None:
                self.plain[id(expr)] = with_operands(expr, [self._whole(o) for o in operands(expr)])
            else:
                self.moved[id(expr)] = found
        return Function(self.func.params, self._whole(self.func.body), self.func.attrs)

    def gains(self) -> bool:
        return bool(self.before)

    def not_better(self) -> set[int]:
        """The transposes of groups that move as many elements as before, or more."""
        sums: dict[int, tuple[int, int]] = {}
        for node in self.before:
            old, new = sums.get(self._leader(node), (0, 0))
            sums[self._leader(node)] = (old + self.before[node], new)
        for node, elements in self.after.items():
            old, new = sums[self._leader(node)]
            sums[self._leader(node)] = (old, new + elements)
        return {node for node in self.before if sums[self._leader(node)][1] >= sums[self._leader(node)][0]}

    def twice(self) -> set[int]:
        """Operators of one tensor before which and behind which the same transpose is needed: once before them is enough."""
        return {
            key
            for key, before in self.passed.items()
            if {(id(before.base), before.by), (id(self.moved[key].base), before.by)} <= self.emitted.keys()
        }

    # ---- groups

    def _leader(self, node: int) -> int:
        while self.leader.get(node, node) != node:
            node = self.leader[node]
        return node

    def _join(self, nodes: list[int]) -> int:
        first = self._leader(nodes[0])
        for node in nodes[1:]:
            self.leader[self._leader(node)] = first
        return first

    # ---- values

    def _sunk(self, expr: Expr) -> Moved | None:
        """The value of a call as a tensor in another order, if it can be one."""
        if not isinstance(expr, Call) or not isinstance(expr.op, Op) or id(expr) in self.barred:
            return None
        if expr.op.name == "transpose":
            return self._transposed(expr)
        args = [self.moved.get(id(a)) for a in expr.args]
        found = [a for a in args if a is not None]
        if all(a.by.is_identity for a in found):
            return None
        if expr.op.name == "reshape":
            return found[0]
        new = sunk(expr, [a or self.plain[id(e)] for a, e in zip(args, expr.args, strict=True)])
        if new is None:
            return None
        if len(args) == 1:
            self.passed[id(expr)] = found[0]
        return replace(new, group=self._join([a.group for a in found]))

    def _transposed(self, expr: Call) -> Moved | None:
        data, axes = expr.args[0], tuple(expr.attrs.axes)
        shape = tensor_type(data).shape
        own = Rearrangement.of(shape, axes)
        inner = self.moved.get(id(data))
        by = own if inner is None else inner.by.then(shape, axes)
        if by is None:
            return None
        self.before[id(expr)] = 0 if own.is_identity else own.elements
        self.leader[id(expr)] = id(expr)
        if inner is None:
            return Moved(self.plain[id(data)], by, id(expr), expr.span)
        return Moved(inner.base, by, self._join([inner.group, id(expr)]), expr.span)

    def _whole(self, expr: Expr) -> Expr:
        """The expression as it was, in its own shape."""
        value = self.moved.get(id(expr))
        if value is None:
            return self.plain[id(expr)]
        shape, by = tensor_type(expr).shape, value.by
        if by.is_identity:
            return reshaped(value.base, shape, value.span)
        key = (id(value.base), by)
        if key not in self.emitted:
            self.emitted[key] = transposed(reshaped(value.base, by.sizes, value.span), by.order, value.span)
            self.after[value.group] = self.after.get(value.group, 0) + by.elements
        return reshaped(self.emitted[key], shape, value.span)
