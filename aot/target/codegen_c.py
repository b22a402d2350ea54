"""C99 from TIR: one PrimFunc becomes one C function.

`int` is taken to have 32 bits (true of every target), so narrow operands are promoted silently where C does it exactly, and all
other conversions are written out: the text is clean under -Wconversion -Wsign-conversion.  Signed `<<` is printed as a
multiplication or through an unsigned type, because C leaves it undefined for negative values, which TIR allows.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field
from functools import lru_cache
from typing import Literal, Protocol

import numpy as np

from aot.errors import internal
from aot.ir.span import NO_SPAN
from aot.support.dataclass import dataclass
from aot.support.dtype import bits, ctype, int_range, is_float, is_signed, itemsize
from aot.support.names import c_identifier
from aot.support.text import TextBuilder, commas
from aot.target.target import Target
from aot.tir.buffer import Buffer, flat_index
from aot.tir.expr import COMPARISONS, LOGICAL, BinOp, Call, Cast, Expr, Imm, Load, Select, Var
from aot.tir.function import PrimFunc
from aot.tir.functor import loads, map_children, walk, walk_expr
from aot.tir.intrin import BUILTINS, EXTERNAL, BlockText, COperand, Intrin
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While

Linkage = Literal["static", "extern"]

FEATURE_TEST = {
    "dsp": ("AOT_DSP",),
    "mve": ("defined(__ARM_FEATURE_MVE)",),
    "mve.fp": ("defined(__ARM_FEATURE_MVE)", "(__ARM_FEATURE_MVE & 2)"),
    "thumb2": ("AOT_SAT",),
    "vfp": ("AOT_DSP", "AOT_FPU"),
    "v6m": ("AOT_V6M",),
}
"""CPU feature -> the preprocessor conditions for it (aot/kernel.h); Thumb-2 implies SSAT, Armv6-M lacks both."""

_FEATURE = {"mve.fp": "mve"}
"""Feature that a build may lack -> the core's feature that implies it: every known core with MVE has float32 MVE."""

_PREC = {"*": 12, "/": 12, "%": 12, "+": 11, "-": 11, "<<": 10, ">>": 10, "<": 9, "<=": 9, ">": 9, ">=": 9, "==": 8, "!=": 8}
_PREC |= {"&": 7, "^": 6, "|": 5, "&&": 4, "||": 3}
_PRIMARY, _UNARY, _TERNARY = 15, 14, 2
# operators whose operands compilers (and reviewers) want in parentheses, though C does not need them
_EXPLICIT = frozenset({"<<", ">>", "&", "^", "|", "&&", "||"}) | COMPARISONS
_NARROW = frozenset({"int8", "uint8", "int16", "uint16"})
_LANE, _LONG_MASK = 1 << 15, 1 << 8
"""Thresholds from which on a factor or a mask is printed by its bits; strides and small numbers stay decimal."""
NOTE_WIDTH = 100
"""Columns of a kernel's note in its comment."""
_PLAIN_CALL = re.compile(r"\w+\((\{\d+\}(, )?)*\)")


def build_test(requires: str, block: BlockText) -> str:
    """The preprocessor condition under which a block can be compiled."""
    tests = [*FEATURE_TEST[requires], *(["AOT_FPU"] if block.fpu else [])]
    tests += [f"AOT_REGISTERS >= {block.registers}"] if block.registers else []
    return " && ".join(dict.fromkeys(tests))


def suffix(dtype: str) -> str:
    """The suffix of AOT_LD_ and AOT_ST_ macros, and in lower case of aot_min_ and aot_max_: `I32`, `U16`, `F32`."""
    return f"{dtype[0].upper()}{bits(dtype)}"


def emit_func(
    func: PrimFunc,
    *,
    name: str,
    target: Target,
    linkage: Linkage = "static",
    names: Mapping[Buffer, str] | None = None,
    note: str = "",
) -> str:
    """The C text of `func` as a function called `name`, with a comment block; E9001 for a body that TIR does not allow.

    `names` may give other names to its buffer parameters than their own; `note` is added to the comment block.
    """
    printer = Printer(func, target, names or {})
    text = printer.text
    for line in describe(func, note):
        text.line(line)
    head = "AOT_KERNEL static void" if linkage == "static" else "AOT_KERNEL void"
    text.lines(wrap_call(f"{head} {name}(", printer.parameters(), ") {"))
    with text.indented():
        for unused in printer.unused_parameters():
            text.line(f"(void){unused};")
        printer.body(func.body)
    text.line("}")
    return fold_lines(text.text())


def emit_prototype(func: PrimFunc, *, name: str, target: Target) -> str:
    return wrap_call(f"void {name}(", Printer(func, target, {}).parameters(), ");") + "\n"


def canonical(func: PrimFunc, target: Target) -> str:
    """A text that is equal for two functions exactly if their C code is equal, except for name and comment."""
    buffers = {b: f"buffer_{i}" for i, b in enumerate(func.buffers)}
    return emit_func(func, name="f", target=target, names=buffers).partition("*/\n")[2]


