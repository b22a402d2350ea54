"""An operator is one class: attributes, type rule, meaning, te rule; or a record of functions if operators share attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar, dataclass_transform

from aot.ir.op import F_DOMAIN, VARIABLE, Domain, Evaluate, InferType, OpPattern, register_op
from aot.ir.type import TensorType, Type
from aot.op.common.te_rule import F_TE, TeContext, TeRule
from aot.op.common.tensors import tensors_of
from aot.support.dataclass import dataclass
from aot.te.tensor import TensorFn
from aot.tir.expr import Expr

Index = tuple[Expr, ...]
"""The position of an element in a tensor."""

Arguments = Sequence[tuple[str, str, str]]
"""The operands: (name, type in words, what it is), see `aot.ir.op.Argument`."""


class Operator(Protocol):
    """The class of an operator; `self` is its attributes.

    Beside the two methods below it may have

    * `element(self, b, index, *tensors, out_type) -> Expr`: one element as an expression over elements of the operands; or
      `te_rule(self, ctx, tensors, out_type) -> TensorFn`, if the rule needs tables in flash;
    * `domain(self, *types)`: the lowest and highest meaningful values by the index of the operand.
    """

    @property
    def infer_type(self) -> Callable[..., Type]:
        """(*types of the operands, all tensors) -> the result's type; TypeRuleError if types or attributes do not fit."""

    @property
    def evaluate(self) -> Callable[..., Any]:
        """(*arrays, out_type) -> the meaning in numpy, exact, never in place; a tuple if the type is a tuple."""


Class = TypeVar("Class", bound=type[Operator])


@dataclass_transform(frozen_default=True)
def operator(
    name: str,
    doc: str,
    arguments: Arguments,
    pattern: OpPattern = OpPattern.OPAQUE,
    *,
    has_attributes: bool = True,
    is_view: bool = False,
) -> Callable[[Class], Class]:
    """Make a frozen dataclass with slots of the class that follows, and register it as an operator.

    `doc` is its line in `aot ops`: the operator of TFLite and element types.  `pattern`: how fuse_ops may group it.  `is_view`:
    the result has the same bytes as the first operand.
    """

    def registered(cls: Class) -> Class:
        made: Any = cls if "__dataclass_fields__" in cls.__dict__ else dataclass(frozen=True, slots=True)(cls)
        alone = None if has_attributes else made()

        def te(ctx: TeContext, args: Sequence[TensorFn], attrs: Any, out_type: TensorType) -> TensorFn:
            tensor: TensorFn = made.te_rule(attrs or alone, ctx, args, out_type)
            return tensor

        def domain(types: Sequence[Type], attrs: Any) -> Any:
            return made.domain(attrs or alone, *types)

        register(
            name,
            doc,
            arguments,
            pattern,
            attrs=made if has_attributes else None,
            infer_type=lambda types, attrs: made.infer_type(attrs or alone, *tensors_of(types, _count(arguments))),
            evaluate=lambda *arrays, attrs, out_type: made.evaluate(attrs or alone, *arrays, out_type=out_type),
            te=elementwise(made.element, alone) if hasattr(made, "element") else te if hasattr(made, "te_rule") else None,
            domain=domain if hasattr(made, "domain") else None,
            is_view=is_view,
        )
        return made  # type: ignore[no-any-return]

    return registered


def register(
    name: str,
    doc: str,
    arguments: Arguments,
    pattern: OpPattern = OpPattern.OPAQUE,
    *,
    infer_type: InferType,
    evaluate: Evaluate,
    attrs: type | None = None,
    te: TeRule | None = None,
    domain: Domain | None = None,
    is_view: bool = False,
) -> None:
    """Register an operator as a record of functions: one of a table, or one of several with the same class of attributes."""
    count = _count(arguments)
    register_op(
        name,
        VARIABLE if count is None else count,
        arguments=arguments,
        attrs_type=attrs,
        pattern=pattern,
        infer_type=infer_type,
        evaluate=evaluate,
        doc=doc,
        is_view=is_view,
    )
    if te:
        F_TE.set(name, te)
    if domain:
        F_DOMAIN.set(name, domain)


def _count(arguments: Arguments) -> int | None:
    """The number of operands; None if it varies."""
    return None if any(name.startswith("*") or name.endswith("?") for name, *_ in arguments) else len(arguments)


def elementwise(element: Callable[..., Expr], alone: Any = None) -> TeRule:
    """The te rule of a function of one element: `element(attrs, b, index, *tensors, out_type)`."""

    def te_rule(_ctx: TeContext, args: Sequence[TensorFn], attrs: Any, out_type: TensorType) -> TensorFn:
        own = attrs or alone
        return TensorFn(out_type.shape, out_type.dtype, lambda b, i: element(own, b, i, *args, out_type=out_type))

    return te_rule
