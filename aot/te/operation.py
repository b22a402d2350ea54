"""Tensors described by rules: `placeholder`, `compute` and reductions, modelled on TVM's tensor expressions.

    A = te.placeholder((8, 16), "int8", name="A")
    k = te.reduce_axis((0, 16), name="k")
    C = te.compute((8,), lambda i: te.sum(A[i, k].astype("int32"), axis=k), name="C")

Misuse raises UsageError: E5070 for arguments and expressions, E5071 for an index that may leave its tensor, E5072 for a rule that
fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from operator import index as to_int
from typing import Any, Literal

from aot.errors import AotError, Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_dtype, is_float
from aot.te.check import check_expression, check_indices
from aot.tir.buffer import Buffer
from aot.tir.expr import Expr, Imm, IntoExpr, Load, Symbol, Var, as_expr, binop
from aot.tir.functor import loads, walk_expr

AxisKind = Literal["data", "reduce"]
Combiner = Literal["sum", "prod", "max", "min"]

MAX_ELEMENTS = 1 << 31
"""Limit for a single tensor: indices are int32."""


def wrong(message: str, where: str = "", *, code: str = "E5070") -> UsageError:
    """A UsageError about a tensor expression."""
    return UsageError(Problem(code, message, where))


class IterVar(Symbol):
    """An axis: a dimension of a compute, a reduction, or a loop that a schedule derived from one.

    `extent` is the number of iterations, None for a loop whose extent depends on where its stage is computed.
    """

    __slots__ = ("extent", "kind", "name", "var")

    def __init__(self, name: str, kind: AxisKind, extent: int | None) -> None:
        self.name, self.kind, self.extent, self.var = name, kind, extent, Var(name)

    @property
    def dtype(self) -> str:
        """The type of the axis as a number."""
        return "int32"

    def as_expr(self) -> Expr:
        """The loop variable."""
        return self.var

    def __repr__(self) -> str:
        count = "?" if self.extent is None else self.extent
        return f"{self.name} in 0..{count}" + (" (reduction)" if self.kind == "reduce" else "")


@dataclass(frozen=True, slots=True, eq=False)
class Reduce(Symbol):
    """A reduction of `value` over `axes`; it can only be the whole rule of a compute."""

    combiner: Combiner
    value: Expr
    axes: tuple[IterVar, ...]

    @property
    def dtype(self) -> str:
        """The element type of the result."""
        return self.value.dtype

    def as_expr(self) -> Expr:
        """Refuse: a reduction cannot be part of an expression."""
        raise wrong("a reduction must be the whole rule of a compute; compute what follows it in another one")

    def identity(self) -> Imm:
        """The value that an accumulator starts from."""
        match self.combiner:
            case "sum":
                return _number(0, self.dtype)
            case "prod":
                return _number(1, self.dtype)
            case "max":
                return min_value(self.dtype)
            case "min":
                return max_value(self.dtype)

    def combine(self, acc: Expr) -> Expr:
        """The accumulator after combining one more value.

        `acc`: the accumulator before it.
        """
        op = {"sum": "+", "prod": "*"}.get(self.combiner, self.combiner)
        return binop(op, acc, self.value)


@dataclass(frozen=True, slots=True, eq=False)
class PlaceholderOp:
    """The operation of a tensor that the caller passes in."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class ComputeOp:
    """The rule of a tensor: `body` over the axes."""

    name: str
    axis: tuple[IterVar, ...]
    body: Expr | Reduce

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The axes that the rule reduces over."""
        return self.body.axes if isinstance(self.body, Reduce) else ()

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the rule reads, each once, in program order."""
        return read_tensors(self.body)


Operation = PlaceholderOp | ComputeOp


@dataclass(frozen=True, slots=True, eq=False)
class Tensor(Buffer):
    """A placeholder or the result of a compute; `t[i, j]` is an element of it.

    `made_by` is the operation, which does not refer back to the tensor.
    """

    made_by: Operation | None = None

    @property
    def op(self) -> TensorOp:
        """The tensor's operation, as accepted by `create_schedule` and `s[...]`."""
        return TensorOp(self)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    def __getitem__(self, indices: Any) -> Load:
        items = indices if isinstance(indices, tuple) else (indices,)
        if len(items) != len(self.shape):
            raise wrong(f"{len(items)} indices for {len(self.shape)} dimensions", f"tensor {self.name}")
        converted = tuple(as_expr(i) for i in items)
        for i in converted:
            if i.dtype != "int32":
                raise wrong(f"an index of type {i.dtype}; int32 is needed", f"tensor {self.name}")
        return Load(self, converted, self.dtype)

    def __call__(self, *indices: IntoExpr) -> Load:
        """The same as `t[indices]`."""
        return self[indices]

    def __iter__(self) -> Any:
        raise wrong("a tensor cannot be iterated over; use its elements in a compute", f"tensor {self.name}")

    def __repr__(self) -> str:
        return f"Tensor(shape={list(self.shape)}, dtype={self.dtype}, name={self.name})"