def headers(func: PrimFunc) -> tuple[str, ...]:
    """The crt headers that the C of `func` needs, sorted."""
    return tuple(sorted({"aot/kernel.h"} | {h for h in find_uses(func).headers if h}))


def describe(func: PrimFunc, note: str = "") -> list[str]:
    """The comment block of a kernel: its origin, shapes, implementation, work and a note, whose lines are wrapped."""
    attrs = func.attrs
    head = comment(str(attrs.span)) if attrs.span != NO_SPAN else comment(func.name)
    shapes = f"{', '.join(map(_shape, func.inputs)) or 'nothing'} -> {', '.join(map(_shape, func.outputs))}"
    facts = [f"kernel {comment(attrs.kernel)}"] if attrs.kernel else []
    facts += [f"{commas(attrs.macs)} MACs"] if attrs.macs else []
    prose = [part for line in note.splitlines() for part in textwrap.wrap(comment(line), NOTE_WIDTH)]
    lines = [shapes, *([", ".join(facts)] if facts else []), *prose]
    return [f"/* {head}", *(f"   {line}" for line in lines), "*/"]


def _shape(buffer: Buffer) -> str:
    return f"{buffer.dtype}[{', '.join(map(str, buffer.shape)) if buffer.is_sized else '...'}]"


class Printer:
    """State while printing a function: names in scope, and the C names of buffers and loop variables."""

    def __init__(self, func: PrimFunc, target: Target, names: Mapping[Buffer, str]) -> None:
        self.func = func
        self.target = target
        self.text = TextBuilder()
        self._scopes: list[set[str]] = [set()]
        self._vars: dict[Var, str] = {}
        self._values: dict[Var, Expr] = {}
        self._locals: dict[Buffer, tuple[str, ...]] = {}
        self._arrays: dict[Buffer, str] = {}
        self._uses: Uses = find_uses(func)
        for buffer in func.buffers:
            self._arrays[buffer] = self._fresh(names.get(buffer, buffer.name))
        for var in func.scalars:
            self._vars[var] = self._fresh(var.name)

    # ---- signature and names

    def parameters(self) -> list[str]:
        outputs = set(self.func.outputs) | set(self.func.scratch)
        pointers = [
            f"{'' if b in outputs else 'const '}{ctype(b.dtype)} *{self._arrays[b]}" for b in self.func.buffers
        ]  # fmt: skip
        return [*pointers, *(f"{ctype(v.dtype)} {self._vars[v]}" for v in self.func.scalars)] or ["void"]

    def unused_parameters(self) -> list[str]:
        idle = [self._arrays[b] for b in self.func.buffers if b not in self._uses.buffers]
        return idle + [self._vars[v] for v in self.func.scalars if v not in self._uses.vars]

    def _fresh(self, name: str) -> str:
        """A C name that is not in scope, so that nothing is shadowed."""
        base = c_identifier(name)
        candidate, n = base, 0
        while any(candidate in scope for scope in self._scopes):
            n += 1
            candidate = f"{base}_{n}"
        self._scopes[-1].add(candidate)
        return candidate

    @contextmanager
    def _scope(self) -> Iterator[None]:
        self._scopes.append(set())
        with self.text.indented():
            yield
        self._scopes.pop()

    # ---- statements

    def body(self, stmts: tuple[Stmt, ...]) -> None:
        position = 0
        while position < len(stmts):
            stmt = stmts[position]
            position += 1
            if isinstance(stmt, Allocate):
                position += self._allocate(stmt.buffer, stmts[position:])
            else:
                self._stmt(stmt)

    def _stmt(self, stmt: Stmt) -> None:
        match stmt:
            case For():
                self._for(stmt)
            case Store():
                self._store(stmt)
            case Let(var, value):
                if var in self._uses.vars:
                    init = self.expr(value)
                    self._vars[var] = self._fresh(var.name)
                    self.text.line(f"const {ctype(var.dtype)} {self._vars[var]} = {init};")
            case Allocate(buffer):
                self._allocate(buffer, ())
            case If():
                self._if(stmt, "if")
            case While():
                self._while(stmt)
            case Block():
                self._block(stmt)
            case CallPrim(name, operands):
                args = [self._pointer(o) if isinstance(o, Region) else self.expr(o) for o in operands]
                self.text.lines(wrap_call(f"{name}(", args, ");"))
            case _:
                raise internal(f"{type(stmt).__name__} is no statement", where=self.func.name)

    def _for(self, loop: For) -> None:
        if loop.var in self._uses.constant_vars:  # the index of registers, which have names instead
            start, stop = self._constant(loop.start), self._constant(loop.stop)
            for value in range(start, stop, loop.step):
                self._values[loop.var] = Imm(value, loop.var.dtype)
                self.body(loop.body)
            self._values.pop(loop.var, None)
            return
        start_text, stop_text = self.expr(loop.start), self.expr(loop.stop, _PREC["<"] + 1)
        name = self._vars[loop.var] = self._fresh(loop.var.name)
        step = f"++{name}" if loop.step == 1 else f"{name} += {loop.step}"
        self.text.line(f"for ({ctype(loop.var.dtype)} {name} = {start_text}; {name} < {stop_text}; {step}) {{")
        with self._scope():
            self.body(loop.body)
        self.text.line("}")
        self._scopes[-1].discard(name)  # the variable's scope is the loop only

    def _if(self, stmt: If, keyword: str) -> None:
        self.text.line(f"{keyword} ({self.expr(stmt.cond)}) {{")
        with self._scope():
            self.body(stmt.then)
        if len(stmt.orelse) == 1 and isinstance(stmt.orelse[0], If):
            self._if(stmt.orelse[0], "} else if")
            return
        if stmt.orelse:
            self.text.line("} else {")
            with self._scope():
                self.body(stmt.orelse)
        self.text.line("}")

    def _while(self, loop: While) -> None:
        if loop.limit:
            raise internal("only a main function can give up a loop", where=self.func.name)
        self.text.line("for (;;) {")
        with self._scope():
            self.body(loop.test)
            self.text.line(f"if (!({self.expr(loop.cond)})) {{")
            self.text.line("  break;")
            self.text.line("}")
            self.body(loop.body)
        self.text.line("}")

    def _allocate(self, buffer: Buffer, following: tuple[Stmt, ...]) -> int:
        """Declare a local buffer; return how many of the `following` statements became its initialisers."""
        kind = ctype(buffer.dtype)
        if buffer.indexed:
            self._arrays[buffer] = self._fresh(buffer.name)
            self.text.line(f"{kind} {self._arrays[buffer]}[{buffer.size}];")
            return 0
        names = [buffer.name] if buffer.size == 1 else [f"{buffer.name}_{i}" for i in range(buffer.size)]
        values: dict[int, str] = {}
        for stmt in following:
            if not isinstance(stmt, Store) or stmt.buffer is not buffer or any(n.buffer is buffer for n in loads(stmt.value)):
                break
            element = self._constant(flat_index(buffer, stmt.indices))
            if element in values or not 0 <= element < buffer.size:
                break
            values[element] = self.expr(stmt.value)
        self._locals[buffer] = tuple(self._fresh(n) for n in names)
        live = [(i, n) for i, n in enumerate(self._locals[buffer]) if self._uses.reads(buffer, i)]
        if live:
            self._declare(kind, [f"{n} = {values[i]}" if i in values else n for i, n in live])
        for i, name in live:
            if self._uses.only_blocks_use(buffer, i):
                self.text.line(f"(void){name};")
        return len(values)

    def _declare(self, kind: str, parts: list[str]) -> None:
        line = f"{kind} {parts[0]}"
        for part in parts[1:]:
            if len(line) + len(part) > 90:
                self.text.line(line + ";")
                line = f"{kind} {part}"
            else:
                line += f", {part}"
        self.text.line(line + ";")

    def _store(self, stmt: Store) -> None:
        buffer = stmt.buffer
        if buffer in self._locals and not self._uses.reads(buffer, self._constant(flat_index(buffer, stmt.indices))):
            return
        if buffer not in self._locals and stmt.dtype != buffer.dtype and not _bytes_only(buffer.dtype, stmt.dtype):
            index = self._index(buffer, stmt.indices)
            self.text.line(f"AOT_ST_{suffix(stmt.dtype)}({self._arrays[buffer]}, {index}, {self.expr(stmt.value)});")
            return
        place = self._element(buffer, stmt.indices, stmt.dtype, const=False)
        value = stmt.value
        if isinstance(value, BinOp) and value.op in "+-*&|^" and value.dtype not in _NARROW and isinstance(value.a, Load):
            source = value.a
            if source.buffer is buffer and self.expr(source) == place:
                self.text.line(f"{place} {value.op}= {self.expr(value.b)};")
                return
        self.text.line(f"{place} = {self.expr(value)};")

    # ---- tensor intrinsics

    def _block(self, block: Block) -> None:
        intrin = block.intrin
        if intrin.requires != EXTERNAL and not self.target.has(_FEATURE.get(intrin.requires, intrin.requires)):
            self._inline(block)
            return
        operands: dict[str, COperand] = {}
        for param, operand in zip(intrin.desc.params, block.operands, strict=True):
            if not isinstance(operand, Region):
                operands[param.name] = COperand(value=self.expr(operand, _PRIMARY))
            elif operand.buffer in self._locals:
                operands[param.name] = COperand(scalars=self._locals[operand.buffer])
            else:
                operands[param.name] = COperand(pointer=self._pointer(operand))
        emitted = intrin.emit(operands)
        if intrin.requires == EXTERNAL:
            self.text.lines(emitted.text)
            return
        self.text.line_at_margin(f"#if {build_test(intrin.requires, emitted)}")
        self.text.lines(emitted.text)
        self.text.line_at_margin("#else")
        self._inline(block)
        self.text.line_at_margin("#endif")

    def _inline(self, block: Block) -> None:
        """Print the block's PrimFunc inline, with the block's operands."""
        desc = block.intrin.desc
        self._uses = self._uses | block_uses(block)
        self.text.line("{")
        with self._scope():
            self.text.line(f"/* {comment(block.intrin.name)} */")
            for param, operand in zip(desc.params, block.operands, strict=True):
                if isinstance(param, Var):
                    assert not isinstance(operand, Region)
                    self._bind_value(param, operand)
                elif isinstance(operand, Region):
                    self._bind(param, operand)
            self.body(desc.body)
        self.text.line("}")

    def _bind_value(self, param: Var, operand: Expr) -> None:
        init = self.expr(operand)
        if param in self._uses.vars:
            self._vars[param] = self._fresh(param.name)
            self.text.line(f"const {ctype(param.dtype)} {self._vars[param]} = {init};")
        elif not isinstance(operand, Imm):
            self.text.line(f"(void)({init});")  # used by the instructions only

    def _bind(self, param: Buffer, operand: Region) -> None:
        if operand.buffer in self._locals:
            self._locals[param] = self._locals[operand.buffer]
            return
        pointer = self._pointer(operand)
        if param not in self._uses.buffers:
            self.text.line(f"(void)({pointer});")
            return
        const = "const " if self._read_only(operand.buffer) else ""
        self._arrays[param] = self._fresh(param.name)
        self.text.line(f"{const}{ctype(operand.dtype)} *const {self._arrays[param]} = {pointer};")
        if const:
            self._uses.read_only.add(param)

    def _read_only(self, buffer: Buffer) -> bool:
        return buffer in self.func.inputs or buffer in self.func.consts or buffer in self._uses.read_only

    def _pointer(self, operand: Region) -> str:
        """A C expression for the address of a region, with the region's pointer type."""
        array, index = self._arrays[operand.buffer], self._fold(operand.index)
        if operand.dtype == operand.buffer.dtype:
            return array if index == Imm(0) else f"&{array}[{self.expr(index)}]"
        pointer = f"({'const ' if self._read_only(operand.buffer) else ''}{ctype(operand.dtype)} *)"
        # cast through void, because only the planner knows that the address is aligned for the type
        pointer += "" if itemsize(operand.dtype) == 1 else "(const void *)" if self._read_only(operand.buffer) else "(void *)"
        if itemsize(operand.dtype) != itemsize(operand.buffer.dtype):
            index = index * itemsize(operand.dtype)
            return f"{pointer}&((const uint8_t *){array})[{self.expr(index)}]" if index != Imm(0) else pointer + array
        return pointer + (array if index == Imm(0) else f"&{array}[{self.expr(index)}]")

    # ---- expressions

    def expr(self, e: Expr, outer: int = 0) -> str:
        """The text of `e`, in parentheses if an enclosing operator of precedence `outer` needs them."""
        return self._text(self._fold(e) if self._values else e, outer)

    def _text(self, e: Expr, outer: int = 0) -> str:
        text, precedence = self._expr(e)
        return f"({text})" if precedence < outer else text

    def _expr(self, e: Expr) -> tuple[str, int]:
        match e:
            case Imm():
                return self._imm(e)
            case Var():
                return self._vars[e], _PRIMARY
            case BinOp():
                return self._binop(e)
            case Cast(dtype, value):
                return self._cast(dtype, value)
            case Select(cond, then, orelse):
                cond_text = self._text(cond, _TERNARY + 1)
                return f"{cond_text} ? {self._wide(then, _TERNARY + 1)} : {self._wide(orelse, _TERNARY)}", _TERNARY
            case Load(buffer, indices, dtype):
                if buffer in self._locals or dtype == buffer.dtype or _bytes_only(buffer.dtype, dtype):
                    return self._element(buffer, indices, dtype, const=True), _PRIMARY
                return f"AOT_LD_{suffix(dtype)}({self._arrays[buffer]}, {self._index(buffer, indices)})", _PRIMARY
            case Call(intrin, args):
                return self._call(intrin, args)
        raise internal(f"{type(e).__name__} is no expression", where=self.func.name)

    def _imm(self, e: Imm) -> tuple[str, int]:
        if is_float(e.dtype):
            text = float_literal(float(e.value), e.dtype)
            return text, _UNARY if text.startswith("-") else _PRIMARY
        value = int(e.value)
        if e.dtype in ("int32", "int64") and value == int_range(e.dtype)[0]:
            return f"INT{bits(e.dtype)}_MIN", _PRIMARY
        if e.dtype == "uint32":
            return f"{value}u", _PRIMARY
        if e.dtype == "uint64":
            return f"UINT64_C({value})", _PRIMARY
        if e.dtype == "int64" and not -(1 << 31) <= value < 1 << 31:
            return f"INT64_C({value})", _PRIMARY
        return str(value), _UNARY if value < 0 else _PRIMARY

    def _wide(self, e: Expr, outer: int) -> str:
        """Like `expr`, but a small 64-bit constant keeps its type: for places where no other operand determines it."""
        if isinstance(e, Imm) and e.dtype == "int64" and int(e.value) > -(1 << 63):
            return f"INT64_C({e.value})"
        return self._text(e, outer)

    def _binop(self, e: BinOp) -> tuple[str, int]:
        op, dtype = e.op, e.a.dtype
        saturated = _saturation(e)
        if saturated is not None:
            value, call = saturated
            return f"{call}({self._text(value)})", _PRIMARY
        if op in ("min", "max"):
            kind = "int32" if dtype in _NARROW or dtype == "bool" else dtype
            text = f"aot_{op}_{suffix(kind).lower()}({self._text(e.a)}, {self._text(e.b)})"
            return (f"({ctype(dtype)}){text}", _UNARY) if dtype != kind else (text, _PRIMARY)
        if op == "<<":
            return self._shift_left(e)
        precedence = _PREC[op]
        if dtype in _NARROW and op not in COMPARISONS and op not in LOGICAL:
            unsigned = "(uint32_t)" if op == "*" and not is_signed(dtype) else ""
            left = unsigned + self._side(e.a, op, _UNARY) if unsigned else self._side(e.a, op, precedence)
            return f"({ctype(dtype)})({left} {op} {self._side(e.b, op, precedence + 1)})", _UNARY
        if op == ">>" and isinstance(e.b, Imm):
            return f"{self._side(e.a, op, precedence)} >> {e.b.value}", precedence
        left = self._wide(e.a, precedence) if isinstance(e.a, Imm) else self._side(e.a, op, precedence)
        if isinstance(e.b, Imm) and (bit_pattern := _bit_pattern(op, e.b)):
            return f"{left} {op} {bit_pattern}", precedence
        right = e.b
        if isinstance(right, Cast) and right.dtype == "int64" == dtype and op != ">>" and not is_float(right.value.dtype):
            right = right.value if right.value.dtype != "uint64" else right  # C widens it to the left side's type
        return f"{left} {op} {self._side(right, op, precedence + 1)}", precedence

    def _side(self, e: Expr, op: str, precedence: int) -> str:
        """An operand of `op`, also in parentheses if a mix of operators without parentheses would be easy to misread."""
        inner = isinstance(e, BinOp) and e.op in _PREC and e.op != op and e.dtype not in _NARROW
        if inner and op in _EXPLICIT and not (op in LOGICAL and isinstance(e, BinOp) and e.op in COMPARISONS):
            arithmetic = isinstance(e, BinOp) and _PREC[e.op] >= 11
            return self._text(e, _PREC[op] + 1 if op in COMPARISONS and arithmetic else _UNARY)
        return self._text(e, precedence)

    def _shift_left(self, e: BinOp) -> tuple[str, int]:
        dtype, width = e.dtype, 64 if bits(e.dtype) == 64 else 32
        amount = self._fold(e.b)
        if dtype not in _NARROW and not is_signed(dtype):
            return f"{self._side(e.a, '<<', _PREC['<<'])} << {self._amount(amount)}", _PREC["<<"]
        if dtype not in _NARROW and isinstance(amount, Imm) and int(amount.value) < width - 1:
            one = "INT64_C(1)" if width == 64 else "1"
            factor = str(1 << int(amount.value)) if int(amount.value) < 7 else f"({one} << {amount.value})"
            return f"{self._wide(e.a, _PREC['*'])} * {factor}", _PREC["*"]
        shifted = f"(uint{width}_t){self._text(e.a, _UNARY)} << {self._amount(amount)}"
        return f"({ctype(dtype)})({shifted})", _UNARY

    def _amount(self, amount: Expr) -> str:
        return str(amount.value) if isinstance(amount, Imm) else self._side(amount, "<<", _PREC["<<"] + 1)

    def _cast(self, dtype: str, value: Expr) -> tuple[str, int]:
        if value.dtype == "float16":
            return f"aot_f32_of_f16({self._text(value)})", _PRIMARY
        if dtype == "float16":
            return f"aot_f16_of_f32({self._text(value)})", _PRIMARY
        if dtype == "bool":
            return f"{self._text(value, _PREC['!='] + 1)} != 0", _PREC["!="]
        if dtype == "int32" and value.dtype in _NARROW:
            return self._expr(value)  # C promotes it to int by itself
        return f"({ctype(dtype)}){self._text(value, _UNARY)}", _UNARY

    def _call(self, intrin: Intrin, args: tuple[Expr, ...]) -> tuple[str, int]:
        if _PLAIN_CALL.fullmatch(intrin.c):
            return intrin.c.format(*(self._text(a) for a in args)), _PRIMARY
        return f"({intrin.c.format(*(self._text(a, _PRIMARY) for a in args))})", _PRIMARY

    # ---- places

    def _element(self, buffer: Buffer, indices: tuple[Expr, ...], dtype: str, *, const: bool) -> str:
        if buffer in self._locals:
            if dtype != buffer.dtype:
                raise internal(f"local buffer {buffer.name} is seen as {dtype}", where=self.func.name)
            element = self._constant(flat_index(buffer, indices))
            if not 0 <= element < buffer.size:
                raise internal(f"{buffer.name}[{element}] is outside", where=self.func.name)
            return self._locals[buffer][element]
        array = self._arrays[buffer]
        if dtype != buffer.dtype:
            array = f"(({'const ' if const else ''}{ctype(dtype)} *){array})"
        return f"{array}[{self._index(buffer, indices)}]"

    def _index(self, buffer: Buffer, indices: tuple[Expr, ...]) -> str:
        return self.expr(flat_index(buffer, indices))

    def _constant(self, e: Expr) -> int:
        value = self._fold(e)
        if not isinstance(value, Imm):
            raise internal("a local buffer is indexed, or a loop unrolled, by a value that is not constant", where=self.func.name)
        return int(value.value)

    def _fold(self, e: Expr) -> Expr:
        """`e` with the variables of unrolled loops replaced by their values."""
        return self._values.get(e, e) if isinstance(e, Var) else map_children(e, self._fold)


