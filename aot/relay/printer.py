"""Relay as text: A-normal form, one call per line, types and origins as comments.

The text is stable: names come from the model, numbers count lines, constants show their type and a checksum of their bytes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any
from zlib import crc32

import numpy as np

from aot.ir.module import IRModule, encode
from aot.ir.span import NO_SPAN, Span
from aot.ir.type import QuantParams
from aot.relay import expr as ex
from aot.support.names import NameSupply
from aot.support.text import TextBuilder, printable

ROLES = {"if": ("then", "else"), "while": ("cond", "body")}
"""The functions of control flow, in the order of `inner_functions`."""

_COMMENT_COLUMN = 80
_LONG = 8


def print_module(module: IRModule) -> str:
    """All relay functions of a module, in their order."""
    return "\n".join(print_func(f, name) for name, f in module.functions.items() if isinstance(f, ex.Function))


def print_func(func: ex.Function, name: str = "main", record: dict[str, Any] | None = None) -> str:
    """Print `def @main(%x: int8[1, 4]) -> int8[1, 4] { ... }`; `record` collects what the text leaves out (aot.ir.module)."""
    text = TextBuilder()
    _Printer(func, name, record).function(text, f"def @{name}")
    return text.text()


class _Printer:
    """Prints one function; a fused function inside it has its own printer."""

    def __init__(
        self, func: ex.Function, path: str = "main", record: dict[str, Any] | None = None, printed: dict[int, str] | None = None
    ) -> None:  # fmt: skip
        self._func = func
        self._printed: dict[int, str] = {} if printed is None else printed  # inner functions -> where they were printed
        self._path = path
        self._record = record
        self._names: dict[int, str] = {}
        self._lines = 0
        self._supply = NameSupply()
        self._constants = NameSupply()

    def function(self, text: TextBuilder, head: str, *, tail: str = "") -> None:
        params = [f"{self._name_var(p)}: {p.type}" for p in self._func.params]
        self._note("", attrs=dict(self._func.attrs), params=[(p.name, p.type.quant, p.span) for p in self._func.params])
        text.line(f"{head}({', '.join(params)}) -> {self._func.body.type} {{")
        with text.indented():
            for expr in ex.post_order(self._func.body):
                self._statement(text, expr)
            text.line(self._atom(self._func.body))
        text.line(f"}}{tail}")

    def _statement(self, text: TextBuilder, expr: ex.Expr) -> None:
        if isinstance(expr, ex.Var | ex.Constant | ex.TupleGetItem) or (isinstance(expr, ex.Tuple) and expr is self._func.body):
            return
        arguments = [self._atom(o) for o in ex.operands(expr)]
        name = self._names[id(expr)] = f"%{self._lines}"
        self._lines += 1
        match expr:
            case ex.Call(op=ex.Function() as func):
                head = f"{name} = fn {func.attrs.get('name', '')}".rstrip()
                tail = f"({', '.join(arguments)})"
                self._note(f"/{name}/call", span=expr.span)
                _Printer(func, f"{self._path}/{name}", self._record).function(text, head, tail=tail + _origin(expr.span, "  // "))
            case ex.Call():
                self._note(f"/{name}", span=expr.span, type=expr.type, attrs=_long_attrs(expr.attrs))
                text.line(_commented(f"{name} = {expr.op}({', '.join([*arguments, *_attrs(expr.attrs)])})", expr))
            case ex.If() | ex.While():
                self._control(text, expr, name, arguments)
            case _:
                self._note(f"/{name}", span=expr.span)
                text.line(_commented(f"{name} = ({', '.join(arguments)})", expr))

    def _control(self, text: TextBuilder, expr: ex.If | ex.While, name: str, arguments: list[str]) -> None:
        """Print `%3 = if (%2, %x) {` and the function of each branch, or `%3 = while (%0, %1) {`, condition and body; then `}`.

        A function that was printed before is referred to by its place: `fn @main/%1/body`.
        """
        self._note(f"/{name}", span=expr.span)
        word = "if" if isinstance(expr, ex.If) else "while"
        text.line(_commented(f"{name} = {word}({', '.join(arguments)}) {{", expr))
        with text.indented():
            for role, inner in zip(ROLES[word], ex.inner_functions(expr), strict=True):
                path = f"{self._path}/{name}/{role}"
                if self._printed.setdefault(id(inner), path) != path:
                    text.line(f"{role} = @{self._printed[id(inner)]}")
                else:
                    _Printer(inner, path, self._record, self._printed).function(text, f"{role} = fn ")
        text.line("}")

    def _atom(self, expr: ex.Expr) -> str:
        if id(expr) in self._names:
            return self._names[id(expr)]
        match expr:
            case ex.Var():
                return f"%{_word(expr.name)}?"  # bound by no function: the verifier reports it, the printer shows it
            case ex.Constant():
                self._names[id(expr)] = text = self._constant(expr)
                return text
            case ex.TupleGetItem():
                return f"{self._atom(expr.value)}.{expr.index}"
            case _:
                return f"({', '.join(self._atom(o) for o in ex.operands(expr))})"

    def _constant(self, expr: ex.Constant) -> str:
        name = self._constants.fresh(_word(expr.span.name) or "c")
        self._note(f"/const:{name}", data=np.asarray(expr.data), quant=expr.type.quant, span=expr.span)
        return f"const[{name}: {expr.type}, {_checksum(expr.data)}]"

    def _note(self, place: str, **values: Any) -> None:
        """Record what the text leaves out; empty values are skipped."""
        if self._record is not None:
            kept = {k: encode(v) for k, v in values.items() if isinstance(v, np.ndarray) or v not in (None, {}, NO_SPAN)}
            self._record[self._path + place] = kept

    def _name_var(self, var: ex.Var) -> str:
        word = _word(var.name) or "x"
        self._names[id(var)] = name = "%" + self._supply.fresh(f"v{word}" if word.isdigit() else word)
        return name


def _commented(line: str, expr: ex.Expr) -> str:
    return f"{line.ljust(_COMMENT_COLUMN)}  // {expr.type}{_origin(expr.span, '  ')}"


def _origin(span: Span, before: str) -> str:
    if span.op_index < 0:
        return ""
    return f'{before}tflite:{span.op_index} {span.opcode} "{printable(span.name)}"'


def _word(name: str) -> str:
    """Turn a name of the model into one word."""
    return "".join(c if c.isalnum() or c in "_/:.-;" else "_" for c in printable(name))


def _checksum(data: np.ndarray[Any, Any]) -> str:
    """CRC-32 of the elements in row-major order, little-endian."""
    return f"{crc32(np.ascontiguousarray(data).astype(data.dtype.newbyteorder('<')).tobytes()):08x}"


def _attrs(attrs: Any) -> list[str]:
    """`key=value` for each field whose value is not the default, in order of declaration."""
    if not dataclasses.is_dataclass(attrs):
        return [] if attrs is None else [str(attrs)]
    fields = [(f.name, getattr(attrs, f.name), f.default) for f in dataclasses.fields(attrs)]
    return [f"{name}={_value(value)}" for name, value, default in fields if isinstance(value, np.ndarray) or value != default]


def _long_attrs(attrs: Any) -> dict[str, Any]:
    """Attributes that the text does not show in full: field -> (text, value)."""
    if not dataclasses.is_dataclass(attrs):
        return {}
    texts = {f.name: (_value(getattr(attrs, f.name)), getattr(attrs, f.name)) for f in dataclasses.fields(attrs)}
    return {name: (text, value) for name, (text, value) in texts.items() if ".. " in text or _SHORT.fullmatch(text) is None}


_SHORT = re.compile(r"[-+\w. ,()]*")
"""Numbers, words and tuples of them, which the text shows in full; 0.1 loses no digit."""


def _value(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array[{value.dtype}[{', '.join(map(str, value.shape))}], {_checksum(value)}]"
    if isinstance(value, QuantParams):
        return f"quant(scale={_value(tuple(f'{s:.6g}' for s in value.scale))}, zp={_value(value.zero_point)})"
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) > _LONG:
        return f"({_value(value[0])}, .. {len(value)} values, {crc32(repr(tuple(value)).encode()):08x})"
    if isinstance(value, tuple):
        inner = ", ".join(_value(v) for v in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{type(value).__name__}({', '.join(_attrs(value))})"
    return str(value)
