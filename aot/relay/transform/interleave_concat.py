"""A channel shuffle after a concatenation becomes a concatenation along another axis, which interleaves the operands."""

from __future__ import annotations

from dataclasses import field, replace

from aot.ir.op import T_OP_PATTERN, OpPattern
from aot.ir.transform import PassContext, function_pass
from aot.ir.type import TensorType
from aot.relay.analysis import BY_CHANNEL
from aot.relay.construct import reshaped
from aot.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    again,
    is_call,
    operands,
    post_order,
    rebuild,
    tensor_type,
    users,
    with_operands,
)
from aot.support.dataclass import dataclass


@function_pass(opt_level=2)
def interleave_concat(func: Function, _context: PassContext) -> Function:
    """Replace channel shuffles of concatenations by concatenations that interleave.

    In and out: operator calls.  Law: with n operands of the same last axis, [..., n, c] transposed to [..., c, n] equals their
    concatenation as [..., c, 1] along the last axis.  Element-wise operators of one tensor and borders of other axes may be in
    between; nothing else may read anything in between, so that nothing is computed twice.
    """
    work = _Shuffles(func)
    for expr in post_order(func.body):
        work.visit(expr)
    roots = work.roots()
    return work.rebuilt(roots) if roots else func


@dataclass(frozen=True, slots=True)
class _Shuffle:
    """A transpose, and the tensor whose last axis it splits in two parts that it exchanges."""

    of: Expr
    root: Call


@dataclass(slots=True)
class _Shuffles:
    func: Function
    readers: dict[int, list[Expr]] = field(init=False)
    shuffles: dict[int, _Shuffle] = field(default_factory=dict)
    """Shuffles by the id of their transpose."""
    views: set[int] = field(default_factory=set)
    """Reshapes between a tensor and the transpose."""
    done: dict[int, Expr] = field(default_factory=dict)
    shuffled: dict[int, Expr] = field(default_factory=dict)
    """By node on the path from a concatenation: the same value with its last axis shuffled."""

    def __post_init__(self) -> None:
        self.readers = users(self.func)

    def visit(self, expr: Expr) -> None:
        if not is_call(expr, "transpose"):
            return
        (view,) = operands(expr)
        axes, shape = expr.attrs.axes, tensor_type(view).shape
        last = len(shape) - 1
        if last < 1 or tuple(axes) != (*range(last - 1), last, last - 1) or not is_call(view, "reshape"):
            return
        of = operands(view)[0]
        root = _way(of)[-1] if _way(of) else None
        if not isinstance(root, Call) or tensor_type(of).shape[-1] != shape[-2] * shape[-1] or len(root.args) != shape[-2]:
            return
        if all(tensor_type(a).shape[-1] == shape[-1] for a in root.args):
            self.shuffles[id(expr)] = _Shuffle(of, root)
            self.views.add(id(view))

    def roots(self) -> set[int]:
        """The concatenations that only shuffles read."""
        removable = {id(s.root) for s in self.shuffles.values()}
        while True:
            inside = self.views | {id(e) for s in self.shuffles.values() if id(s.root) in removable for e in _way(s.of)}
            bad = {
                id(s.root)
                for s in self.shuffles.values()
                if id(s.root) in removable and not all(self._only(e, inside) for e in _way(s.of))
            }
            if not bad:
                return removable
            removable -= bad

    def _only(self, expr: Expr, inside: set[int]) -> bool:
        """Whether all readers are in between, or are the view of a shuffle that is removed."""
        return expr is not self.func.body and all(id(r) in inside for r in self.readers[id(expr)])

    def rebuilt(self, roots: set[int]) -> Function:
        def interleaved(expr: Expr, new: Expr) -> Expr:
            shuffle = self.shuffles.get(id(expr))
            if shuffle is None or id(shuffle.root) not in roots:
                return new
            return reshaped(self._shuffled(shuffle.of), tensor_type(expr).shape, shuffle.root.span)

        return replace(self.func, body=rebuild(self.func.body, interleaved, self.done))

    def _shuffled(self, expr: Expr) -> Expr:
        if id(expr) not in self.shuffled:
            if is_call(expr, "concatenate"):
                self.shuffled[id(expr)] = self._interleaved(expr)
            else:
                data, *others = operands(expr)
                self.shuffled[id(expr)] = with_operands(expr, [self._shuffled(data), *others])
        return self.shuffled[id(expr)]

    def _interleaved(self, root: Call) -> Expr:
        """The concatenation of the operands, interleaved element by element, in its original shape."""
        *outer, channels = tensor_type(root.args[0]).shape
        parts = [reshaped(self.done[id(a)], (*outer, channels, 1), root.span) for a in root.args]
        joined = again(root, parts, replace(root.attrs, axis=len(outer) + 1))
        return reshaped(joined, tensor_type(root).shape, root.span)


def _way(expr: Expr) -> list[Expr]:
    """The path back to a concatenation along the last axis, over nodes that work in any order of it; empty if there is none."""
    way: list[Expr] = [expr]
    while not is_call(root := way[-1], "concatenate"):
        data = _before(root)
        if data is None:
            return []
        way.append(data)
    return way if root.attrs.axis == len(tensor_type(root).shape) - 1 else []


def _before(expr: Expr) -> Expr | None:
    """The operand of a border of other axes, or of an element-wise operator of one tensor."""
    if not isinstance(expr, Call) or not expr.name or not isinstance(expr.type, TensorType) or not expr.args:
        return None
    data, *others = expr.args
    if isinstance(data, Constant) or not all(isinstance(o, Constant) and o.data.size == 1 for o in others):
        return None
    if expr.name == "nn.pad":
        return data if not any(expr.attrs.pad_width[-1]) else None
    simple = expr.name not in BY_CHANNEL and T_OP_PATTERN.get(expr.name) <= OpPattern.BROADCAST
    return data if simple and tensor_type(data).shape == expr.type.shape else None
