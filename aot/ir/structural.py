"""Structural equality and hash of functions, expressions and modules of either IR, as in TVM.

Variables and buffers count by their position, not by their name; places in a file (Span) do not count.  A graph node that is read
twice is not equal to two nodes that compute the same.  Every node is visited once, without recursion over depth.  Each IR
registers what its own classes need beyond their fields (`register_structure`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError, call_place
from aot.ir.metadata import WRITTEN
from aot.ir.module import IRModule
from aot.ir.span import Span
from aot.support.dataclass import dataclass


def _nothing(_node: Any) -> tuple[Any, ...]:
    return ()


@dataclass(frozen=True, slots=True)
class Structure:
    """What counts when nodes of a class are compared.

    `parts(node)` are compared, in an order that defines variables before they are read; None: the fields.  `defines(node)` are
    the variables that the node introduces.  A `variable` is compared by where it is defined; its parts are its type.  `shared`
    nodes are compared as nodes of a graph.  `closed` nodes read no variables from outside, and count as values.  `same`: objects
    that are equal only to themselves; their hash is the hash of the parts.
    """

    parts: Callable[[Any], tuple[Any, ...]] | None = None
    defines: Callable[[Any], tuple[Any, ...]] = _nothing
    variable: bool = False
    shared: bool = False
    closed: bool = False
    same: bool = False


_STRUCTURES: dict[type, Structure] = {Span: Structure(parts=_nothing)}
_PLAIN = Structure()
_FIELDS: dict[type, tuple[str, ...]] = {}


def register_structure(kind: type, structure: Structure) -> None:
    """Say what counts for a class of an IR; the IR's package does this when it is imported."""
    _STRUCTURES[kind] = structure


def structural_equal(a: Any, b: Any, *, map_free_vars: bool = False) -> bool:
    """Whether `a` and `b`, which are functions, expressions or modules, have the same structure.

    Modules are equal if they have equal functions under the same names, with equal constants.  A variable that nothing defines
    equals only itself, or with `map_free_vars` the variable in its place.  UsageError E5104 for anything that belongs to no IR.
    """
    _check(a)
    _check(b)
    return _equal(a, b, map_free_vars=map_free_vars)


def structural_hash(node: Any, *, map_free_vars: bool = False) -> int:
    """A 64-bit number, equal for structurally equal nodes in every process, except for variables that nothing defines.

    UsageError E5104 for anything that belongs to no IR.

    `node`: a function, an expression or a module; `map_free_vars`: as for structural_equal.
    """
    _check(node)
    return int.from_bytes(_Hash(map_free_vars=map_free_vars).of(node), "big")


def _check(node: Any) -> None:
    if not isinstance(node, IRModule) and (isinstance(node, type) or not dataclasses.is_dataclass(node)):
        raise UsageError(Problem("E5104", f"a {type(node).__name__} belongs to no IR", call_place()))


def parts_of(node: Any) -> tuple[Any, ...]:
    """The parts of a node that count, in order."""
    if isinstance(node, IRModule):
        return ("module", {n: (f, _constants(node, n)) for n, f in node.functions.items()})
    structure = _STRUCTURES.get(type(node), _PLAIN)
    if structure.parts is not None:
        return structure.parts(node)
    return tuple(getattr(node, name) for name in counting_fields(type(node)))


def counting_fields(kind: type) -> tuple[str, ...]:
    """The fields of a class that count: all but the fields that are excluded from comparison or from the text."""
    if kind not in _FIELDS:
        found = dataclasses.fields(kind)
        _FIELDS[kind] = tuple(f.name for f in found if f.compare and bool(f.metadata.get(WRITTEN, True)))
    return _FIELDS[kind]


def _constants(module: IRModule, name: str) -> Any:
    """The known values of a function's constants, by the position of the buffer instead of its name."""
    buffers = [b.name for b in getattr(module.functions[name], "consts", ())]
    known = module.constants.get(name, {})
    return {buffers.index(k) if k in buffers else k: v for k, v in known.items()} or None


def _is_leaf(node: Any) -> bool:
    return isinstance(node, np.ndarray | np.generic) or not (dataclasses.is_dataclass(node) or isinstance(node, IRModule))


class _Pairs:
    """A one-to-one mapping between nodes, stored in both directions."""

    def __init__(self) -> None:
        self._there: dict[int, int] = {}
        self._back: dict[int, int] = {}

    def known(self, a: Any, b: Any) -> bool:
        return id(a) in self._there or id(b) in self._back

    def match(self, a: Any, b: Any) -> bool:
        return self._there.get(id(a)) == id(b) and self._back.get(id(b)) == id(a)

    def bind(self, a: Any, b: Any) -> None:
        self._there[id(a)], self._back[id(b)] = id(b), id(a)