@dataclass(frozen=True, slots=True)
class TensorOp:
    """`tensor.op`: the axes of a compute, and its key in a schedule."""

    tensor: Tensor

    @property
    def name(self) -> str:
        """The tensor's name."""
        return self.tensor.name

    @property
    def axis(self) -> tuple[IterVar, ...]:
        """The axes of the compute, one per dimension (none for a placeholder)."""
        made_by = self.tensor.made_by
        return made_by.axis if isinstance(made_by, ComputeOp) else ()

    @property
    def reduce_axis(self) -> tuple[IterVar, ...]:
        """The axes that the compute reduces over."""
        made_by = self.tensor.made_by
        return made_by.reduce_axis if isinstance(made_by, ComputeOp) else ()

    @property
    def input_tensors(self) -> tuple[Tensor, ...]:
        """The tensors that the compute reads."""
        made_by = self.tensor.made_by
        return made_by.input_tensors if isinstance(made_by, ComputeOp) else ()

    def output(self, index: int = 0) -> Tensor:
        """The tensor; a compute has only one, number 0."""
        if index != 0:
            raise wrong(f"output {index} of a compute, which has one", f"tensor {self.name}")
        return self.tensor


def placeholder(shape: Sequence[int], dtype: str = "float32", name: str = "placeholder") -> Tensor:
    """A tensor that the caller passes in: extents of at least 1, and an element type.

    `shape`: the extents; `dtype`: such as "int8"; `name`: its name in messages and in C.
    """
    return _new(shape, dtype, PlaceholderOp(_name(name)))


def compute(shape: Sequence[int], fcompute: Callable[..., Any], name: str = "compute") -> Tensor:
    """A tensor defined by a rule: `fcompute` receives one axis per dimension and returns the expression of that element.

    The rule may also be a single reduction (`te.sum` …).  Raises E5070, E5071 if an index cannot be proven to stay inside its
    tensor, and E5072 if the rule itself fails.

    `shape`: the extents, each at least 1; `name`: its name in messages and in C.
    """
    name = _name(name)
    extents = _shape(shape, name)
    axis = tuple(IterVar(n, "data", e) for n, e in zip(_axis_names(fcompute, len(extents)), extents, strict=True))
    where = f"compute {name}"
    if not callable(fcompute):
        raise wrong(f"the rule is {type(fcompute).__name__}, not a function", where)
    try:
        body = fcompute(*(a.var for a in axis))
        if isinstance(body, bool):
            raise wrong(f"its rule returned {body}; == compares nodes, x.equal(y) values", where)
        if not isinstance(body, Reduce):
            body = as_expr(body)
    except AotError:
        raise
    except Exception as error:
        raise wrong(f"its rule raised {type(error).__name__}: {error}", where, code="E5072") from error
    _check_body(body, axis, where)
    return _new(extents, body.dtype, ComputeOp(name, axis, body))


def reduce_axis(dom: Sequence[int], name: str = "rv") -> IterVar:
    """An axis to reduce over: `dom` is (0, extent), since a reduction index starts from 0.

    `name`: its name in messages and in C.
    """
    name = _name(name)
    try:
        start, stop = (to_int(v) for v in dom)
    except (TypeError, ValueError):
        raise wrong(f"the range {dom!r} is not a pair of integers", f"reduce_axis {name}") from None
    if start != 0 or not 0 < stop < MAX_ELEMENTS:
        raise wrong(f"the range ({start}, {stop}); a reduction runs from 0 to at least 1", f"reduce_axis {name}")
    return IterVar(name, "reduce", stop)


def sum(expr: IntoExpr, axis: IterVar | Sequence[IterVar]) -> Reduce:
    """The sum of `expr` over `axis`, in the type of `expr`: convert to a wider one first."""
    return _reduce("sum", expr, axis)


def product(expr: IntoExpr, axis: IterVar | Sequence[IterVar]) -> Reduce:
    """The product of `expr` over `axis`."""
    return _reduce("prod", expr, axis)


def max(expr: IntoExpr, axis: IterVar | Sequence[IterVar]) -> Reduce:
    """The largest value of `expr` over `axis`."""
    return _reduce("max", expr, axis)


