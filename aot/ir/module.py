"""IRModule: named functions of either IR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable


@runtime_checkable
class BaseFunc(Protocol):
    """What relay.Function and tir.PrimFunc have in common for the module: nothing but being a function."""


@dataclass(frozen=True, slots=True)
class IRModule:
    """Functions by name; `main` is the entry. Immutable: passes return a new module."""

    functions: Mapping[str, BaseFunc]
    name: str = "model"

    def __getitem__(self, name: str) -> BaseFunc:
        return self.functions[name]

    def with_function(self, name: str, func: BaseFunc) -> IRModule:
        return replace(self, functions={**self.functions, name: func})
