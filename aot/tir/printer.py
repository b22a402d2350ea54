"""Text of loop nests for dumps, errors and golden tests; stable, and parsed back by aot.tir.parser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aot.support.text import TextBuilder
from aot.tir.buffer import Buffer
from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Load, Select, Var
from aot.tir.function import PrimFunc
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While

if TYPE_CHECKING:
    from aot.tir.intrin import TensorIntrin

PRECEDENCE = {
    "*": 10, "/": 10, "%": 10, "+": 9, "-": 9, "<<": 8, ">>": 8, "<": 7, "<=": 7, ">": 7, ">=": 7, "==": 6, "!=": 6,
    "&": 5, "^": 4, "|": 3, "&&": 2, "||": 1,
}  # fmt: skip
"""The precedence of C, so that the text reads like the generated code."""


def print_func(
    func: PrimFunc, name: str = "", *, keyword: str = "prim_func", intrins: Mapping[TensorIntrin, str] | None = None
) -> str:
    """The whole function, called `name` if given; `intrins` are names for blocks that replace their own."""
    names = _Names(intrins or {})
    out = TextBuilder()
    params = [f"{names.name(b)}: {_type(b)}{_align(b)}" for b in (*func.inputs, *func.outputs)]
    params += [f"{names.name(v)}: {v.dtype}" for v in func.scalars]
    results = f" -> {', '.join(names.name(b) for b in func.outputs)}" if func.outputs else ""
    remark = f"  // {func.attrs.kernel}" if func.attrs.kernel else ""
    out.line(f"{keyword} @{name or func.name}({', '.join(params)}){results} {{{remark}")
    with out.indented():
        for scope, buffers in (("const", func.consts), ("arena", func.scratch), ("state", func.state)):
            for b in buffers:
                out.line(f"{scope} {names.name(b)}: {_type(b)} align {b.align}")
        _body(func.body, out, names)
    out.line("}")
    return out.text()


def print_stmt(stmt: Stmt) -> str:
    """One statement with everything inside it."""
    out = TextBuilder()
    _statement(stmt, out, _Names())
    return out.text()


def print_expr(expr: Expr) -> str:
    return _expr(expr, _Names())


class _Names:
    """Text names of variables and buffers: their own, numbered if two objects share one."""

    def __init__(self, intrins: Mapping[TensorIntrin, str] | None = None) -> None:
        self._intrins = intrins or {}
        self._given: dict[Var | Buffer, str] = {}
        self._count: dict[str, int] = {}

    def name(self, item: Var | Buffer) -> str:
        if item not in self._given:
            n = self._count.get(item.name, 0)
            self._count[item.name] = n + 1
            self._given[item] = item.name if n == 0 else f"{item.name}.{n}"
        return self._given[item]

    def intrin(self, intrin: TensorIntrin) -> str:
        return self._intrins.get(intrin, intrin.name)


def _type(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(map(str, buffer.shape))}]"


def _align(buffer: Buffer) -> str:
    return f" align {buffer.align}" if buffer.align != 1 else ""


def _body(body: tuple[Stmt, ...], out: TextBuilder, names: _Names) -> None:
    for stmt in body:
        _statement(stmt, out, names)


def _statement(stmt: Stmt, out: TextBuilder, names: _Names) -> None:
    match stmt:
        case For(var, start, stop, body, step, kind):
            by = "" if step == 1 else f" step {step}"
            how = "" if kind == "serial" else f" {kind}"
            kind_of = "" if var.dtype == "int32" else f": {var.dtype}"
            out.line(f"for {names.name(var)}{kind_of} in {_expr(start, names)}..{_expr(stop, names)}{by}{how} {{")
            with out.indented():
                _body(body, out, names)
            out.line("}")
        case Store(buffer, indices, value, dtype):
            out.line(f"{_element(buffer, indices, dtype, names)} = {_expr(value, names)}")
        case Let(var, value):
            out.line(f"let {names.name(var)}: {var.dtype} = {_expr(value, names)}")
        case Allocate(buffer):
            indexed = "indexed " if buffer.indexed else ""
            out.line(f"local {indexed}{names.name(buffer)}: {_type(buffer)}{_align(buffer)}")
        case If(cond, then, orelse):
            out.line(f"if {_expr(cond, names)} {{")
            with out.indented():
                _body(then, out, names)
            if orelse:
                out.line("} else {")
                with out.indented():
                    _body(orelse, out, names)
            out.line("}")
        case While(test, cond, body, limit):
            out.line(f"while{f' at most {limit}' if limit else ''} {{")
            with out.indented():
                _body(test, out, names)
            out.line(f"}} holds {_expr(cond, names)} {{")
            with out.indented():
                _body(body, out, names)
            out.line("}")
        case Block(intrin, operands):
            out.line(f"block {names.intrin(intrin)}({', '.join(_operand(o, names) for o in operands)})")
        case CallPrim(func, operands, layer):
            remark = f"  // layer {layer}" if layer >= 0 else ""
            out.line(f"call @{func}({', '.join(_operand(o, names) for o in operands)}){remark}")
        case _:
            raise TypeError(f"not a statement: {stmt!r}")


def _operand(operand: Region | Expr, names: _Names) -> str:
    if not isinstance(operand, Region):
        return _expr(operand, names)
    kind = "" if operand.dtype == operand.buffer.dtype else f".{operand.dtype}"
    return f"{names.name(operand.buffer)}{kind}[{_expr(operand.index, names)} ..]"


def _element(buffer: Buffer, indices: tuple[Expr, ...], dtype: str, names: _Names) -> str:
    kind = "" if dtype == buffer.dtype else f".{dtype}"
    return f"{names.name(buffer)}{kind}[{', '.join(_expr(i, names) for i in indices)}]"


def _expr(expr: Expr, names: _Names, outer: int = 0) -> str:
    """`outer` is the precedence of the surrounding operator."""
    match expr:
        case Imm(value, dtype):
            return _literal(value, dtype)
        case Var():
            return names.name(expr)
        case BinOp("min" | "max" as op, a, b):
            return f"{op}({_expr(a, names)}, {_expr(b, names)})"
        case BinOp(op, a, b):
            level = PRECEDENCE.get(op, 0)  # unknown operators are printed too
            text = f"{_expr(a, names, level)} {op} {_expr(b, names, level + 1)}"
            return f"({text})" if level < outer else text
        case Cast(dtype, Imm(value, of)):  # int8(3) is a literal; this is a cast
            return f"{dtype}({_typed(value, of)})"
        case Cast(dtype, value):
            return f"{dtype}({_expr(value, names)})"
        case Select(cond, then, orelse):
            return f"select({_expr(cond, names)}, {_expr(then, names)}, {_expr(orelse, names)})"
        case Load(buffer, indices, dtype):
            return _element(buffer, indices, dtype, names)
        case Call(intrin, args):
            return f"{intrin.name}({', '.join(_expr(a, names) for a in args)})"
        case _:
            raise TypeError(f"not an expression: {expr!r}")


def _literal(value: int | float, dtype: str) -> str:
    """int32 and float32 are plain numbers; other types are wrapped in their name."""
    if dtype == "bool":
        return "true" if value else "false"
    text = _number(value, dtype)
    return text if dtype in ("int32", "float32") else f"{dtype}({text})"


def _typed(value: int | float, dtype: str) -> str:
    return _literal(value, dtype) if dtype == "bool" else f"{dtype}({_number(value, dtype)})"


def _number(value: int | float, dtype: str) -> str:
    return repr(float(value)) if dtype.startswith("float") else str(int(value))
