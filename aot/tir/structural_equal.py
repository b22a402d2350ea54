"""Equality of loop nests up to which objects stand for variables and buffers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from aot.ir.metadata import WRITTEN
from aot.ir.module import IRModule
from aot.tir.buffer import Buffer
from aot.tir.expr import Var
from aot.tir.intrin import Intrin, TensorIntrin


def structural_equal(a: IRModule, b: IRModule) -> bool:
    """Whether two modules have the same functions, attributes and constants; variables and buffers correspond one to one.

    Blocks count by their meaning and what they require, not by how their C text is made.

    `a`, `b`: the modules, or functions.
    """
    if list(a.functions) != list(b.functions):
        return False
    names = {n for m in (a, b) for n, c in m.constants.items() if c and n in m.functions}
    return all(_Pairs().equal(f, b.functions[n]) for n, f in a.functions.items()) and all(
        _Pairs().equal(a.constants.get(n, {}), b.constants.get(n, {})) for n in names
    )


def _counts(field: dataclasses.Field[Any]) -> bool:
    """What no text says of a module is no part of it."""
    return field.compare and bool(field.metadata.get(WRITTEN, True))


class _Pairs:
    """What corresponds to what."""

    def __init__(self) -> None:
        self._there: dict[Any, Any] = {}
        self._back: dict[Any, Any] = {}

    def equal(self, a: Any, b: Any) -> bool:
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return a.dtype == b.dtype and a.size == b.size and a.tobytes() == b.tobytes()
        if isinstance(a, bool | int | float) and isinstance(b, bool | int | float):
            return (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            return list(a) == list(b) and all(self.equal(v, b[k]) for k, v in a.items())
        if isinstance(a, tuple | list) and isinstance(b, tuple | list):
            return len(a) == len(b) and all(map(self.equal, a, b))
        if type(a) is not type(b) or isinstance(a, Intrin) or not dataclasses.is_dataclass(a):
            return a is b or bool(a == b)
        if isinstance(a, TensorIntrin):
            alike = (a.name, a.requires, a.header, a.ordered) == (b.name, b.requires, b.header, b.ordered)
            return alike and (a is b or _Pairs().equal(a.desc, b.desc))
        if isinstance(a, Var | Buffer):
            if a in self._there or b in self._back:
                return self._there.get(a) is b and self._back.get(b) is a
            self._there[a], self._back[b] = b, a
        return all(self.equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a) if _counts(f))
