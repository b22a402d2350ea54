"""The graph IR: the data-flow subset of Relay, with branches and loops over closed functions.

Nodes are immutable, compared by identity, and always typed: `call` runs the operator's type rule immediately.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, TypeGuard

import numpy as np

from aot.errors import Problem, UsageError, call_place
from aot.ir.op import F_INFER_TYPE, Array, Op, OpInfo, TypeRuleError, op_info
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import QuantParams, TensorType, TupleType, Type
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, is_int, known_dtypes, numpy_dtype


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A function's parameter."""

    name: str
    type: TensorType
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A value known at compile time; `stored` is its type in the file, if that is smaller (aot.relay.stored)."""

    data: Array
    type: TensorType
    span: Span = NO_SPAN
    stored: TensorType | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """An operator, or a fused Function, applied to arguments."""

    op: Op | Function
    args: tuple[Expr, ...]
    attrs: Any
    type: Type
    span: Span = NO_SPAN

    @property
    def name(self) -> str:
        """The name of the operator; empty for a function."""
        return self.op.name if isinstance(self.op, Op) else ""


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """Several values combined into one."""

    fields: tuple[Expr, ...]
    type: TupleType
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItem:
    """Field `index` of a tuple."""

    value: Expr
    index: int
    type: TensorType
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """`then_branch(args)` if `cond`, one bool, holds; else `else_branch(args)`.

    Only the selected branch runs.  Both are closed functions of the same types.
    """

    cond: Expr
    args: tuple[Expr, ...]
    then_branch: Function
    else_branch: Function
    type: Type
    span: Span = NO_SPAN


@dataclass(frozen=True, slots=True, eq=False)
class While:
    """`args` are the initial loop variables; `while cond(variables): variables = body(variables)`; yields the final ones.

    `cond` and `body` are closed functions; `cond` yields one bool, `body` as many tensors as there are variables, with their
    types.
    """

    args: tuple[Expr, ...]
    cond: Function
    body: Function
    type: Type
    span: Span = NO_SPAN


Expr = Var | Constant | Call | Tuple | TupleGetItem | If | While


@dataclass(frozen=True, slots=True, eq=False)
class Function:
    """Parameters and a body; `attrs["Primitive"]` marks a fused function, which becomes one kernel."""

    params: tuple[Var, ...]
    body: Expr
    attrs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_primitive(self) -> bool:
        return bool(self.attrs.get("Primitive"))

    def __call__(self, *args: Expr) -> Call:
        """A call that the compiler replaces by the body over `args`; UsageError E1160 if they do not fit the parameters."""
        for i, a in enumerate(args):
            if not isinstance(a, Expr):
                raise _bad_value(f"operand {i} is a {type(a).__name__}, not an expression")
        check_operands(self, args, call_place())
        return Call(self, args, None, self.body.type)


def var(name: str, shape: Sequence[int], *, dtype: str = "float32", quant: QuantParams | None = None) -> Var:
    """A parameter, `relay.var("x", shape=(1, 8, 8, 4), dtype="int8")`; UsageError E5104 for an invalid shape or type."""
    if not isinstance(name, str) or not name:
        raise _bad_value(f"the name of a variable is a word, not {name!r}")
    return Var(name, tensor_type_of(shape, dtype, quant))


def tensor_type_of(shape: Any, dtype: Any, quant: QuantParams | None = None, *, least: int = 1) -> TensorType:
    """The type of a tensor, checked (E5104); every size must be at least `least`."""
    if not isinstance(shape, Sequence | np.ndarray) or isinstance(shape, str):
        raise _bad_value(f"a shape is a sequence of sizes, not {shape!r}")
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) and n >= least for n in shape):
        raise _bad_value(f"a shape has whole sizes of {least} or more, not {tuple(shape)}")
    if quant is not None and not isinstance(quant, QuantParams):
        raise _bad_value(f"quant must be QuantParams, not {quant!r}")
    return TensorType(tuple(int(n) for n in shape), _known_dtype(dtype), quant)


def _known_dtype(dtype: Any) -> str:
    name = str(np.dtype(dtype)) if isinstance(dtype, type | np.dtype) else dtype
    if not isinstance(name, str) or name not in known_dtypes():
        raise _bad_value(f"there is no element type {dtype!r}; there are {', '.join(known_dtypes())}")
    return name


def _bad_value(message: str) -> UsageError:
    return UsageError(Problem("E5104", message, call_place()))


def const(data: Any, *, quant: QuantParams | None = None, dtype: str | None = None, span: Span = NO_SPAN) -> Constant:
    """A constant from an array, a number or a list of numbers; pass `dtype` if numpy has no such type (int4).

    Python numbers become int32 or float32.  UsageError E5104 if a value does not fit the type.
    """
    if not isinstance(data, np.ndarray) or (dtype is not None and data.dtype != numpy_dtype(_known_dtype(dtype))):
        data = _as_array(data, dtype)
    return Constant(data, tensor_type_of(data.shape, dtype or str(data.dtype), quant, least=0), span)


def _as_array(data: Any, dtype: str | None) -> Array:
    try:
        array = np.asarray(data)
    except ValueError as error:
        raise _bad_value(f"the value cannot be converted to an array: {error}") from error
    if array.dtype.kind not in "biuf":
        raise _bad_value(f"a constant holds numbers, not {array.dtype}")
    if dtype is None and not isinstance(data, np.ndarray | np.generic):
        dtype = {"i": "int32", "u": "int32", "f": "float32", "b": "bool"}[array.dtype.kind]
    if dtype is None:
        return array
    name = _known_dtype(dtype)
    if is_int(name) and array.size:
        low, high = int_range(name)
        if array.dtype.kind == "f" and not np.array_equal(array, np.trunc(array)):
            raise _bad_value(f"{name} holds whole numbers")
        if not (low <= array.min() and array.max() <= high):
            raise _bad_value(f"{name} holds values from {low} to {high}, not {array.min()} to {array.max()}")
    elif not is_float(name) and array.dtype.kind == "f":
        raise _bad_value(f"{name} does not hold numbers of {array.dtype}")
    return np.asarray(array.astype(numpy_dtype(name)))


def call(op: Op | str, args: Sequence[Expr], attrs: Any = None, *, span: Span = NO_SPAN) -> Call:
    """Apply a registered operator.

    Raises TypeRuleError (E5100), with the operator and the place of the call, if it does not accept the operands or attributes.
    Its `__cause__` is set if the type rule itself failed on an unexpected case.
    """
    name = op if isinstance(op, str) else op.name
    return Call(Op(name), tuple(args), attrs, _call_type(name, args, attrs), span)


def call_with(name: str, args: Sequence[Expr], *values: Any, span: Span = NO_SPAN, **named: Any) -> Call:
    """Apply a registered operator whose attributes have these values, in the order of their declaration or by name."""
    attrs_type = op_info(name).attrs_type
    assert attrs_type is not None
    return call(name, args, attrs_type(*values, **named), span=span)


def again(expr: Call, args: Sequence[Expr], attrs: Any = None) -> Call:
    """The operator of `expr` applied to other operands, with other attributes if given."""
    return call(expr.name, args, expr.attrs if attrs is None else attrs, span=expr.span)


def _call_type(name: str, args: Sequence[Expr], attrs: Any) -> Type:
    info = op_info(name)
    wrong = _operand_fault(info, args) or _attrs_fault(info, attrs)
    if wrong:
        raise refused(name, wrong)
    types = [a.type for a in args]
    try:
        return F_INFER_TYPE.get(name)(types, attrs)
    except TypeRuleError as error:
        raise refused(name, error.message) from None
    except Exception as error:
        actual = ", ".join(map(str, types))
        message = f"the type rule does not understand {actual} with {attrs} ({type(error).__name__}: {error})"
        raise refused(name, message) from error


def refused(name: str, message: str) -> TypeRuleError:
    """E5100 for the operator, at the caller's line."""
    place = call_place()
    return TypeRuleError(message, where=f"{name} at {place}" if place else name)