_SATURATIONS = {int_range(t): f"aot_{'s' if is_signed(t) else 'u'}sat{bits(t)}" for t in ("int8", "int16", "uint8")}
"""Bounds of a clamp -> the function of aot/kernel.h that uses SSAT or USAT if the core has them."""

_SATURATE_SHIFT = 24
"""Largest shift that these functions support."""


def _bit_pattern(op: str, constant: Imm) -> str:
    """A constant printed by its bits: `(1 << 21)` as a factor, `0x1fffffu` as a mask; empty for other constants."""
    dtype = constant.dtype
    if op == "*" and dtype == "int32" and constant.value >= _LANE and int(constant.value).bit_count() == 1:
        return f"(1 << {int(constant.value).bit_length() - 1})"
    return f"{int(constant.value):#x}u" if op == "&" and dtype == "uint32" and constant.value >= _LONG_MASK else ""


def _saturation(e: BinOp) -> tuple[Expr, str] | None:
    """(x, function) for min(max(x, low), high) of an int32 if a single function does that, including a shift of x."""
    if e.op != "min" or e.dtype != "int32" or not isinstance(e.a, BinOp) or e.a.op != "max":
        return None
    if not isinstance(e.b, Imm) or not isinstance(e.a.b, Imm):
        return None
    call = _SATURATIONS.get((int(e.a.b.value), int(e.b.value)))
    if call is None:
        return None
    value = e.a.a
    if isinstance(value, BinOp) and value.op == ">>" and isinstance(value.b, Imm) and 0 < int(value.b.value) <= _SATURATE_SHIFT:
        return value.a, f"{call}_asr{value.b.value}"
    return value, call