def min(expr: IntoExpr, axis: IterVar | Sequence[IterVar]) -> Reduce:
    """The smallest value of `expr` over `axis`."""
    return _reduce("min", expr, axis)


def min_value(dtype: str) -> Imm:
    """The smallest value of a type; for a float type the lowest finite one.

    `dtype`: the element type.
    """
    return Imm(_LOWEST[dtype], dtype) if is_float(_dtype(dtype)) else Imm(int_range(dtype)[0], dtype)


def max_value(dtype: str) -> Imm:
    """The largest value of a type; for a float type the highest finite one.

    `dtype`: the element type.
    """
    return Imm(-_LOWEST[dtype], dtype) if is_float(_dtype(dtype)) else Imm(int_range(dtype)[1], dtype)


_LOWEST = {"float16": -65504.0, "float32": -3.4028234663852886e38, "float64": -1.7976931348623157e308}


def read_tensors(body: Expr | Reduce) -> tuple[Tensor, ...]:
    """The tensors that a rule reads, each once."""
    value = body.value if isinstance(body, Reduce) else body
    return tuple(dict.fromkeys(load.buffer for load in loads(value) if isinstance(load.buffer, Tensor)))


def copy_of(tensor: Tensor, name: str) -> Tensor:
    """A compute with the same elements."""
    return compute(tensor.shape, lambda *i: tensor[i], name)


def tensor_of(op: ComputeOp, shape: Sequence[int]) -> Tensor:
    """The tensor of a ComputeOp that was built by hand."""
    return _new(shape, op.body.dtype, op)


def _new(shape: Sequence[int], dtype: str, made_by: Operation) -> Tensor:
    return Tensor(made_by.name, _shape(shape, made_by.name), _dtype(dtype, made_by.name), made_by=made_by)


def _number(value: int, dtype: str) -> Imm:
    return Imm(float(value) if is_float(dtype) else value, dtype)


def _reduce(combiner: Combiner, expr: IntoExpr, axis: IterVar | Sequence[IterVar]) -> Reduce:
    axes = (axis,) if isinstance(axis, IterVar) else tuple(axis) if isinstance(axis, Iterable) else (axis,)
    for a in axes:
        if not isinstance(a, IterVar) or a.kind != "reduce":
            raise wrong(f"{a!r} is not a reduction axis; make one with te.reduce_axis", f"te.{combiner}")
    if not axes or len(set(map(id, axes))) != len(axes):
        raise wrong("no axis, or one axis twice", f"te.{combiner}")
    value = as_expr(expr)
    if value.dtype == "bool":
        raise wrong("a reduction of bool; convert to an integer type with astype", f"te.{combiner}")
    return Reduce(combiner, value, axes)


def _check_body(body: Expr | Reduce, axis: Sequence[IterVar], where: str) -> None:
    value = body.value if isinstance(body, Reduce) else body
    axes = [*axis, *(body.axes if isinstance(body, Reduce) else ())]
    check_expression(value, where)
    ranges = {a.var: (0, (a.extent or 1) - 1) for a in axes}
    for e in walk_expr(value):
        if isinstance(e, Var) and e not in ranges:
            raise wrong(f"it uses {e.name}, which is neither an axis of it nor reduced over", where)
        if isinstance(e, Load) and not isinstance(e.buffer, Tensor):
            raise wrong(f"it reads {e.buffer.name}, which is not a tensor expression", where)
    check_indices(value, ranges, where)


def _axis_names(rule: Any, count: int) -> list[str]:
    """The names of the rule's parameters, if it names all of them."""
    code = getattr(rule, "__code__", None)
    names = list(code.co_varnames[: code.co_argcount]) if code is not None else []
    return names if len(names) == count else [f"i{n}" for n in range(count)]


def _name(name: object) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise wrong(f"{name!r} is not a name")
    return name


def _dtype(dtype: object, name: str = "") -> str:
    if isinstance(dtype, str) and is_dtype(dtype) and dtype not in ("int4", "float16"):
        return dtype
    raise wrong(f"unknown element type {dtype!r}", f"tensor {name}" if name else "")


def _shape(shape: Any, name: str) -> tuple[int, ...]:
    where = f"tensor {name}"
    try:
        extents = tuple(to_int(n) for n in shape) if isinstance(shape, Iterable) else (to_int(shape),)
    except TypeError:
        raise wrong(f"the shape {shape!r} is not a sequence of integers", where) from None
    if any(n < 1 for n in extents) or len(extents) > 16 or prod(extents) >= MAX_ELEMENTS:
        raise wrong(f"the shape {list(extents)}; extents are at least 1, at most 2^31 elements in 16 dimensions", where)
    return extents