def _operand_fault(info: OpInfo, args: Sequence[Expr]) -> str:
    for i, a in enumerate(args):
        if not isinstance(a, Expr):
            return f"operand {i} is a {type(a).__name__}, not an expression"
    if len(args) < info.fewest or (info.most is not None and len(args) > info.most):
        return f"{len(args)} operands for {info.signature()}"
    return ""


def _attrs_fault(info: OpInfo, attrs: Any) -> str:
    if info.attrs_type is None:
        return "" if attrs is None else f"attributes {attrs!r}; the operator has none"
    if not isinstance(attrs, info.attrs_type):
        return f"attributes of type {type(attrs).__name__}, not {info.attrs_type.__name__}"
    return ""


def check_operands(func: Function, args: Sequence[Expr], where: str) -> None:
    """Raise UsageError E1160 if the operands of a call of `func` differ from its parameters in shape or element type."""
    actual, expected = [a.type for a in args], [p.type for p in func.params]
    forms = [[(t.shape, t.dtype) if isinstance(t, TensorType) else t for t in types] for types in (actual, expected)]
    if forms[0] != forms[1]:
        of, to = (", ".join(map(str, types)) or "nothing" for types in (expected, actual))
        raise UsageError(Problem("E1160", f"a function of {of} is called with {to}", where))


