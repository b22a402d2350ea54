"""Parser for modules of loop nests: reads what aot.tir.printer prints, edited or not.

The first word identifies a statement, so a new kind of statement is one more entry in STATEMENTS.  Expressions are built exactly
as written; nothing is folded.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeVar

import numpy as np

from aot.errors import InternalError, Problem, UsageError
from aot.ir.module import HEAD, IRModule, classes_of, decode, encode, entry_of, from_text, is_too_deep, parsed, to_text
from aot.ir.structural import structural_equal
from aot.support.dataclass import dataclass
from aot.support.dtype import is_dtype, is_float
from aot.support.entry_points import reach
from aot.tir.buffer import Buffer, Scope
from aot.tir.expr import BinOp, Call, Cast, Expr, Imm, Load, Select, Var
from aot.tir.function import FuncAttrs, PrimFunc
from aot.tir.functor import walk
from aot.tir.intrin import INTRINSICS, BlockText, COperand, TensorIntrin
from aot.tir.printer import PRECEDENCE, print_func
from aot.tir.stmt import Allocate, Block, CallPrim, For, If, Let, Region, Stmt, Store, While
from aot.tir.verify import verify

T = TypeVar("T", Var, Buffer)

_TOKEN = re.compile(r"(\.\.|->|<<|>>|<=|>=|==|!=|&&|\|\||\d+(?:\.\d+)?(?:e[+-]?\d+)?|@?[A-Za-z_]\w*(?:\.\w+)*|[^\s\w])")
_REMARK = re.compile(r"  // (?:layer (\d+))?.*$")
_HEAD = re.compile(r"(prim_func|intrin)\b")


def is_tir(text: str) -> bool:
    """Whether a text begins with a function of this IR."""
    return _HEAD.match(text.lstrip()) is not None


def parse_module(text: str, name: str) -> IRModule:
    """Parse a module (E5130, E5131); its functions are verified.  Without metadata, attributes have their defaults."""
    body, head, metadata = text.partition(HEAD)
    return parsed(_Module(body, from_text(metadata) if head else {}).parse, name)


class _Module:
    """Functions and intrinsics of a text; each may use the intrinsics defined above it."""

    def __init__(self, text: str, record: Mapping[str, Any]) -> None:
        self._lines = text.splitlines()
        self._record = record
        self._intrins: dict[str, TensorIntrin] = {}

    def parse(self, name: str) -> IRModule:
        functions: dict[str, PrimFunc] = {}
        constants: dict[str, Mapping[str, np.ndarray[Any, Any]]] = {}
        at = 0
        while at < len(self._lines):
            if not self._lines[at].strip():
                at += 1
                continue
            reader = FunctionParser(self._lines, at, self._intrins)
            kind, key, func = reader.function()
            at = reader.at
            entry = entry_of(self._record, f"@{key}" if kind == "prim_func" else f"intrin {key}")
            func = self._with_notes(func, entry, kind)
            try:
                verify(func)
            except InternalError as error:
                raise UsageError(*(Problem("E5130", p.message, f"@{key}") for p in error.problems)) from None
            if kind == "intrin":
                self._intrins[key] = _intrin(key, func, entry)
            else:
                functions[key] = func
                arrays = decode(entry.get("constants", {"map": []}))
                if arrays:
                    constants[key] = arrays
        return IRModule(functions, name, constants)

    def _with_notes(self, func: PrimFunc, entry: Mapping[str, Any], kind: str) -> PrimFunc:
        name = decode(entry.get("name" if kind == "prim_func" else "desc", func.name))
        attrs = decode(entry["attrs"], classes_of(FuncAttrs)) if "attrs" in entry else FuncAttrs()
        if not isinstance(attrs, FuncAttrs) or not isinstance(name, str):
            raise UsageError(Problem("E5131", f"the metadata of {func.name} is corrupt"))
        return replace(func, name=name, attrs=attrs)


@dataclass(frozen=True, slots=True)
class PrintedBlock:
    """The C text of a parsed block for each combination of operand kinds."""

    name: str
    forms: Mapping[str, Sequence[Any]]

    def __call__(self, operands: Mapping[str, COperand]) -> BlockText:
        kinds = []
        for o in operands.values():
            value = f"={o.value}" if o.value.isdigit() else "value"
            kinds.append(value if o.value else "pointer" if o.pointer else str(len(o.scalars)))
        general = " ".join("value" if kind.startswith("=") else kind for kind in kinds)
        form = self.forms.get(" ".join(kinds), self.forms.get(general))
        if form is None:
            raise UsageError(Problem("E5131", f"the metadata of {self.name} has no C text for operands of kinds {general}"))
        text, registers, fpu = form
        for name, operand in operands.items():
            text = text.replace(f"@{{{name}.value}}", operand.value).replace(f"@{{{name}.pointer}}", operand.pointer)
            for k, scalar in enumerate(operand.scalars):
                text = text.replace(f"@{{{name}.{k}}}", scalar)
        return BlockText(text, registers, fpu)


def _intrin(name: str, desc: PrimFunc, entry: Mapping[str, Any]) -> TensorIntrin:
    try:
        emit = PrintedBlock(name, dict(entry["forms"]))
        return TensorIntrin(str(entry["name"]), desc, emit, str(entry["requires"]), str(entry["header"]), bool(entry["ordered"]))
    except (KeyError, TypeError, ValueError):
        raise UsageError(Problem("E5131", f"the metadata of the intrinsic {name} is corrupt or missing")) from None


class FunctionParser:
    """Parses one function from line `at` on; afterwards `at` is the line after it."""

    def __init__(self, lines: Sequence[str], at: int, intrins: Mapping[str, TensorIntrin]) -> None:
        self.at = at
        self._lines = lines
        self._intrins = intrins
        self._names: dict[str, Var | Buffer] = {}
        self._tokens: list[str] = []
        self._next = 0
        self._layer = -1

    # ---- lines and tokens

    def line(self) -> None:
        """Advance to the next line that is not empty."""
        while self.at < len(self._lines) and not self._lines[self.at].strip():
            self.at += 1
        if self.at == len(self._lines):
            self.fail("}")
        text = self._lines[self.at]
        remark = _REMARK.search(text)
        self._layer = int(remark[1]) if remark is not None and remark[1] else -1
        self._tokens, self._next = _TOKEN.findall(text[: remark.start()] if remark is not None else text), 0
        self.at += 1
        if is_too_deep(text):
            self.fail("brackets that are nested less deeply")

    def fail(self, expected: str) -> NoReturn:
        """Raise E5130 with the line and what was expected there."""
        line = self._lines[min(self.at, len(self._lines)) - 1].strip() if self._lines else ""
        ahead = " ".join(self._tokens[self._next : self._next + 3])
        near = f" before '{ahead}'" if ahead else ""
        raise UsageError(Problem("E5130", f"{line[:80]!r}: {expected} is expected{near}", f"line {self.at}"))

    def peek(self) -> str:
        """The next token, empty at the end of the line."""
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def take(self, token: str = "") -> str:
        """Consume the next token, which must be `token` if given."""
        actual = self.peek()
        if not actual or (token and actual != token):
            self.fail(f"'{token}'" if token else "more")
        self._next += 1
        return actual

    def accept(self, token: str) -> bool:
        """Consume the token if it is the next one."""
        if self.peek() != token:
            return False
        self._next += 1
        return True

    def number(self) -> int:
        """A whole number."""
        sign = -1 if self.accept("-") else 1
        if not self.peek().isdigit():
            self.fail("a whole number")
        return sign * int(self.take())

    def dtype(self) -> str:
        """The name of an element type."""
        if not is_dtype(self.peek()):
            self.fail("an element type")
        return self.take()

    def listed(self, rule: Callable[[], Any], end: str) -> list[Any]:
        """Parse a comma-separated list of `rule` up to and including `end`."""
        items: list[Any] = []
        while not self.accept(end):
            if items:
                self.take(",")
            items.append(rule())
        return items

    # ---- functions

    def function(self) -> tuple[str, str, PrimFunc]:
        """(keyword, name, function); attributes are not part of the text."""
        self.line()
        keyword = self.take()
        if keyword not in ("prim_func", "intrin") or not self.peek().startswith("@"):
            self.fail("prim_func @name(")
        name = self.take()[1:]
        self.take("(")
        params = self.listed(self._param, ")")
        results = [self.take()] if self.accept("->") else []
        while results and self.accept(","):
            results.append(self.take())
        self.take("{")
        outputs = [self._names.get(r) for r in results]
        inputs = [p for p in params if isinstance(p, Buffer) and p not in outputs]
        if not all(isinstance(o, Buffer) for o in outputs):
            self.fail("the name of a buffer as result")
        held: dict[str, list[Buffer]] = {"const": [], "arena": [], "state": []}
        self.line()
        while self.peek() in held:
            scope: Any = self.take()
            held[scope].append(self._buffer(scope))
            self.line()
        body = self._body_from_here()
        func = PrimFunc(
            name, tuple(inputs), tuple(o for o in outputs if isinstance(o, Buffer)), body, tuple(held["const"]),
            tuple(held["arena"]), tuple(p for p in params if isinstance(p, Var)), state=tuple(held["state"]),
        )  # fmt: skip
        return keyword, name, func

    def _param(self) -> Var | Buffer:
        text = self.take()
        self.take(":")
        dtype = self.dtype()
        return self._shaped(text, dtype, "param") if self.peek() == "[" else self.define(text, Var(_own(text), dtype))

    def _buffer(self, scope: Scope, *, indexed: bool = False) -> Buffer:
        text = self.take()
        self.take(":")
        return self._shaped(text, self.dtype(), scope, indexed=indexed)

    def _shaped(self, text: str, dtype: str, scope: Scope, *, indexed: bool = False) -> Buffer:
        self.take("[")
        shape = tuple(self.listed(self.number, "]"))
        align = self.number() if self.accept("align") else 1
        return self.define(text, Buffer(_own(text), shape, dtype, scope, align, indexed))

    def define(self, text: str, item: T) -> T:
        """Define a new name of the text."""
        if text in self._names:
            self.fail("a new name")
        self._names[text] = item
        return item

    # ---- statements

    def body(self) -> tuple[Stmt, ...]:
        """Parse the statements up to the line that begins with }, which is then the current line, after the brace."""
        if self.peek():
            self.fail("the end of the line")
        self.line()
        return self._body_from_here()

    def _body_from_here(self) -> tuple[Stmt, ...]:
        statements: list[Stmt] = []
        while not self.accept("}"):
            rule = STATEMENTS.get(self.peek())
            if rule is not None and self._tokens[self._next + 1 : self._next + 2] not in (["["], ["="]):
                self.take()
                statements.append(rule(self))
            else:
                statements.append(self._store())
            if self.peek():
                self.fail("the end of the line")
            self.line()
        return tuple(statements)

    def _store(self) -> Store:
        buffer, dtype = self.typed_buffer(self.take())
        self.take("[")
        indices = tuple(self.listed(self.expr, "]"))
        self.take("=")
        return Store(buffer, indices, self.expr(), dtype)

    def for_(self) -> For:
        """`for i in 0..4 step 2 unroll {`"""
        text = self.take()
        var = Var(_own(text), self.dtype() if self.accept(":") else "int32")
        self.take("in")
        start = self.expr()
        self.take("..")
        stop = self.expr()
        step = self.number() if self.accept("step") else 1
        kind: Any = self.take() if self.peek() in ("unroll", "serial") else "serial"
        self.take("{")
        self.define(text, var)
        return For(var, start, stop, self.body(), step, kind)

    def let(self) -> Let:
        """`let x: int32 = a + 1`"""
        text = self.take()
        self.take(":")
        dtype = self.dtype()
        self.take("=")
        value = self.expr()
        return Let(self.define(text, Var(_own(text), dtype)), value)

    def local(self) -> Allocate:
        """`local acc: int32[4]`"""
        return Allocate(self._buffer("local", indexed=self.accept("indexed")))

    def if_(self) -> If:
        """`if a < b {` ... `} else {` ... `}`"""
        cond = self.expr()
        self.take("{")
        then = self.body()
        orelse: tuple[Stmt, ...] = ()
        if self.accept("else"):
            self.take("{")
            orelse = self.body()
        return If(cond, then, orelse)

    def while_(self) -> While:
        """`while at most 9 {` ... `} holds a < b {` ... `}`"""
        limit = 0
        if self.accept("at"):
            self.take("most")
            limit = self.number()
        self.take("{")
        test = self.body()
        self.take("holds")
        cond = self.expr()
        self.take("{")
        return While(test, cond, self.body(), limit)

    def block(self) -> Block:
        """`block arm_dsp.dot(x[4 ..], 3)`"""
        name = self.take()
        if name not in self._intrins:
            self.fail(f"an intrinsic defined above, not {name},")
        self.take("(")
        return Block(self._intrins[name], tuple(self.listed(self.operand, ")")))

    def call(self) -> CallPrim:
        """`call @kernel(x[0 ..], y[0 ..])  // layer 0`"""
        layer, name = self._layer, self.take()
        if not name.startswith("@"):
            self.fail("@name")
        self.take("(")
        return CallPrim(name[1:], tuple(self.listed(self.operand, ")")), layer)

    def operand(self) -> Region | Expr:
        """A region `x[4 ..]`, or an expression."""
        start = self._next
        if self._is_buffer(self.peek()):
            buffer, dtype = self.typed_buffer(self.take())
            self.take("[")
            index = self.expr()
            if self.accept(".."):
                self.take("]")
                return Region(buffer, index, dtype)
        self._next = start
        return self.expr()

    # ---- expressions

    def expr(self, level: int = 0) -> Expr:
        """Parse an expression whose operators bind at least as strongly as `level`."""
        left = self._primary()
        while PRECEDENCE.get(self.peek(), -1) >= max(level, 1):
            op = self.take()
            left = BinOp(op, left, self.expr(PRECEDENCE[op] + 1))
        return left

    def _primary(self) -> Expr:
        if self.accept("("):
            inner = self.expr()
            self.take(")")
            return inner
        token = self.peek()
        if self._is_number():
            return self._literal()
        if token in ("true", "false"):
            return Imm(int(self.take() == "true"), "bool")
        if self._tokens[self._next + 1 : self._next + 2] == ["("]:
            return self._function()
        item = self._names.get(token)
        if isinstance(item, Var):
            self.take()
            return item
        if not self._is_buffer(token):
            self.fail("a known name")
        buffer, dtype = self.typed_buffer(self.take())
        self.take("[")
        return Load(buffer, tuple(self.listed(self.expr, "]")), dtype)

    def _literal(self, dtype: str = "") -> Imm:
        sign = "-" if self.accept("-") else ""
        text = self.take()
        if not text[:1].isdigit() and text not in ("inf", "nan"):
            self.fail("a number")
        if text.isdigit() and not is_float(dtype or "int32"):
            return Imm(int(sign + text), dtype or "int32")
        return Imm(float(sign + text), dtype or "float32")

    def _function(self) -> Expr:
        name = self.take()
        self.take("(")
        if is_dtype(name):
            ends_after_number = self._tokens[self._next + (2 if self.peek() == "-" else 1)] == ")"
            if self._is_number() and ends_after_number:
                literal: Expr = self._literal(name)
                self.take(")")
                return literal
            value = self.expr()
            self.take(")")
            return Cast(name, value)
        args = self.listed(self.expr, ")")
        if name in ("min", "max") and len(args) == 2:
            return BinOp(name, args[0], args[1])
        if name == "select" and len(args) == 3:
            return Select(args[0], args[1], args[2])
        kinds = tuple(a.dtype for a in args)
        intrin = next((i for i in _intrinsics(name) if i.args == kinds), None)
        if intrin is None:
            self.fail(f"an intrinsic that takes {', '.join(kinds) or 'nothing'}, not {name},")
        return Call(intrin, tuple(args))

    def _is_number(self) -> bool:
        return self.peek() in ("-", "inf", "nan") or self.peek()[:1].isdigit()

    def _is_buffer(self, text: str) -> bool:
        return isinstance(self._names.get(text), Buffer) or isinstance(self._names.get(text.rpartition(".")[0]), Buffer)

    def typed_buffer(self, text: str) -> tuple[Buffer, str]:
        """The buffer of `x` or `x.int32`, and the type of the access."""
        item = self._names.get(text)
        if isinstance(item, Buffer):
            return item, item.dtype
        name, _, dtype = text.rpartition(".")
        item = self._names.get(name)
        if not isinstance(item, Buffer) or not is_dtype(dtype):
            self.fail("the name of a buffer")
        return item, dtype


STATEMENTS: dict[str, Callable[[FunctionParser], Stmt]] = {
    "for": FunctionParser.for_,
    "let": FunctionParser.let,
    "local": FunctionParser.local,
    "if": FunctionParser.if_,
    "while": FunctionParser.while_,
    "block": FunctionParser.block,
    "call": FunctionParser.call,
}
"""First word of a statement -> its parser; any other line is a store."""


def _own(text: str) -> str:
    """A name without the number that made it unique."""
    name, _, number = text.rpartition(".")
    return name if name and number.isdigit() else text


def _intrinsics(name: str) -> Sequence[Any]:
    """The scalar intrinsics with this name; kernels register theirs when an unknown name comes up."""
    if name not in INTRINSICS:
        reach("kernels")
    return INTRINSICS.get(name, ())


# Printing a whole module: functions, the meaning of the blocks that they use, and metadata.
#
# The metadata hold the attributes and constants of the functions, and the C text of each block with `@{x.pointer}` in the place
# of an operand.  So the text does not depend on the process that printed it.


Form = tuple[str, ...]
"""The kind of each operand of a block: `pointer`, `value`, `=4` for a number (C text may depend on it), or a count of scalars."""


def print_module(module: IRModule) -> str:
    """The text of all PrimFuncs of a module."""
    record: dict[str, Any] = {}
    intrins = _Intrins(record)
    texts: list[str] = []
    functions = {name: f for name, f in module.functions.items() if isinstance(f, PrimFunc)}
    for func in functions.values():
        intrins.collect(func)
    for name, intrin in intrins.by_name.items():
        texts.append(print_func(intrin.desc, name, keyword="intrin", intrins=intrins.names))
    for name, func in functions.items():
        texts.append(print_func(func, name, intrins=intrins.names))
        entry = {"name": encode(func.name), "attrs": encode(func.attrs)}
        record[f"@{name}"] = entry | {"constants": encode(dict(module.constants.get(name, {})))}
    return "\n".join(texts) + to_text(record)


class _Intrins:
    """The blocks of a module, each under a unique one-word name, with an entry in `record`."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.names: dict[TensorIntrin, str] = {}
        self.by_name: dict[str, TensorIntrin] = {}
        self._record = record

    def collect(self, func: PrimFunc) -> None:
        """Collect the blocks of a function and of their descriptions, inner ones first."""
        for stmt in walk(func.body):
            if isinstance(stmt, Block):
                if stmt.intrin not in self.names:
                    self.collect(stmt.intrin.desc)
                    self._enter(stmt.intrin)
                self._add_forms(stmt)

    def _enter(self, intrin: TensorIntrin) -> None:
        word = re.sub(r"[^\w.]", "_", intrin.name)
        for name in itertools.chain([word], (f"{word}.{n}" for n in itertools.count(1))):
            previous = self.by_name.get(name)
            if previous is None:
                break
            a, b = previous.desc, intrin.desc
            if structural_equal(a, b) and print_func(a, "desc") == print_func(b, "desc"):
                break  # the same meaning, down to the names of variables: C text is generated from these
        self.names[intrin] = name
        if previous is not None:
            return
        self.by_name[name] = intrin
        self._record[f"intrin {name}"] = {
            "name": intrin.name, "requires": intrin.requires, "header": intrin.header, "ordered": intrin.ordered,
            "desc": encode(intrin.desc.name), "attrs": encode(intrin.desc.attrs), "forms": {},
        }  # fmt: skip

    def _add_forms(self, block: Block) -> None:
        """Add the C text for operands of these kinds, and for numbers other than these."""
        forms = self._record[f"intrin {self.names[block.intrin]}"]["forms"]
        form = tuple(_form_kind(o) for o in block.operands)
        for one in (form, tuple("value" if kind.startswith("=") else kind for kind in form)):
            if " ".join(one) not in forms:
                emitted = block.intrin.emit(_placeholders(block.intrin, one))
                forms[" ".join(one)] = [emitted.text, emitted.registers, emitted.fpu]


def _form_kind(operand: object) -> str:
    if isinstance(operand, Imm) and operand.dtype == "int32" and operand.value >= 0:
        return f"={operand.value}"
    if not isinstance(operand, Region):
        return "value"
    buffer = operand.buffer
    return str(buffer.size) if buffer.scope == "local" and not buffer.indexed else "pointer"


def _placeholders(intrin: TensorIntrin, form: Form) -> dict[str, COperand]:
    """Operands that stand for the operands of any block of this form."""
    operands = {}
    for param, kind in zip(intrin.desc.params, form, strict=True):
        if kind.startswith("="):
            operands[param.name] = COperand(value=kind[1:])
        elif kind == "value":
            operands[param.name] = COperand(value=f"@{{{param.name}.value}}")
        elif kind == "pointer":
            operands[param.name] = COperand(pointer=f"@{{{param.name}.pointer}}")
        else:
            operands[param.name] = COperand(scalars=tuple(f"@{{{param.name}.{k}}}" for k in range(int(kind))))
    return operands
