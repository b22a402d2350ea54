"""From the view of a .tflite file to a relay module: the graph walk that calls the operators' converters.

Shapes follow from the inputs' shapes, by the operators' own rules.  The file's declared shape of a computed value is compared
with the result if its signature is static, and ignored if not: for a dynamic batch, converters write a 1 for every dimension that
contains the batch.

Every operator is visited even after one has failed: a variable of the declared type stands in for the result of a failed
operator, so that one run reports everything that is wrong with a model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field
from functools import partial
from math import prod
from typing import NoReturn

import numpy as np

from aot.errors import AotError, Problem, UnsupportedError
from aot.frontend.problems import Problems, error_of
from aot.frontend.tflite import check
from aot.frontend.tflite import view as views
from aot.frontend.tflite.check import needs_elements
from aot.frontend.tflite.convert import Blocks, Operator, converter_of
from aot.frontend.tflite.list_write import convert_list_write, list_writes
from aot.frontend.tflite.persistent import Part, Persistent, inside
from aot.frontend.walk import Unknowable, converting, evaluate, main_function
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.ir.span import Span
from aot.ir.type import QuantParams, TensorType
from aot.relay.expr import Expr, Function, Var, const, post_order, tensor_type
from aot.relay.state import Variable, constant_of
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype


def from_tflite(model: bytes | views.ModelView, *, subgraph: int = 0, oracle: str = "litert", name: str = "model") -> IRModule:
    """The relay module of a model: one function `main` over `subgraph`.

    `main`'s attrs: `outputs` (the Span of each output, with its name and tensor index) and `output_types` (as declared in the
    file, with quantisation).  Raises ModelError or UnsupportedError with all problems of all operators.
    """
    problems = Problems()
    view = check.check_bytes(model, problems) if isinstance(model, bytes) else model
    module = _convert(view, problems, subgraph=subgraph, oracle=oracle, name=name)
    error = error_of(problems.report())
    if error is not None:
        raise error
    assert module is not None, "without a problem there is a module"
    return module


def check_model(data: bytes, *, oracle: str = "litert") -> list[Problem]:
    """Everything that prevents compiling a file: structural problems and every converter's complaints."""
    problems = Problems()
    view = check.check_bytes(data, problems)
    _convert(view, problems, subgraph=0, oracle=oracle, name="model")
    return problems.report()


def _convert(view: views.ModelView | None, problems: Problems, *, subgraph: int, oracle: str, name: str) -> IRModule | None:
    """Walk the graph, unless its structure cannot be relied on."""
    if view is None or any(p.code.startswith(("E10", "E11")) for p in problems.found):
        return None
    if not 0 <= subgraph < len(view.subgraphs):
        problems.add("E1103", f"subgraph {subgraph} does not exist, the model has {len(view.subgraphs)}")
        return None
    walk = GraphWalk(view, subgraph, oracle=oracle, problems=problems)
    # Converters compute with numbers from the file; an overflow there is for them to judge, not for numpy to print.
    with np.errstate(all="ignore"):
        walk.visit_all()
        try:
            for other in walk.persistent.others(subgraph):
                walk.persistent.join(_variables_of(view, other, oracle=oracle))
        except AotError as error:
            problems.extend(error.problems)
        function = walk.function()
    return IRModule({"main": function}, name) if function is not None else None


def _variables_of(view: views.ModelView, subgraph: int, *, oracle: str) -> Persistent:
    """The variables of another signature's graph; its problems are reported with it."""
    walk = GraphWalk(view, subgraph, oracle=oracle, problems=Problems())
    walk.visit_all()
    return walk.persistent


MAX_INLINED = 1 << 16
"""Maximum total number of operators from called subgraphs; a chain of calls could otherwise grow without bound."""


_WHATEVER_THE_SHAPES = frozenset(
    {"E1201", "E1202", "E1206", "E1208", "E1209", "E1218", "E1220", "E1223", "E1224", "E1225", "E1226", "E1227", "E1228"}
)
"""Problems that an operator has with operands of any shape."""


@dataclass(slots=True)
class _Shared:
    """What the walks of a model's graphs share.

    `stand_ins`: ids of the results of operators that failed; `kept`: expressions whose ids must stay unique; `operators_left`:
    how many operators called subgraphs may still add; `bytes`: of all computed tensors.
    """

    persistent: Persistent
    operators_left: int
    stand_ins: set[int] = field(default_factory=set)
    functions: dict[Hashable, Part] = field(default_factory=dict)
    kept: list[Expr] = field(default_factory=list)
    bytes: int = 0