def make_tuple(fields: Sequence[Expr], *, span: Span = NO_SPAN) -> Tuple:
    """A tuple of tensors; UsageError E5104 for any other field, including a tuple."""
    types = []
    for i, f in enumerate(fields):
        if not isinstance(f, Expr):
            raise _bad_value(f"field {i} of a tuple is a {type(f).__name__}, not an expression")
        if not isinstance(f.type, TensorType):
            raise _bad_value(f"field {i} of a tuple is a tuple; tuples do not nest: name its fields instead")
        types.append(f.type)
    return Tuple(tuple(fields), TupleType(tuple(types)), span)


def get_item(value: Expr, index: int, *, span: Span = NO_SPAN) -> TupleGetItem:
    """Field `index` of a tuple-typed expression; UsageError E5104 for any other expression or a missing field."""
    if not isinstance(value, Expr) or not isinstance(value.type, TupleType):
        raise _bad_value(f"{value.type if isinstance(value, Expr) else type(value).__name__} is not a tuple, so it has no fields")
    if type(index) is not int or not 0 <= index < len(value.type.fields):
        raise _bad_value(f"a tuple of {len(value.type.fields)} fields has no field {index!r}")
    return TupleGetItem(value, index, value.type.fields[index], span)


def tensor_type(expr: Expr) -> TensorType:
    """The type of an expression that is one tensor."""
    assert isinstance(expr.type, TensorType), f"{expr.span}: a tensor is expected, not a tuple"
    return expr.type


def operands(expr: Expr) -> tuple[Expr, ...]:
    """The expressions that `expr` reads directly."""
    match expr:
        case Call() | While():
            return expr.args
        case If():
            return (expr.cond, *expr.args)
        case Tuple():
            return expr.fields
        case TupleGetItem():
            return (expr.value,)
        case _:
            return ()


def post_order(*roots: Expr) -> list[Expr]:
    """Every node reachable from the roots once, operands before users; not recursive, so depth does not matter."""
    seen: set[int] = set()
    order: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        expr, expanded = stack.pop()
        if expanded:
            order.append(expr)
        elif id(expr) not in seen:
            seen.add(id(expr))
            stack.append((expr, True))
            stack.extend((o, False) for o in reversed(operands(expr)) if id(o) not in seen)
    return order


def with_operands(expr: Expr, new: Sequence[Expr]) -> Expr:
    """`expr` over other operands (the same node if they are unchanged); types are inferred again."""
    if all(a is b for a, b in zip(operands(expr), new, strict=True)):
        return expr
    match expr:
        case Call(op=Op() as op):
            return call(op, new, expr.attrs, span=expr.span)
        case Call():
            return Call(expr.op, tuple(new), expr.attrs, expr.type, expr.span)
        case Tuple():
            return make_tuple(new, span=expr.span)
        case TupleGetItem():
            return get_item(new[0], expr.index, span=expr.span)
        case If():
            return replace(expr, cond=new[0], args=tuple(new[1:]))
        case While():
            return replace(expr, args=tuple(new))
        case _:
            raise TypeError(type(expr))


def inner_functions(expr: Expr) -> tuple[Function, ...]:
    """The functions that control flow runs: both branches, or condition and body."""
    match expr:
        case If():
            return expr.then_branch, expr.else_branch
        case While():
            return expr.cond, expr.body
        case _:
            return ()