def _bytes_only(a: str, b: str) -> bool:
    """Whether both are one-byte integers, so that a pointer cast converts between them."""
    return a in ("int8", "uint8") and b in ("int8", "uint8")


# ---- uses: the printer omits unused variables and buffers, because compilers warn about them


@dataclass(slots=True)
class Uses:
    """`vars` that live statements read; all used `buffers`; `loaded` elements; loop variables that must become constants.

    `loaded` contains (buffer, element) of local buffers, with None for a variable element or the whole buffer; `values` is the
    subset that expressions read, not only a block.
    `read_only` collects the names of a block's operands that point to constant memory.
    """

    vars: set[Var] = field(default_factory=set)
    buffers: set[Buffer] = field(default_factory=set)
    loaded: set[tuple[Buffer, int | None]] = field(default_factory=set)
    values: set[tuple[Buffer, int | None]] = field(default_factory=set)
    constant_vars: set[Var] = field(default_factory=set)
    headers: set[str] = field(default_factory=set)
    read_only: set[Buffer] = field(default_factory=set)

    def __or__(self, other: Uses) -> Uses:
        return Uses(*(getattr(self, name) | getattr(other, name) for name in Uses.__slots__))

    def reads(self, buffer: Buffer, element: int | None) -> bool:
        """Whether something reads this element of a local buffer (None: any element)."""
        if element is None:
            return any(b is buffer for b, _ in self.loaded)
        return (buffer, element) in self.loaded or (buffer, None) in self.loaded

    def only_blocks_use(self, buffer: Buffer, element: int) -> bool:
        """Whether expressions read other elements of a local buffer, but not this one: a block may compute unused elements."""
        read = {e for b, e in self.values if b is buffer}
        return bool(read) and not read & {element, None}