class GraphWalk:
    """Converts one subgraph in the order of its operators; it is the `ConvertContext` that converters see."""

    def __init__(
        self,
        view: views.ModelView,
        subgraph: int,
        *,
        oracle: str,
        problems: Problems,
        shared: _Shared | None = None,
        site: Span | None = None,
        apart: bool = False,
    ) -> None:
        """`site`: the span of the operator that runs the graph, None for an entry of the model.  Nodes of an inlined graph get
        that span; those of a function (`apart`) keep their own names.
        """
        self.view = view
        self.graph = view.subgraphs[subgraph]
        self._oracle, self._problems = oracle, problems
        self._site, self._apart = site, apart
        self._shared = shared or _Shared(Persistent(view), MAX_INLINED)
        self.persistent = self._shared.persistent
        self._list_writes = list_writes(self.graph)
        self._values: dict[int, Expr] = {}
        self._params: list[Var] = []
        self._unshaped: set[int] = set()
        self.failed = False
        if site is None:
            for index in self.graph.inputs:
                self._params.append(self._parameter(self.graph.tensors[index]))
                if check.open_axes(self.graph.tensors[index]):
                    self._unshaped.add(index)

    # Queries of converters (aot.frontend.tflite.convert.ConvertContext).

    @property
    def oracle(self) -> str:
        """Whose rounding is requested: "litert" or "tflm"."""
        return "tflm" if self._oracle == "tflm" else "litert"

    @property
    def to_the_letter(self) -> bool:
        """Whether faults of LiteRT's reference kernels are to be reproduced too."""
        return self._oracle == "litert-reference"

    def blocks(self, op: views.OperatorView, i: int) -> Blocks | None:
        """How operand i is quantised in blocks; None if it is not (E1220 for kinds that no operator supports)."""
        tensor = self.graph.tensors[op.input(i)] if op.input(i) != views.ABSENT else None
        block = tensor.quant.block if tensor is not None and tensor.quant is not None else None
        if tensor is None or block is None:
            return None
        scales = self.graph.tensors[block.scales].data if block.scales != views.ABSENT else None
        size, width = block.block_size, tensor.shape[-1] if tensor.shape else 0
        if block.kind != "blockwise" or scales is None or size < 1 or width % size or scales.size * size != prod(tensor.shape):
            self._refuse(op, "E1220", f"{tensor.where}: this {block.kind} quantisation is not supported")
        return Blocks(size, np.asarray(scales, np.float32).reshape(-1, width // size))

    def span(self, op: views.OperatorView) -> Span:
        """The origin of this operator's results; in an inlined subgraph, the operator that runs it."""
        return self.result_span(op, 0)

    def result_span(self, op: views.OperatorView, i: int) -> Span:
        """The origin of result i."""
        if self._site is not None and not self._apart:
            return self._site
        index = op.outputs[i] if i < len(op.outputs) else -1
        name = self.graph.tensors[index].name if index >= 0 else ""
        return Span(op.index, op.opcode, name, index) if self._site is None else Span(self._site.op_index, op.opcode, name)

    def input(self, op: views.OperatorView, i: int) -> Expr | None:
        """Operand i; None if the operator leaves it out."""
        index = op.input(i)
        return None if index == views.ABSENT else self._value(op, index)

    def tensor(self, op: views.OperatorView, index: int) -> Expr:
        """The value of a tensor of the graph by its index."""
        return self._value(op, index)

    def constant(self, op: views.OperatorView, i: int) -> Array:
        """The value of operand i, which must be known at compile time: a constant, or computed from constants and shapes."""
        expr = self.input(op, i)
        if expr is None:
            self._refuse(op, "E1205", f"operand {i} is missing")
        value = evaluate(expr)
        if value is None and any(id(e) in self._shared.stand_ins for e in post_order(expr)):
            raise Unknowable
        if value is None:
            tensor = self.graph.tensors[op.inputs[i]]
            self._refuse(op, "E1204", f"operand {i}, {tensor.where}, must be a constant")
        return value

    def input_type(self, op: views.OperatorView, i: int) -> TensorType:
        """The type of operand i: the computed shape, everything else as declared."""
        index = op.input(i)
        if index == views.ABSENT:
            self._refuse(op, "E1205", f"operand {i} is missing")
        return self._type(op, self.graph.tensors[index])

    def output_type(self, op: views.OperatorView, i: int = 0) -> TensorType:
        """The declared element type and quantisation of result i, without dimensions: those follow from the operands."""
        declared = self._type(op, self._result(op, i))
        return TensorType((), declared.dtype, declared.quant)

    def intermediate_type(self, op: views.OperatorView, i: int) -> TensorType:
        """The declared type of intermediate tensor i, which holds only quantisation parameters."""
        if i >= len(op.intermediates) or op.intermediates[i] == views.ABSENT:
            self._refuse(op, "E1205", f"intermediate tensor {i} is missing")
        return self._type(op, self.graph.tensors[op.intermediates[i]])

    def output_shape(self, op: views.OperatorView, i: int = 0) -> tuple[int, ...] | None:
        """The declared shape of result i if the file fixes it, else None; for shapes that the operands leave open."""
        tensor = self._result(op, i)
        return None if tensor.is_open else tensor.shape

    def inline(self, op: views.OperatorView, subgraph: int) -> Sequence[Expr]:
        """The outputs of another subgraph on the operands of `op` (its structure has been checked)."""
        args: list[Expr] = []
        for i in range(len(op.inputs)):
            self.input_type(op, i)  # refuses operands that are left out
            value = self.input(op, i)
            assert value is not None
            args.append(value)
        inner = self._inner(op, subgraph, args, apart=self._apart)
        for index, value in zip(inner.graph.inputs, args, strict=True):
            inner._values[index] = value
        return self._walked(op, inner)

    def subgraphs(
        self, op: views.OperatorView, indices: Sequence[int], args: Sequence[Expr], *, known: frozenset[int], loop: bool = False
    ) -> tuple[list[Function], list[Variable]]:
        """Other subgraphs as functions of `args` and of the variables that any of them reads or assigns, which are returned.

        Args in `known` are constants inside.  Assigned variables come first and are additional results; for a loop all are, and
        only its last function has results.
        """
        parts = [self._subgraph(op, index, args, known=known) for index in indices]
        assigned = {k: None for p in parts for k, v in p.frame.items() if v.is_assigned}
        keys = [*assigned, *dict.fromkeys(k for p in parts for k in p.frame if k not in assigned)]
        if loop and any(v.is_assigned for p in parts[:-1] for v in p.frame.values()):
            self._refuse(op, "E1154", "the condition of a loop assigns a variable")
        variables = [self.persistent.here(k) for k in keys]
        functions: list[Function] = []
        for p in parts:
            own = [p.frame.get(k) or inside(v) for k, v in zip(keys, variables, strict=True)]
            returned = own[: 0 if loop and p is not parts[-1] else None if loop else len(assigned)]
            function = p.function(tuple(own), tuple(returned))
            if function is None:
                self._refuse(op, "E1163", "it has no results, and its subgraphs assign no variable")
            functions.append(function)
        return functions, variables

    def _subgraph(self, op: views.OperatorView, index: int, args: Sequence[Expr], *, known: frozenset[int]) -> Part:
        """A subgraph walked on `args`; a subgraph used twice with the same types and constants is walked once."""
        key = (index, tuple(id(a) if i in known else (a.type, id(a) in self._shared.stand_ins) for i, a in enumerate(args)))
        if key not in self._shared.functions:
            inner = self._inner(op, index, args, apart=True)
            params = []
            for i, (tensor, arg) in enumerate(zip(inner.graph.inputs, args, strict=True)):
                view = inner.graph.tensors[tensor]
                param = Var(view.name or f"arg{i}", declared_type(view, shape=tensor_type(arg).shape), Span(name=view.name))
                params.append(param)
                inner._values[tensor] = arg if i in known else param
            self._shared.kept += args  # keeps their ids unique
            self.persistent.frames.append({})
            try:
                results = self._walked(op, inner)
            finally:
                frame = self.persistent.frames.pop()
            self._shared.functions[key] = Part(inner.graph.name, tuple(params), tuple(results), frame)
        return self._shared.functions[key]

    def handed_on(self, index: int) -> frozenset[int]:
        """The indices of a subgraph's inputs that are its outputs with the same index."""
        graph = self.view.subgraphs[index]
        return frozenset(i for i, (a, b) in enumerate(zip(graph.inputs, graph.outputs, strict=False)) if a == b)

    def operators_of(self, index: int) -> tuple[str, ...]:
        """The operators of a subgraph, in their order."""
        return tuple(op.kind for op in self.view.subgraphs[index].operators)

    def _inner(self, op: views.OperatorView, subgraph: int, args: Sequence[Expr], *, apart: bool) -> GraphWalk:
        """The walk of another subgraph on matching operands."""
        oracle, problems, shared = self._oracle, self._problems, self._shared
        inner = GraphWalk(
            self.view, subgraph, oracle=oracle, problems=problems, shared=shared, site=self.span(op), apart=apart
        )  # fmt: skip
        self._shared.operators_left -= len(inner.graph.operators)
        if self._shared.operators_left < 0:
            self._refuse(op, "E1222", f"the subgraphs that are run have more than {MAX_INLINED} operators together")
        if len(inner.graph.inputs) != len(args):
            self._refuse(op, "E1117", f"{len(args)} inputs for a subgraph of {len(inner.graph.inputs)}")
        for i, (index, arg) in enumerate(zip(inner.graph.inputs, args, strict=True)):
            operand_type, parameter = tensor_type(arg), inner.graph.tensors[index]
            if operand_type.dtype != declared_dtype(parameter) or (
                operand_type.shape != parameter.shape and not parameter.is_open
            ):
                self._refuse(
                    op, "E1121", f"operand {i} is {operand_type}, the subgraph expects {parameter.dtype}{list(parameter.shape)}"
                )
        return inner

    def _walked(self, op: views.OperatorView, inner: GraphWalk) -> list[Expr]:
        """The outputs of another subgraph's walk."""
        inner.visit_all()
        if inner.failed:
            raise Unknowable
        return [inner._value(op, index) for index in inner.graph.outputs]

    def variable(self, op: views.OperatorView, i: int, type_: TensorType | None = None) -> Variable:
        """The persistent tensor behind operand i: a tensor that is_variable, or the resource of a handle; `type_` is the type of
        a resource that has not been used before.
        """
        index = op.input(i)
        if index == views.ABSENT:
            self._refuse(op, "E1205", f"operand {i} is missing")
        tensor = self.graph.tensors[index]
        if tensor.is_variable:
            key = (self.graph.index, index)
            self.persistent.declare(key, tensor.name, self._type(op, tensor))
            return self.persistent.here(key)
        name = self.persistent.name_of(evaluate(self._value(op, index))) if tensor.dtype in ("resource", "int32") else None
        if name is None:
            self._refuse(op, "E1150", f"operand {i}, {tensor.where}, is not a handle to a variable known at compile time")
        variable = self.persistent.resource(name, type_, op.where)
        if self.persistent.initializing:
            return variable
        if not self.persistent.is_constant(name):
            return self.persistent.here(name)
        variable.is_read = True
        return Variable(variable.param, variable.initial, constant_of(variable, span=self.span(op)))

    def own_variable(self, op: views.OperatorView, name: str, initial: Array) -> Variable:
        """A persistent tensor that belongs to the operator and is not a tensor of the file."""
        type_ = TensorType(initial.shape, str(initial.dtype))
        key = (self.graph.index, op.index, name)
        self.persistent.declare(key, name, type_, initial)
        return self.persistent.here(key)

    def resource_id(self, name: str) -> int:
        """The number of a resource, which is the value of its handles."""
        return self.persistent.resource_id(name)

    def initialize(self, op: views.OperatorView, subgraph: int) -> None:
        """Set variables' initial values from a subgraph (E1153 if one is already in use, or its value is unknown)."""
        if not self.persistent.begin(subgraph):
            return
        inner = self._inner(op, subgraph, (), apart=False)
        with self.persistent.beginning(op.where, partial(evaluate, most=views.MAX_TENSOR_BYTES)):
            inner.visit_all()
            if inner.failed:
                raise Unknowable

    # The walk.

    def visit_all(self) -> None:
        """Convert every operator, in order."""
        for op in self.graph.operators:
            self.visit(op)

    def visit(self, op: views.OperatorView) -> None:
        """Convert one operator; its results, or stand-ins for them, become values."""
        if op.index in self._list_writes.parts:
            return  # the operator that joins them does everything
        unshaped = not self._unshaped.isdisjoint(op.inputs)
        if unshaped:
            self._unshaped.update(op.outputs)
        try:
            results = self._results(op)
        except AotError as error:
            independent = (p for p in error.problems if not unshaped or p.code in _WHATEVER_THE_SHAPES)
            self._problems.extend(tuple(independent))
            results = None
        except Unknowable:
            results = None
        if results is None:
            self._stand_in(op)
            return
        for index, expr in zip(op.outputs, results, strict=True):
            self._values[index] = expr

    def function(self) -> Function | None:
        """`main`, once every operator has been visited; None if an output has no value."""
        graph = self.graph
        outputs = []
        for index in graph.outputs:
            try:
                outputs.append(self._value(None, index))
            except AotError as error:
                self._problems.extend(error.problems)
        kept = self.persistent.kept()
        if self._problems or not (outputs or kept):
            return None
        named = [
            (e, Span(name=graph.tensors[i].name, tensor=i), declared_type(graph.tensors[i], shape=tensor_type(e).shape))
            for i, e in zip(graph.outputs, outputs, strict=True)
        ]
        return main_function(self._params, named, kept, is_shared=self.persistent.is_shared)

    def _results(self, op: views.OperatorView) -> Sequence[Expr] | None:
        converter = converter_of(op.kind)
        if converter is None:
            if op.opcode != "CUSTOM" or check.is_known_custom(op):  # otherwise check has reported it
                message = f"this operator is not supported yet (aot explain {op.kind} says what is missing)"
                self._problems.add("E1201", message, op.where)
            return None
        with converting(partial(self._refuse, op), divides_by_zero=lambda: self._has_zero_scale(op)):
            self._check_operands(op)
            write = self._list_writes.writes.get(op.index)
            view = Operator(self, op)
            converted = converter(view) if write is None else convert_list_write(view, write)
        results = converted if isinstance(converted, Sequence) else (converted,)
        if len(results) != len(op.outputs):
            self._refuse(op, "E1117", f"{len(op.outputs)} outputs, expected {len(results)}")
        for position, expr in enumerate(results):
            self._compare(op, position, expr)
        return results

    def _compare(self, op: views.OperatorView, position: int, expr: Expr) -> None:
        """Compare the file's declaration of a result with the operator's result."""
        declared, shape = self.output_type(op, position), self.output_shape(op, position)
        type_ = expr.type
        if not isinstance(type_, TensorType):
            self._refuse(op, "E1121", f"result {position} is not one tensor")
        unknown = op.opcode == "CUSTOM" and not shape  # model converters do not know the results of custom operators
        if shape is None:
            self._check_size(op, position, type_)
        elif type_.shape != shape and not unknown:
            shapes = f"{list(shape)} is declared, but {list(type_.shape)} follows from the operands"
            self._refuse(op, "E1120", f"shape of result {position}: {shapes}")
        if declared.quant is not None and 0 in declared.quant.scale:
            value = evaluate(expr)
            if value is None or (value != declared.quant.zero_point[0]).any():
                self._refuse(op, "E1111", f"result {position} has a scale of 0, and is not known to be zero")
        if type_.dtype != declared.dtype:
            self._refuse(op, "E1120", f"type of result {position}: {declared.dtype} is declared, not {type_.dtype}")

    def _check_size(self, op: views.OperatorView, position: int, found: TensorType) -> None:
        """The limits on declared shapes (aot.frontend.tflite.check), applied to a computed one."""
        self._shared.bytes += (size := views.stored_bytes(found.dtype, found.size))
        if len(found.shape) > views.MAX_RANK:
            self._refuse(
                op, "E1221", f"result {position} has {len(found.shape)} dimensions; at most {views.MAX_RANK} are supported"
            )
        if size > views.MAX_TENSOR_BYTES:
            needs = f"has shape {list(found.shape)} and needs {size} bytes, more than {views.MAX_TENSOR_BYTES}"
            self._refuse(op, "E1216", f"result {position} {needs}")
        if self._shared.bytes > check.MAX_TOTAL_BYTES:
            self._refuse(op, "E1217", f"with result {position} the tensors need more than {check.MAX_TOTAL_BYTES} bytes in total")
        if not found.size and needs_elements(op):
            self._refuse(op, "E1121", f"result {position} has no elements")

    def _has_zero_scale(self, op: views.OperatorView) -> bool:
        tensors = (self.graph.tensors[i] for i in (*op.inputs, *op.outputs) if i != views.ABSENT)
        return any(t.quant is not None and bool((t.quant.scales == 0).any()) for t in tensors)

    def _check_operands(self, op: views.OperatorView) -> None:
        if needs_elements(op) and op.input(0) != views.ABSENT and not self.input_type(op, 0).size:
            self._refuse(op, "E1121", f"{self.graph.tensors[op.inputs[0]].where} has no elements")

    def _result(self, op: views.OperatorView, i: int) -> views.TensorView:
        if i >= len(op.outputs):
            self._refuse(op, "E1205", f"result {i} is missing")
        return self.graph.tensors[op.outputs[i]]

    def _stand_in(self, op: views.OperatorView) -> None:
        self.failed = True
        for index in op.outputs:
            tensor = self.graph.tensors[index]
            if tensor.is_open:
                self._unshaped.add(index)
            stand_in = Var(tensor.name, declared_type(tensor))
            self._shared.stand_ins.add(id(stand_in))
            self._values[index] = stand_in

    def _parameter(self, tensor: views.TensorView) -> Var:
        span = Span(name=tensor.name, tensor=tensor.index)
        try:
            if tensor.dtype == "resource":
                self._refuse(None, "E1218", f"{tensor.where}: a resource cannot be an input of the model")
            type_ = declared_type(tensor) if tensor.dtype == "string" else self._type(None, tensor)  # E1212 reports it
        except AotError as error:
            self._problems.extend(error.problems)
            type_ = TensorType(tensor.shape, tensor.dtype)
        var = Var(tensor.name or f"input_{len(self._params)}", type_, span)
        self._values[tensor.index] = var
        return var

    def _value(self, op: views.OperatorView | None, index: int) -> Expr:
        """The expression of a tensor: computed before, a graph input, or a constant."""
        if index not in self._values:
            tensor = self.graph.tensors[index]
            if tensor.is_variable:
                self._refuse(op, "E1208", f"{tensor.where} is a state tensor, which this operator does not support")
            if tensor.data is None:
                self._refuse(op, "E1204", f"{tensor.where} has no value")
            data = tensor.data if tensor.sparsity is None else self._dense(op, tensor, tensor.sparsity)
            span = Span(name=tensor.name, tensor=index)
            if self._site is not None:
                span = Span(name=tensor.name) if self._apart else self._site
            type_ = self._type(op, tensor)
            self._values[index] = const(np.asarray(data), quant=type_.quant, dtype=type_.dtype, span=span)
        return self._values[index]

    def _dense(self, op: views.OperatorView | None, tensor: views.TensorView, sparsity: views.SparsityView) -> Array:
        """The value of a sparse constant, with its zeros."""
        assert tensor.data is not None
        try:
            return views.to_dense(tensor.data, tensor.shape, sparsity)
        except views.SparsityError as error:
            self._refuse(op, "E1125", f"{tensor.where} has contradictory sparsity: {error}")

    def _type(self, op: views.OperatorView | None, tensor: views.TensorView) -> TensorType:
        if tensor.dtype == "string":  # E1212 reports it
            raise Unknowable
        try:
            numpy_dtype(declared_dtype(tensor))
        except KeyError:
            self._refuse(op, "E1218", f"{tensor.where}: tensors of type {tensor.dtype} are not supported")
        if tensor.quant is not None and tensor.quant.block is not None and (op is None or op.opcode != "FULLY_CONNECTED"):
            self._refuse(op, "E1220", f"{tensor.where}: {tensor.quant.block.kind} quantisation is not supported")
        value = self._values.get(tensor.index)
        shape = value.type.shape if value is not None and isinstance(value.type, TensorType) else None
        return declared_type(tensor, shape=shape)

    def shapes(self) -> dict[int, tuple[int, ...]]:
        """The shape of every computed tensor, by index."""
        return {i: e.type.shape for i, e in self._values.items() if isinstance(e.type, TensorType)}

    def _refuse(self, op: views.OperatorView | None, code: str, message: str) -> NoReturn:
        raise UnsupportedError(Problem(code, message, op.where if op is not None else ""))


# A tensor's declaration in the file, as types of the graph.


def declared_quant(quant: views.QuantView | None) -> QuantParams | None:
    """Scales and zero points; None if the file has none."""
    if quant is None or not quant.scales.size:
        return None
    return QuantParams(tuple(quant.scales.tolist()), tuple(quant.zero_points.tolist()), quant.axis)


def declared_type(tensor: views.TensorView, *, shape: tuple[int, ...] | None = None) -> TensorType:
    """The declared type, with another shape if given."""
    return TensorType(tensor.shape if shape is None else shape, declared_dtype(tensor), declared_quant(tensor.quant))


def declared_dtype(tensor: views.TensorView) -> str:
    """The element type; resource handles are numbers."""
    return "int32" if tensor.dtype == "resource" else tensor.dtype