def with_inner_functions(expr: Expr, new: Sequence[Function]) -> Expr:
    """`expr` with other branches, or another condition and body, of the same types (the same node if they are unchanged)."""
    if all(a is b for a, b in zip(inner_functions(expr), new, strict=True)):
        return expr
    match expr:
        case If():
            return replace(expr, then_branch=new[0], else_branch=new[1])
        case While():
            return replace(expr, cond=new[0], body=new[1])
        case _:
            raise TypeError(type(expr))


def map_inner_functions(func: Function, rule: Callable[[Function], Function]) -> Function:
    """`func` with `rule` applied to every function that its control flow runs, innermost first; sharing is preserved."""
    done: dict[int, tuple[Function, Function]] = {}

    def new(inner: Function) -> Function:
        if id(inner) not in done:
            done[id(inner)] = inner, rule(visit(inner))
        return done[id(inner)][1]

    def visit(outer: Function) -> Function:
        if not any(inner_functions(e) for e in post_order(outer.body)):
            return outer
        return rewrite(outer, lambda e: with_inner_functions(e, [new(f) for f in inner_functions(e)]))

    return visit(func)


def all_functions(func: Function) -> list[Function]:
    """`func` and every function that its control flow runs, each once, outer before inner."""
    functions: dict[int, Function] = {}
    waiting = [func]
    while waiting:
        outer = waiting.pop(0)
        if id(outer) not in functions:
            functions[id(outer)] = outer
            waiting += [f for e in post_order(outer.body) for f in inner_functions(e)]
    return list(functions.values())


def result_types(func: Function) -> tuple[TensorType, ...]:
    """The types of a function's results: its type, or the fields of its tuple."""
    type_ = func.body.type
    return type_.fields if isinstance(type_, TupleType) else (type_,)


def rebuild(root: Expr, rule: Callable[[Expr, Expr], Expr], done: dict[int, Expr] | None = None) -> Expr:
    """`root` with each node replaced by `rule(node, the same over rewritten operands)`, operands first; sharing is preserved.

    `done`: replacements by the id of the node, to which the others are added; these nodes are not passed to `rule`.
    """
    done = {} if done is None else done
    for expr in post_order(root):
        if id(expr) not in done:
            done[id(expr)] = rule(expr, with_operands(expr, [done[id(o)] for o in operands(expr)]))
    return done[id(root)]


def rewrite(func: Function, rule: Callable[[Expr], Expr]) -> Function:
    """Rebuild `func` bottom-up, passing each node (with rewritten operands) to `rule`; sharing is preserved."""
    return replace(func, body=rebuild(func.body, lambda _old, new: rule(new)))


def substituted(root: Expr, values: Mapping[int, Expr]) -> Expr:
    """`root` with other expressions for some of its nodes, by their id."""
    return rebuild(root, lambda _old, new: new, dict(values))


def inlined(func: Function, args: Sequence[Expr]) -> Expr:
    """The body of a function with arguments substituted for its parameters."""
    return substituted(func.body, {id(p): a for p, a in zip(func.params, args, strict=True)})


def bind_params_by_name(func: Function, params: Mapping[str, Any]) -> Function:
    """`func` with constants substituted for the parameters with these names; types are inferred again.

    UsageError E5104 if a name belongs to no parameter or to several, or if a value has another shape or type.

    `func`: the function; `params`: arrays by parameter name.
    """
    bound: dict[int, Expr] = {}
    for name, value in params.items():
        matching = [p for p in func.params if p.name == name]
        if len(matching) != 1:
            listed = ", ".join(p.name for p in func.params)
            raise _bad_value(f"{len(matching) or 'no'} parameters are called {name!r}; the parameters are {listed}")
        expected = matching[0].type
        stored_alike = np.asarray(value).dtype == numpy_dtype(expected.dtype)  # int4 has another name in numpy
        constant = const(np.asarray(value), quant=expected.quant, dtype=expected.dtype if stored_alike else None)
        if (constant.type.shape, constant.type.dtype) != (expected.shape, expected.dtype):
            raise _bad_value(f"the parameter {name} is {expected}, not {constant.type}")
        bound[id(matching[0])] = constant
    remaining = tuple(p for p in func.params if id(p) not in bound)
    return replace(rewrite(func, lambda e: bound.get(id(e), e)), params=remaining)