@lru_cache(4096)
def find_uses(func: PrimFunc) -> Uses:
    """The uses of a function, cached: its text, its prototype and its headers need them."""
    return _settled(func, None)


def block_uses(block: Block) -> Uses:
    """The uses in a block's PrimFunc; its operands determine which of its buffers are registers.

    No pass sees a description, so that its loops of kind "unroll" are unrolled as it is printed.
    """
    uses = _settled(block.intrin.desc, block)
    uses.constant_vars |= {s.var for s in walk(block.intrin.desc.body) if isinstance(s, For) and s.kind == "unroll"}
    return uses


def _settled(func: PrimFunc, block: Block | None) -> Uses:
    """Repeat the walk until nothing more is removed, because anything that only a dead store reads is dead too."""
    before: Uses | None = None
    while True:
        walker = _Walker(before)
        if block is not None:
            walker.bind(func, block)
        walker.visit(func.body)
        if before is not None and walker.uses.loaded == before.loaded:
            return walker.uses
        before = walker.uses


class _Walker:
    """One walk in reverse order, so that readers are visited before the values; `before` is the result of the previous walk."""

    def __init__(self, before: Uses | None) -> None:
        self.before = before
        self.uses = Uses()
        self.scalars: set[Buffer] = set()

    def bind(self, func: PrimFunc, block: Block) -> None:
        for param, operand in zip(func.params, block.operands, strict=True):
            if isinstance(param, Buffer):
                self.uses.loaded.add((param, None))
                if isinstance(operand, Region) and operand.buffer.scope == "local":
                    self.scalars.add(param)

    def visit(self, stmts: tuple[Stmt, ...]) -> None:
        self.scalars |= {s.buffer for s in stmts if isinstance(s, Allocate) and not s.buffer.indexed}
        for stmt in reversed(stmts):
            match stmt:
                case For(var, start, stop, body):
                    self.visit(body)
                    self._read(start, stop)
                    self.uses.vars.add(var)
                    if var in self.uses.constant_vars:
                        self.uses.constant_vars |= _variables((start, stop))
                case Store():
                    self._store(stmt)
                case Let(var, value):
                    if var in self.uses.vars:
                        self._read(value)
                case If(cond, then, orelse):
                    self.visit(then)
                    self.visit(orelse)
                    self._read(cond)
                case While(test, cond, body):
                    self.visit(body)
                    self._read(cond)
                    self.visit(test)
                case Block() | CallPrim():
                    self._operands(stmt)
                case Allocate():
                    pass

    def _store(self, stmt: Store) -> None:
        buffer = stmt.buffer
        self.uses.buffers.add(buffer)
        self._indices(buffer, stmt.indices)
        if buffer not in self.scalars:
            self._read(*stmt.indices, stmt.value)
            return
        element = _element(buffer, stmt.indices)
        if self.before is None or self.before.reads(buffer, element):
            own = None if element is None else (buffer, element)
            self._read(stmt.value, own=own)

    def _operands(self, stmt: Block | CallPrim) -> None:
        if isinstance(stmt, Block):
            self.uses.headers.add(stmt.intrin.header)
            self.uses.headers |= find_uses(stmt.intrin.desc).headers
        for operand in stmt.operands:
            if isinstance(operand, Region):
                self.uses.buffers.add(operand.buffer)
                self.uses.loaded.add((operand.buffer, None))
                self._read(operand.index)
            else:
                self._read(operand)

    def _read(self, *exprs: Expr, own: tuple[Buffer, int] | None = None) -> None:
        """Record what the expressions read; an element's update from itself (`own`) does not count as a read."""
        for e in exprs:
            for node in walk_expr(e):
                kind: type = type(node)  # faster than `match`, which would try one class after the other
                if kind is Var:
                    self.uses.vars.add(node)  # type: ignore[arg-type]
                elif kind is Load:
                    self._load(node, own)  # type: ignore[arg-type]
                elif kind is Call:
                    self.uses.headers.add(node.intrin.header)  # type: ignore[union-attr]

    def _load(self, load: Load, own: tuple[Buffer, int] | None) -> None:
        buffer = load.buffer
        self.uses.buffers.add(buffer)
        self._indices(buffer, load.indices)
        place = (buffer, _element(buffer, load.indices) if buffer in self.scalars else None)
        if place != own:
            self.uses.loaded.add(place)
            self.uses.values.add(place)

    def _indices(self, buffer: Buffer, indices: Iterable[Expr]) -> None:
        if buffer in self.scalars:
            self.uses.constant_vars |= _variables(indices)


