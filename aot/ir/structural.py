"""Structural equality and hash of functions, expressions and modules of either IR, as in TVM.

Variables and buffers count by their position, not by their name; places in a file (Span) do not count.  A graph node that is read
twice is not equal to two nodes that compute the same.  Every node is visited once, without recursion over depth.  Each IR
registers what its own classes need beyond their fields (`register_structure`).
"""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError, call_place
from aot.ir.module import WRITTEN, IRModule
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
    one, other = (_Digest(map_free_vars=map_free_vars, size=32, by_identity=True).of(node) for node in (a, b))
    return one == other


def structural_hash(node: Any, *, map_free_vars: bool = False) -> int:
    """A 64-bit number, equal for structurally equal nodes in every process, except for variables that nothing defines.

    UsageError E5104 for anything that belongs to no IR.

    `node`: a function, an expression or a module; `map_free_vars`: as for structural_equal.
    """
    _check(node)
    return int.from_bytes(_Digest(map_free_vars=map_free_vars, size=8).of(node), "big")


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


class _Digest:
    """One walk: a node is entered before its operands, and digested after them.

    Equal nodes have equal digests, and by their size different nodes have different ones.  `by_identity`: `same` nodes count as
    objects, whose ids say nothing in another process.
    """

    def __init__(self, *, map_free_vars: bool, size: int, by_identity: bool = False) -> None:
        self._options: dict[str, Any] = {"map_free_vars": map_free_vars, "size": size, "by_identity": by_identity}
        self._map_free_vars, self._size, self._by_identity = map_free_vars, size, by_identity
        self._variables: dict[int, int] = {}
        self._shared: dict[int, int] = {}
        self._reads: list[int] = []
        """Shared nodes in the order in which they are read, by number."""
        self._done: dict[int, bytes] = {}
        self._alive: list[Any] = []

    def of(self, root: Any) -> bytes:
        entered: set[int] = set()
        stack: list[tuple[Any, list[Any] | None]] = [(root, None)]
        while stack:
            node, flat = stack.pop()
            if flat is not None:
                name = "IRModule" if isinstance(node, IRModule) else type(node).__name__
                self._done[id(node)] = self._digest([name.encode(), *(self._text(p) for p in flat)])
                continue
            structure = _STRUCTURES.get(type(node), _PLAIN)
            if structure.shared:
                self._reads.append(self._shared.setdefault(id(node), len(self._shared)))
            if id(node) in entered:
                continue
            entered.add(id(node))
            self._alive.append(node)
            if structure.same and self._by_identity:
                self._done[id(node)] = f"object {id(node)}".encode()
                continue
            if structure.closed and node is not root:
                self._done[id(node)] = _Digest(**self._options).of(node)
                continue
            for variable in structure.defines(node):
                self._number(variable)
            flat = self._flat((parts_of(node), structure.defines(node)))
            stack.append((node, flat))
            stack.extend((p, None) for p in reversed(flat) if not isinstance(p, bytes))
        return self._digest([self._done[id(root)], *(str(n).encode() for n in self._reads)])

    def _number(self, variable: Any) -> int:
        self._alive.append(variable)
        return self._variables.setdefault(id(variable), len(self._variables))

    def _text(self, part: Any) -> bytes:
        return part if isinstance(part, bytes) else self._done[id(part)]

    def _flat(self, value: Any) -> list[Any]:
        """A value as a list: text for what can be written at once, and the nodes in between."""
        if isinstance(value, tuple | list):
            return [f"({len(value)}".encode(), *(p for v in value for p in self._flat(v))]
        if isinstance(value, Mapping):
            rows = sorted(value.items(), key=lambda row: repr(row[0]))
            return [f"{{{len(rows)}".encode(), *(p for k, v in rows for p in (repr(k).encode(), *self._flat(v)))]
        if isinstance(value, np.ndarray | np.generic) or not (dataclasses.is_dataclass(value) or isinstance(value, IRModule)):
            return [_leaf(value)]
        if not _STRUCTURES.get(type(value), _PLAIN).variable:
            return [value]
        if id(value) in self._variables or self._map_free_vars:
            return [f"variable {self._number(value)}".encode(), *self._flat(parts_of(value))]
        return [f"free {id(value)}".encode()]

    def _digest(self, parts: Iterable[bytes]) -> bytes:
        state = hashlib.blake2b(digest_size=self._size)
        for part in parts:
            state.update(len(part).to_bytes(8, "big") + part)
        return state.digest()


def _leaf(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}".encode() + value.tobytes()
    if isinstance(value, bool | int):
        value = float(value) if abs(value) < 1 << 53 else value  # as 1 and 1.0 are equal
    if isinstance(value, float):
        return b"nan" if value != value else struct.pack(">d", value)
    return repr(value).encode()