def _equal(first: Any, second: Any, *, map_free_vars: bool) -> bool:
    """Compare pairs of nodes in the order in which they are read; a pair that was seen before is skipped."""
    variables, nodes = _Pairs(), _Pairs()
    seen: set[tuple[int, int]] = set()
    stack = [(first, second)]
    while stack:
        a, b = stack.pop()
        if _is_leaf(a) or _is_leaf(b):
            inner = _leaves(a, b)
            if inner is None:
                return False
            stack.extend(reversed(inner))
            continue
        if type(a) is not type(b) and not (isinstance(a, IRModule) and isinstance(b, IRModule)):
            return False
        structure = _STRUCTURES.get(type(a), _PLAIN)
        if structure.same:
            if a is not b:
                return False
            continue
        if structure.variable:
            if variables.known(a, b):
                if not variables.match(a, b):
                    return False
            elif map_free_vars:
                variables.bind(a, b)
                stack.append((parts_of(a), parts_of(b)))
            elif a is not b:
                return False
            continue
        if structure.shared:
            if nodes.known(a, b):
                if not nodes.match(a, b):
                    return False
                continue
            nodes.bind(a, b)
        elif (id(a), id(b)) in seen:
            continue
        seen.add((id(a), id(b)))
        if structure.closed and a is not first:
            if a is not b and not _equal(a, b, map_free_vars=map_free_vars):
                return False
            continue
        mine, others = structure.defines(a), structure.defines(b)
        if len(mine) != len(others):
            return False
        for x, y in zip(mine, others, strict=True):
            variables.bind(x, y)
            stack.append((parts_of(x), parts_of(y)))
        stack.append((parts_of(a), parts_of(b)))
    return True


def _leaves(a: Any, b: Any) -> list[tuple[Any, Any]] | None:
    """The pairs inside two containers; empty for equal values, None if they differ."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return [] if a.dtype == b.dtype and a.size == b.size and a.tobytes() == b.tobytes() else None
    if isinstance(a, bool | int | float) and isinstance(b, bool | int | float):
        same = (a == b and math.copysign(1, a) == math.copysign(1, b)) or (a != a and b != b)
        return [] if same else None
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return [(v, b[k]) for k, v in a.items()] if a.keys() == b.keys() else None
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return list(zip(a, b, strict=True)) if len(a) == len(b) else None
    if dataclasses.is_dataclass(a) or dataclasses.is_dataclass(b):
        return None
    return [] if a is b or (type(a) is type(b) and bool(a == b)) else None


class _Hash:
    """One walk: a node is entered before its operands, and hashed after them."""

    def __init__(self, *, map_free_vars: bool) -> None:
        self._map_free_vars = map_free_vars
        self._numbers: dict[int, int] = {}
        self._order: dict[int, int] = {}
        self._again: list[int] = []
        self._done: dict[int, bytes] = {}
        self._alive: list[Any] = []

    def of(self, root: Any) -> bytes:
        stack: list[tuple[Any, list[Any] | None]] = [(root, None)]
        while stack:
            node, flat = stack.pop()
            if flat is not None:
                name = "IRModule" if isinstance(node, IRModule) else type(node).__name__
                self._done[id(node)] = _digest([name.encode(), *(self._text(p) for p in flat)])
                continue
            structure = _STRUCTURES.get(type(node), _PLAIN)
            if id(node) in self._order:
                if structure.shared:
                    self._again.append(self._order[id(node)])
                continue
            self._order[id(node)] = len(self._order)
            self._alive.append(node)
            if structure.closed and node is not root:
                self._done[id(node)] = _Hash(map_free_vars=self._map_free_vars).of(node)
                continue
            for variable in structure.defines(node):
                self._number(variable)
            flat = self._flat((parts_of(node), structure.defines(node)))
            stack.append((node, flat))
            stack.extend((p, None) for p in reversed(flat) if not isinstance(p, bytes))
        return _digest([self._done[id(root)], *(str(n).encode() for n in self._again)])

    def _number(self, variable: Any) -> int:
        self._alive.append(variable)
        return self._numbers.setdefault(id(variable), len(self._numbers))

    def _text(self, part: Any) -> bytes:
        return part if isinstance(part, bytes) else self._done[id(part)]

    def _flat(self, value: Any) -> list[Any]:
        """A value as a list: text for what can be written at once, and the nodes in between."""
        if isinstance(value, tuple | list):
            return [f"({len(value)}".encode(), *(p for v in value for p in self._flat(v))]
        if isinstance(value, Mapping):
            rows = sorted(value.items(), key=lambda row: repr(row[0]))
            return [f"{{{len(rows)}".encode(), *(p for k, v in rows for p in (repr(k).encode(), *self._flat(v)))]
        if _is_leaf(value):
            return [_leaf(value)]
        if not _STRUCTURES.get(type(value), _PLAIN).variable:
            return [value]
        if id(value) in self._numbers or self._map_free_vars:
            return [f"variable {self._number(value)}".encode(), *self._flat(parts_of(value))]
        return [f"free {id(value)}".encode()]


def _leaf(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}".encode() + value.tobytes()
    if isinstance(value, bool | int):
        value = float(value) if abs(value) < 1 << 53 else value  # as 1 and 1.0 are equal
    if isinstance(value, float):
        return b"nan" if value != value else struct.pack(">d", value)
    return repr(value).encode()


def _digest(parts: Iterable[bytes]) -> bytes:
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "big") + part)
    return state.digest()