def _variables(exprs: Iterable[Expr]) -> set[Var]:
    return {n for e in exprs for n in walk_expr(e) if isinstance(n, Var)}


def _element(buffer: Buffer, indices: tuple[Expr, ...]) -> int | None:
    index = flat_index(buffer, indices)
    return int(index.value) if isinstance(index, Imm) else None


# ---- main functions: calls of kernels with addresses that only the model's file knows


class Addresses(Protocol):
    """The places of a main function's buffers, which only its file knows."""

    def address(self, region: Region) -> str:
        """The C expression for a region's first byte, of any pointer type."""

    def pointer(self, region: Region) -> str:
        """The same, as an argument of the region's type."""


def print_calls(func: PrimFunc, *, target: Target, addresses: Addresses) -> Callable[[Stmt | Expr], str]:
    """Prints the calls of a main function one at a time, and the conditions of its branches and loops."""
    return _CallPrinter(func, target, addresses).text_of


class _CallPrinter(Printer):
    """Prints the calls of a main function."""

    def __init__(self, func: PrimFunc, target: Target, addresses: Addresses) -> None:
        super().__init__(func, target, {})
        self._addresses = addresses

    def text_of(self, item: Stmt | Expr) -> str:
        """A call, a condition, or a number in memory that is read or set; an error for anything else."""
        match item:
            case CallPrim(name, (Region() as source, Region() as to, Imm() as size)) if name in BUILTINS:
                return f"{name}({self._addresses.address(to)}, {self._addresses.address(source)}, {self.expr(size)});"
            case CallPrim(name, operands):
                args = [self._pointer(o) if isinstance(o, Region) else self.expr(o) for o in operands]
                return wrap_call(f"{name}(", args, ");")
            case Load(buffer, (index,), "bool"):  # as a byte, because a bool must not be read if its byte is not 0 or 1
                return f"*(const uint8_t *){self._addresses.address(Region(buffer, index, 'bool'))}"
            case Let(var, Load(buffer, (index,), dtype)):
                self._vars[var] = var.name
                text = self._addresses.address(Region(buffer, index, dtype))
                return f"const {ctype(dtype)} {var.name} = *(const {ctype(dtype)} *){text};"
            case Store(buffer, (index,), value, dtype):
                return f"*({ctype(dtype)} *){self._addresses.address(Region(buffer, index, dtype))} = {self.expr(value)};"
            case BinOp():
                return self.expr(item)
            case _:
                raise internal(f"{type(item).__name__} is no call", where=self.func.name)

    def _pointer(self, operand: Region) -> str:
        return self._addresses.pointer(operand)


