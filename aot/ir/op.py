"""Operators and their attribute maps.

An operator is a name; what is known of it lies in attribute maps, filled in one `register_op` call at the end of its
file in `aot/op`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from aot.ir.type import Type
from aot.support.registry import AttrMap

Array = np.ndarray[Any, np.dtype[Any]]


class OpPattern(IntEnum):
    """TVM's TOpPattern kinds, in its order: a group's kind is the largest of its members'."""

    ELEMWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    COMM_REDUCE = 3
    OUT_ELEMWISE_FUSABLE = 4
    TUPLE = 7
    OPAQUE = 8


@dataclass(frozen=True, slots=True)
class Op:
    """A primitive operator, by name (`nn.conv2d`)."""

    name: str

    def __str__(self) -> str:
        return self.name


InferType = Callable[[Sequence[Type], Any], Type]
"""(argument types, attrs) -> result type; raises TypeRuleError on a contradiction."""

Evaluate = Callable[..., Any]
"""(*numpy arguments, attrs=..., out_type=...) -> numpy result (a tuple where the type is a tuple); exact, never in place."""


class TypeRuleError(Exception):
    """Argument types that an operator's type rule does not accept; the caller adds the span."""


T_OP_PATTERN: AttrMap[OpPattern] = AttrMap("TOpPattern")
F_INFER_TYPE: AttrMap[InferType] = AttrMap("FInferType")
F_EVALUATE: AttrMap[Evaluate] = AttrMap("FEvaluate")
F_IS_VIEW: AttrMap[bool] = AttrMap("FIsView")
F_DOC: AttrMap[str] = AttrMap("FDoc")


def register_op(
    name: str,
    *,
    pattern: OpPattern,
    infer_type: InferType,
    evaluate: Evaluate,
    doc: str,
    is_view: bool = False,
) -> Op:
    """Enter an operator into the attribute maps; `is_view` says that the result has the very bytes of the first argument."""
    T_OP_PATTERN.set(name, pattern)
    F_INFER_TYPE.set(name, infer_type)
    F_EVALUATE.set(name, evaluate)
    F_DOC.set(name, doc)
    if is_view:
        F_IS_VIEW.set(name, is_view)
    return Op(name)
