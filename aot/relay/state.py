"""Persistent tensors of a model: what one run leaves for the next.

In a module they are values like all others, so no pass needs a notion of side effects: the last parameters of `main` are the
values before a run, the last fields of its result those after it, in one order.  `main.attrs["state"]` says of each its name and
the value at the start.  An operator that changes a state gives (result ..., new state ...); a `Variable` hands the new value to
whatever reads the state next, in the order of the file.
"""

from __future__ import annotations

from dataclasses import field

from aot.ir.op import Array, TypeRuleError
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import TensorType
from aot.relay.expr import Constant, Expr, Function, Tuple, Var, const, tensor_type
from aot.support.dataclass import dataclass

STATE = "state"
"""The attribute of main: a StateTensor for each of its last parameters, and for each of the last fields of its result."""


@dataclass(frozen=True, slots=True)
class StateTensor:
    """A persistent tensor of main; `initial` has the shape and dtype of its parameter.

    `shared`: other signatures of the file use it too.  `slid`: `--slide` made it, of rows that the last push computed.
    """

    name: str
    initial: Array
    shared: bool = False
    slid: bool = False


def state_of(main: Function) -> tuple[StateTensor, ...]:
    """The persistent tensors of `main`, in the order of its last parameters."""
    found: tuple[StateTensor, ...] = main.attrs.get(STATE, ())
    return found


def input_vars(main: Function) -> tuple[Var, ...]:
    """The parameters that a caller gives."""
    return main.params[: len(main.params) - len(state_of(main))]


def state_vars(main: Function) -> tuple[Var, ...]:
    """The parameters that a run finds as the last one left them."""
    return main.params[len(main.params) - len(state_of(main)) :]


def result_exprs(main: Function) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    """(what a caller gets, what stays as state), where the body is a tuple or a single value."""
    fields = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    cut = len(fields) - len(state_of(main))
    return fields[:cut], fields[cut:]


@dataclass(slots=True, eq=False)
class Variable:
    """A persistent tensor while a graph is made of a file: `value` is what the next operator reads."""

    param: Var
    initial: Array
    value: Expr
    is_read: bool = False
    is_assigned: bool = False
    is_kept: bool = False

    @property
    def type(self) -> TensorType:
        """Shape, element type and the quantisation of whoever named the tensor first."""
        return self.param.type

    def read(self) -> Expr:
        """The value now."""
        self.is_read = True
        return self.value

    def assign(self, value: Expr) -> None:
        """Replace the value; TypeRuleError for one of another shape or element type."""
        given = tensor_type(value)
        if (given.shape, given.dtype) != (self.type.shape, self.type.dtype):
            raise TypeRuleError(f"{given} is assigned to the state {self.param.name}, which is {self.type}")
        self.is_assigned = True
        self.value = value


@dataclass(slots=True)
class Variables:
    """All persistent tensors of a graph that is being made, in the order in which they were declared.

    `values` and `restore` are for branches: a branch is walked from the values before it, and what it has changed is a result of
    it.
    """

    known: dict[object, Variable] = field(default_factory=dict)

    def declare(self, key: object, name: str, type_: TensorType, initial: Array, *, span: Span = NO_SPAN) -> Variable:
        """The variable of that key, new if there is none."""
        if key not in self.known:
            param = Var(name, type_, span)
            self.known[key] = Variable(param, initial, param)
        return self.known[key]

    def values(self) -> dict[object, Expr]:
        """The value of each now."""
        return {key: variable.value for key, variable in self.known.items()}

    def restore(self, values: dict[object, Expr]) -> None:
        """Back to such values; a variable that was declared later has that of the start of the run."""
        for key, variable in self.known.items():
            variable.value = values.get(key, variable.param)


def constant_of(variable: Variable, *, span: Span = NO_SPAN) -> Constant:
    """The initial value as a constant, for a state that nothing changes."""
    return const(variable.initial, quant=variable.type.quant, dtype=variable.type.dtype, span=span)