# Small pieces of C text: comments, literals, wrapped argument lists, licence lines.

LINE = 110
"""Line length at which generated C is wrapped."""

_BETWEEN = re.compile(r", |. (?:[-+*/%&|^?:<>]|&&|\|\||<<|>>|[<>=!]=) ")
"""A place to break a line: after a comma, or before a binary operator; the match starts one column before the space."""


def comment(text: str) -> str:
    """`text` from an untrusted file, safe inside a C comment: plain ASCII, no comment marks, no trigraphs, no line splices."""
    clean = "".join(c if " " <= c <= "~" and c != "\\" else "_" for c in text)
    for mark in ("*/", "/*", "??", "//"):
        while mark in clean:
            clean = clean.replace(mark, f"{mark[0]} {mark[1]}")
    return clean


def float_literal(value: float, dtype: str) -> str:
    """A C constant that is exactly `value` rounded to `dtype`."""
    if math.isnan(value) or math.isinf(value):
        f = "f" if dtype == "float32" else ""
        text = f'__builtin_nan{f}("")' if math.isnan(value) else f"__builtin_inf{f}()"
        return f"-{text}" if value < 0 else text
    text = f"{np.float32(value):.9g}" if dtype == "float32" else repr(float(value))
    if not any(c in text for c in ".e"):
        text += ".0"
    return text + ("f" if dtype == "float32" else "")


