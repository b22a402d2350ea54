"""The variables of a model while its file is converted: one record for all subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field

import numpy as np

from aot.errors import Problem, UnsupportedError
from aot.frontend.tflite.check import called_subgraphs
from aot.frontend.tflite.view import ModelView, SubgraphView
from aot.ir.op import Array
from aot.ir.type import TensorType
from aot.relay.expr import Expr, Function, Var, make_tuple
from aot.relay.state import Variable, Variables, constant_of
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype

Frame = dict[object, Variable]
"""The variables used by a subgraph that becomes a function, with local values."""


def inside(outer: Variable) -> Variable:
    """The same variable inside a function, which gets its value as a parameter."""
    param = Var(outer.param.name, outer.type)
    return Variable(param, outer.initial, param)


class Persistent:
    """The variables of a model, by the tensor that is_variable or the resource's name, and who changes them.

    `initializing`: a subgraph of CALL_ONCE is being walked, so its assignments give initial values.
    """

    def __init__(self, view: ModelView) -> None:
        self.variables = Variables()
        self.frames: list[Frame] = []
        self.initializing = False
        self._initialized: set[int] = set()
        self._ids: dict[str, int] = {}
        self._view = view
        self._changed = changed_resources(view)
        self._entries = {0, *(s.subgraph for s in view.signatures)}
        graphs = view.subgraphs
        self._has_variables = any(op.opcode == "VAR_HANDLE" for g in graphs for op in g.operators) or any(
            t.is_variable for g in graphs for t in g.tensors
        )

    def here(self, key: object) -> Variable:
        """A variable as seen by the function under construction, where it starts as a parameter."""
        outer = self.variables.known[key]
        if not self.frames:
            return outer
        return self.frames[-1].setdefault(key, inside(outer))

    def resource_id(self, name: str) -> int:
        """The number of a resource, which identifies its handles."""
        return self._ids.setdefault(name, len(self._ids))

    def name_of(self, handle: Array | None) -> str | None:
        """The resource of a handle's value."""
        names = [name for name, number in self._ids.items() if handle is not None and handle.size == 1 and number == handle]
        return names[0] if names else None

    def begin(self, subgraph: int) -> bool:
        """Whether a subgraph of CALL_ONCE has not been walked yet: each runs once, however many operators call it."""
        if subgraph in self._initialized:
            return False
        self._initialized.add(subgraph)
        return True

    def resource(self, name: str, type_: TensorType | None, where: str) -> Variable:
        """The variable of that name; if it is new, of `type_` with zeros (E1152 without a type)."""
        variable = self.variables.known.get(name)
        if variable is None and type_ is None:
            message = f"the variable '{label(name)}' is read before its shape is known"
            raise UnsupportedError(Problem("E1152", message, where))
        return variable or self.declare(name, label(name), type_ or TensorType((), "float32"))

    def declare(self, key: object, name: str, type_: TensorType, initial: Array | None = None) -> Variable:
        """The variable of that key, with zeros if no value is given."""
        is_new = key not in self.variables.known
        variable = self.variables.declare(key, name or "state", type_, zeros(type_) if initial is None else initial)
        if is_new and self.initializing:
            variable.value = constant_of(variable)
        return variable

    @contextmanager
    def beginning(self, where: str, evaluate: Callable[[Expr], Array | None]) -> Iterator[None]:
        """While a subgraph of CALL_ONCE is walked: variables are constants, and their final values are the initial values.

        E1153 if an assigned variable is already in use, or its value is unknown.
        """
        if self.initializing:
            yield
            return
        variables = self.variables.known
        before = {key: (v.value, v.is_read, v.is_assigned) for key, v in variables.items()}
        begun = {key: constant_of(v) for key, v in variables.items()}
        self.variables.restore(dict(begun))
        self.initializing = True
        try:
            yield
        finally:
            self.initializing = False
            assigned = {key: v.value for key, v in variables.items() if v.is_assigned and v.value is not begun.get(key)}
            for key, v in variables.items():
                v.value, v.is_read, v.is_assigned = before.get(key, (v.param, False, False))
        for key, expr in assigned.items():
            variable, value = variables[key], evaluate(expr)
            if variable.is_read or variable.is_assigned or value is None:
                why = "has an initial value that is not known at compile time" if value is None else "is already in use"
                raise UnsupportedError(Problem("E1153", f"the variable '{variable.param.name}' {why}", where))
            variable.initial = np.asarray(value)

    def is_constant(self, name: str) -> bool:
        """Whether only the graphs of CALL_ONCE assign the resource."""
        return self._changed is not None and name not in self._changed

    @property
    def is_shared(self) -> bool:
        """Whether several signatures may use the variables."""
        return len(self._entries) > 1 and self._has_variables

    def others(self, subgraph: int) -> list[int]:
        """The graphs of the other signatures."""
        return sorted(self._entries - {subgraph}) if self.is_shared else []

    def join(self, other: Persistent) -> None:
        """Add the variables of another signature's graph (E1151 if they differ)."""
        for key, variable in other.variables.known.items():
            mine = self.declare(key, variable.param.name, variable.type, variable.initial)
            if (mine.type.shape, mine.type.dtype) != (variable.type.shape, variable.type.dtype):
                message = f"the variable '{mine.param.name}' is {mine.type} in one signature and {variable.type} in another"
                raise UnsupportedError(Problem("E1151", message))
            mine.is_kept = mine.is_kept or variable.is_read or variable.is_assigned

    def kept(self) -> tuple[Variable, ...]:
        """The variables that persist: those that this graph reads; if signatures share them, all, sorted by name."""
        variables = [(key, v) for key, v in self.variables.known.items() if not (isinstance(key, str) and self.is_constant(key))]
        if not self.is_shared:
            return tuple(v for _, v in variables if v.is_read)
        variables.sort(key=lambda item: self._rank(item[0]))
        return tuple(v for _, v in variables if v.is_read or v.is_assigned or v.is_kept)

    def _rank(self, key: object) -> tuple[str, ...]:
        """Resources by name, then tensors of the graphs, whose numbers depend on which signature comes first."""
        if not isinstance(key, tuple):
            return ("0", str(key))
        return ("1", self._view.subgraphs[key[0]].name, *(f"{k:>9}" for k in key[1:]))