def users(func: Function) -> dict[int, list[Expr]]:
    """For each node (by id), the nodes that read it, once per use."""
    table: dict[int, list[Expr]] = {}
    for expr in post_order(func.body):
        for o in operands(expr):
            table.setdefault(id(o), []).append(expr)
    return table


def is_call(expr: Expr, *names: str) -> TypeGuard[Call]:
    """Whether `expr` is a call of one of these operators."""
    return isinstance(expr, Call) and expr.name in names


# Visitors and mutators of graphs: subclass one and override the methods you need.
#
# Both visit each node once, operands first, without recursion, so a graph may be arbitrarily deep.


class _Functor:
    """The methods that a subclass may override, one per kind of node; by default each returns its node."""

    def _visit_node(self, expr: Expr) -> Any:
        match expr:
            case Var():
                return self.visit_var(expr)
            case Constant():
                return self.visit_constant(expr)
            case Call():
                return self.visit_call(expr)
            case Tuple():
                return self.visit_tuple(expr)
            case TupleGetItem():
                return self.visit_tuple_getitem(expr)
            case If():
                return self.visit_if(expr)
            case While():
                return self.visit_while(expr)

    def visit_var(self, var: Var) -> Any:
        """A parameter."""
        return var

    def visit_constant(self, constant: Constant) -> Any:
        """A constant."""
        return constant

    def visit_call(self, call: Call) -> Any:
        """A call of an operator, or of a function."""
        return call

    def visit_tuple(self, fields: Tuple) -> Any:
        """A tuple."""
        return fields

    def visit_tuple_getitem(self, item: TupleGetItem) -> Any:
        """A field of a tuple."""
        return item

    def visit_if(self, branch: If) -> Any:
        """A branch; its functions have been visited."""
        return branch

    def visit_while(self, loop: While) -> Any:
        """A loop; its functions have been visited."""
        return loop


class ExprVisitor(_Functor):
    """Visits every node: `visit(expr)` or `visit(function)` calls `visit_call` and the like, operands before users.

    >>> from aot import relay
    >>> class Count(ExprVisitor):
    ...     calls = 0
    ...     def visit_call(self, call):
    ...         self.calls += 1
    >>> count = Count()
    >>> count.visit(relay.nn.relu(relay.nn.relu(relay.var("x", shape=(4,), dtype="int8"))))
    >>> count.calls
    2
    """

    def visit(self, root: Expr | Function) -> None:
        """Visit everything that `root` depends on; inner functions are passed to `visit_function`."""
        for expr in post_order(_checked(root)):
            called = (expr.op,) if isinstance(expr, Call) and isinstance(expr.op, Function) else ()
            for inner in (*called, *inner_functions(expr)):
                self.visit_function(inner)
            self._visit_node(expr)

    def visit_function(self, func: Function) -> None:
        """A called function, a branch, or a loop's condition or body; by default its body is visited."""
        self.visit(func)


class ExprMutator(_Functor):
    """Rebuilds a graph: each method receives a node with rewritten operands and returns its replacement.

    Unchanged nodes are not copied, and shared nodes stay shared.
    """

    def visit(self, root: Any) -> Any:
        """The rewritten expression, or the rewritten function."""
        if isinstance(root, Function):
            return self.visit_function(root)
        return rebuild(_checked(root), self._visit_rebuilt)

    def _visit_rebuilt(self, _old: Expr, expr: Expr) -> Expr:
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            func = self.visit_function(expr.op)
            expr = expr if func is expr.op else Call(func, expr.args, expr.attrs, func.body.type, expr.span)
        new = self._visit_node(with_inner_functions(expr, [self.visit_function(f) for f in inner_functions(expr)]))
        if not isinstance(new, Expr):
            message = f"{type(self).__name__} puts a {type(new).__name__} in the place of an expression"
            raise UsageError(Problem("E5104", message, call_place()))
        return new

    def visit_function(self, func: Function) -> Function:
        """A function with its body rewritten; the parameters stay unchanged."""
        body = self.visit(func.body)
        return func if body is func.body else Function(func.params, body, func.attrs)


def _checked(root: Any) -> Expr:
    expr = root.body if isinstance(root, Function) else root
    if not isinstance(expr, Expr):
        raise UsageError(Problem("E5104", f"{type(root).__name__} is neither an expression nor a function", call_place()))
    return expr