def wrap_call(head: str, args: Sequence[str], tail: str, *, indent: str = "    ") -> str:
    """`head` + arguments + `tail`, broken between arguments if the line is too long."""
    lines, line = [], head
    for i, arg in enumerate(args):
        piece = arg + (", " if i + 1 < len(args) else tail)
        if len(line) + len(piece.rstrip()) > LINE and line.strip():
            lines.append(line.rstrip())
            line = indent
        line += piece
    if not args:
        line += tail
    return "\n".join([*lines, line])


def fold_lines(text: str) -> str:
    """C text with long lines broken between operands; comments, directives and string literals are not changed."""
    return "\n".join(part for line in text.split("\n") for part in _fold(line))


def _fold(line: str) -> list[str]:
    indent = len(line) - len(line.lstrip())
    if len(line) <= LINE or line.lstrip().startswith(('"', "#", "/*", "*/")) or "/*" in line:
        return [line]
    lines: list[str] = []
    while len(line) > LINE:
        at = _break(line, indent + (LINE - indent) // 3)
        if at is None:
            break
        lines.append(line[:at].rstrip())
        line = " " * (indent + 4) + line[at:].lstrip()
    return [*lines, line]


def _break(line: str, first: int) -> int | None:
    """Where to break a line, at `first` or later: outside of literals, at the lowest bracket depth, as far right as possible."""
    best: tuple[int, int] | None = None
    depth, quoted = 0, False
    for at, c in enumerate(line[:LINE]):
        if c == '"' and line[at - 1] != "\\":
            quoted = not quoted
        elif quoted:
            continue
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == " " and at >= first and _BETWEEN.match(line, at - 1) and (best is None or depth <= best[0]):
            best = depth, at
    return None if best is None else best[1]


GENERATED = "0BSD"
PARAMETERS = "LicenseRef-model"
"""Licences of generated files: generated code belongs to the user, and 0BSD requires nothing, not even a notice; the model's
numbers are under the model's own licence.  The files of crt, copied or included, keep Apache-2.0."""


def spdx_line(licence: str = GENERATED) -> str:
    """The SPDX comment for the first line of a C file, without a line break."""
    return f"/* SPDX-License-Identifier: {licence} */"