def label(name: str) -> str:
    """A resource's name without an empty container."""
    return name.partition("/")[2] or name


def zeros(type_: TensorType) -> Array:
    """The initial content of variables: zeros, for int8 values the zero point, as in both references."""
    zero = type_.quant.zero_point[0] if type_.quant is not None and type_.dtype == "int8" else 0
    return np.full(type_.shape, zero, numpy_dtype(type_.dtype))


def changed_resources(view: ModelView) -> frozenset[str] | None:
    """Names of the resources that graphs other than those of CALL_ONCE assign; None if a handle comes from elsewhere."""
    names: set[str] = set()
    for index in _running(view):
        graph = view.subgraphs[index]
        handles = _handles(graph)
        for op in graph.operators:
            if op.opcode == "ASSIGN_VARIABLE" and op.inputs:
                if op.inputs[0] not in handles:
                    return None
                names.add(handles[op.inputs[0]])
    return frozenset(names)


def _handles(graph: SubgraphView) -> dict[int, str]:
    """Tensor -> name of the resource of this handle."""
    named = [op for op in graph.operators if op.opcode == "VAR_HANDLE" and op.outputs]
    return {op.outputs[0]: f"{op.option('container')}/{op.option('shared_name')}" for op in named}


def _running(view: ModelView) -> set[int]:
    """Subgraphs that run each time: the entries and what they call, except by CALL_ONCE."""
    waiting = [0, *(s.subgraph for s in view.signatures)]
    graphs: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index in graphs or not 0 <= index < len(view.subgraphs):
            continue
        graphs.add(index)
        for op in view.subgraphs[index].operators:
            if op.opcode != "CALL_ONCE":
                waiting += called_subgraphs(op)
    return graphs


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A subgraph walked to become a function: its parameters, its results, and the variables that it uses."""

    name: str
    params: tuple[Var, ...]
    results: tuple[Expr, ...]
    frame: Frame
    made: dict[object, Function] = field(default_factory=dict)

    def function(self, variables: tuple[Variable, ...], returned: tuple[Variable, ...]) -> Function | None:
        """The function of these variables and its own parameters, which returns some of the variables; None without results."""
        results = (*self.results, *(v.value for v in returned))
        if not results:
            return None
        key = (tuple(v.param.name if v not in self.frame.values() else id(v) for v in variables), len(returned))
        if key not in self.made:
            body = results[0] if len(results) == 1 else make_tuple(results)
            self.made[key] = Function((*self.params, *(v.param for v in variables)), body, {"name": self.name})
        return self.made[key]
