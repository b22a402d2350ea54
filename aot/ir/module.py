"""IRModule: named functions of either IR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aot.errors import Problem, UsageError
from aot.ir.dialect import BaseFunc, dialect_of, function_of
from aot.ir.op import Array
from aot.support.caller import call_place

__all__ = ["BaseFunc", "IRModule"]


@dataclass(frozen=True, slots=True)
class IRModule:
    """Functions by name; `main` is the entry. Immutable: passes return a new module.

    `str(module)` is its text, main first.  `constants`: what is known of the constants of functions that take them as operands,
    by function and buffer.
    """

    functions: Mapping[str, BaseFunc]
    name: str = "model"
    constants: Mapping[str, Mapping[str, Array]] = field(default_factory=dict)

    @staticmethod
    def from_expr(expr: Any, *, name: str = "model") -> IRModule:
        """The module whose `main` is a function, or an expression over its free variables in order of first use."""
        return IRModule({"main": function_of(expr)}, name)

    def __getitem__(self, name: str) -> BaseFunc:
        """The function of that name; UsageError E5105 if there is none."""
        if name not in self.functions:
            known = ", ".join(self.functions) or "none"
            raise UsageError(Problem("E5105", f"the module has no function '{name}'; it has {known}", call_place()))
        return self.functions[name]

    def with_function(self, name: str, func: BaseFunc) -> IRModule:
        return replace(self, functions={**self.functions, name: func})

    def astext(self) -> str:
        """All functions as text, main first."""
        names = sorted(self.functions, key=lambda n: (n != "main", n))
        return "\n".join(dialect_of(self.functions[n]).to_text(self.functions[n], n).rstrip("\n") + "\n" for n in names)

    def __str__(self) -> str:
        return self.astext()
