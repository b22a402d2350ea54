"""Persistent tensors of a model: what one run keeps for the next.

In a module they are ordinary values, so no pass needs a notion of side effects: the last parameters of `main` are the values
before a run, the last fields of its result the values after it, in the same order.  `main.attrs["state"]` gives the name and
initial value of each.  An operator that changes a state yields (result ..., new state ...); a `Variable` passes the new value to
whatever reads the state next, in the order of the file.
"""

from __future__ import annotations

from dataclasses import field

import numpy as np

from aot.ir.op import F_EVALUATE, F_IS_VIEW, T_OP_PATTERN, Array, OpPattern, TypeRuleError
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import TensorType
from aot.relay.expr import Call, Constant, Expr, Function, Tuple, Var, const, is_call, operands, post_order, tensor_type
from aot.support.dataclass import dataclass
from aot.support.dtype import itemsize, numpy_dtype

STATE = "state"
"""The attribute of main: a StateTensor per state, in the order of its last parameters and of the last fields of its result."""


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A persistent tensor of main; `initial` has the shape and dtype of its parameter.

    `shared`: other signatures of the file use it too.  `slid`: created by `--slide`, from rows that the last push computed.
    """

    name: str
    initial: Array
    shared: bool = False
    slid: bool = False


def state_of(main: Function) -> tuple[StateTensor, ...]:
    """The persistent tensors of `main`, in the order of its last parameters."""
    state: tuple[StateTensor, ...] = main.attrs.get(STATE, ())
    return state


def input_vars(main: Function) -> tuple[Var, ...]:
    """The parameters that the caller passes."""
    return main.params[: len(main.params) - len(state_of(main))]


def state_vars(main: Function) -> tuple[Var, ...]:
    """The parameters that keep their values from the last run."""
    return main.params[len(main.params) - len(state_of(main)) :]


def result_exprs(main: Function) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """(results for the caller, new state), whether the body is a tuple or a single value."""
    fields = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    cut = len(fields) - len(state_of(main))
    return fields[:cut], fields[cut:]


def zero_window(type_: TensorType) -> Array:
    """A tensor of zeros; of the zero point if it is quantised."""
    zero = type_.quant.zero_point[0] if type_.quant is not None else 0
    return np.full(type_.shape, zero, numpy_dtype(type_.dtype))


@dataclass(slots=True, eq=False)
class Variable:
    """A persistent tensor while a graph is built from a file: `value` is what the next operator reads."""

    param: Var
    initial: Array
    value: Expr
    is_read: bool = False
    is_assigned: bool = False
    is_kept: bool = False

    @property
    def type(self) -> TensorType:
        """Shape and element type, with the quantisation of the first use."""
        return self.param.type

    def read(self) -> Expr:
        """The current value."""
        self.is_read = True
        return self.value

    def assign(self, value: Expr) -> None:
        """Replace the value; TypeRuleError for one of another shape or element type."""
        type_ = tensor_type(value)
        if (type_.shape, type_.dtype) != (self.type.shape, self.type.dtype):
            raise TypeRuleError(f"{type_} is assigned to the state {self.param.name}, which is {self.type}")
        self.is_assigned = True
        self.value = value


@dataclass(slots=True)
class Variables:
    """All persistent tensors of a graph under construction, in order of declaration.

    `values` and `restore` are for branches: a branch starts from the values before it, and the values that it changes are results
    of the branch.
    """

    known: dict[object, Variable] = field(default_factory=dict)

    def declare(self, key: object, name: str, type_: TensorType, initial: Array, *, span: Span = NO_SPAN) -> Variable:
        """The variable with that key, created if necessary."""
        if key not in self.known:
            param = Var(name, type_, span)
            self.known[key] = Variable(param, initial, param)
        return self.known[key]

    def values(self) -> dict[object, Expr]:
        """The current value of each variable."""
        return {key: variable.value for key, variable in self.known.items()}

    def restore(self, values: dict[object, Expr]) -> None:
        """Return to earlier values; a variable that was declared later gets its value from the start of the run."""
        for key, variable in self.known.items():
            variable.value = values.get(key, variable.param)


def constant_of(variable: Variable, *, span: Span = NO_SPAN) -> Constant:
    """The initial value as a constant, for a state that never changes."""
    return const(variable.initial, quant=variable.type.quant, dtype=variable.type.dtype, span=span)


# Bytes of a state that layers copy only to keep them: elements of the new value that are old elements at another place.
#
# Each element of a state has a number, and the graph is run on numbers.  A movement (concatenate, a slice, a view) moves them; an
# element-wise operator of one tensor passes them on, since what it computes from an old element needs nothing new; every other
# operator creates new elements (0).


MOVEMENTS = ("concatenate", "strided_slice", "transpose", "reshape")
"""Operators whose `evaluate` only moves elements, whatever they are."""


@dataclass(frozen=True, slots=True)
class Carried:
    """`kept`: bytes of each state's new value that are old bytes at another place.

    `layers`: by the id of a call of a fused function that concatenates or slices its operands on the way to a new value, how many
    bytes of its result belong to a state that keeps some.
    """

    kept: tuple[int, ...]
    layers: dict[int, int]


def carried(main: Function) -> Carried:
    """What is copied if nothing is done about it, for a function after fusion; results of branches and loops count as new."""
    starts, numbers = [], dict[int, Array]()
    end = 1
    for var in state_vars(main):
        starts.append(end)
        numbers[id(var)] = np.arange(end, end + var.type.size, dtype=np.int64).reshape(var.type.shape)
        end += var.type.size
    layers = _run(main, numbers)
    kept, news, moves = [], list[Expr](), np.zeros(end, bool)
    for start, var, new in zip(starts, state_vars(main), result_exprs(main)[1], strict=True):
        now = numbers[id(new)].reshape(-1)
        stays = np.arange(start, start + var.type.size)
        old = (now >= start) & (now < start + var.type.size) & (now != stays)
        kept.append(int(old.sum()) * itemsize(var.type.dtype))
        moves[start : start + var.type.size] = old.any()
        news += [new] if old.any() else []
    table, seen = dict[int, int](), set[int]()
    while news:
        expr = news.pop()
        carries = int(moves[numbers[id(expr)]].sum()) if id(expr) in numbers else 0
        if carries and id(expr) not in seen:
            seen.add(id(expr))
            news += operands(expr)
            if id(expr) in layers:
                table[id(expr)] = carries * layers[id(expr)]
    return Carried(tuple(kept), table)


def _run(func: Function, numbers: dict[int, Array]) -> dict[int, int]:
    """Add the numbers of all values of `func` to `numbers`; return the layers that move some, with their bytes per element."""
    layers: dict[int, int] = {}
    for expr in post_order(func.body):
        if id(expr) in numbers or not isinstance(expr.type, TensorType):
            continue
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            inner = {id(p): numbers.get(id(a), _new(a)) for p, a in zip(expr.op.params, expr.args, strict=True)}
            _run(expr.op, inner)
            numbers[id(expr)] = inner[id(expr.op.body)]
            if any(is_call(e, *MOVEMENTS) for e in post_order(expr.op.body)):
                layers[id(expr)] = itemsize(tensor_type(expr).dtype)
        else:
            numbers[id(expr)] = _step(expr, numbers)
    return layers


def _new(expr: Expr) -> Array:
    return np.zeros(tensor_type(expr).shape, np.int64)


def _step(expr: Expr, numbers: dict[int, Array]) -> Array:
    if not isinstance(expr, Call) or not expr.name:
        return _new(expr)
    if expr.name in MOVEMENTS:
        parts = [numbers[id(a)] if id(a) in numbers else _new(a) for a in expr.args]
        return np.asarray(F_EVALUATE.get(expr.name)(*parts, attrs=expr.attrs, out_type=tensor_type(expr)))
    elements = [numbers.get(id(a)) for a in expr.args if not isinstance(a, Constant)]
    type_, only = tensor_type(expr), elements[0] if len(elements) == 1 else None
    keeps_elements = F_IS_VIEW.find(expr.name) or T_OP_PATTERN.get(expr.name) == OpPattern.ELEMWISE
    return only.reshape(type_.shape) if only is not None and only.size == type_.size and keeps_elements else _new(expr)
