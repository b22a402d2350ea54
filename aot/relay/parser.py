"""Parses the text of graphs: what the printer prints, followed by the metadata section.

Types are inferred, so they may be missing from a line's comment; comments are ignored.  The text has priority: operators,
operands, short attributes; the metadata supply what it leaves out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NoReturn

from aot.errors import Problem, UsageError
from aot.ir.module import HEAD, IRModule, classes_of, decode, entry_of, from_text, is_too_deep, parsed, register_class, to_text
from aot.ir.op import TypeRuleError, op_info
from aot.ir.span import NO_SPAN
from aot.ir.type import TensorType, TupleType
from aot.relay.construct import make_attrs
from aot.relay.expr import Call, Constant, Expr, Function, If, Var, While, call, get_item, make_tuple, tensor_type_of
from aot.relay.printer import ROLES, print_func
from aot.relay.state import StateTensor

register_class(StateTensor)

_HEAD = re.compile(r"def @([^\s(]+)\((.*)\) -> .* \{$")
_LINE = re.compile(r"(%\d+) = ([\w.]+)\((.*)\)$")
_TUPLE = re.compile(r"(%\d+) = (\(.*\))$")
_FUNCTION = re.compile(r"(%\d+) = fn ?(\S*)\((.*)\) -> .* \{$")
_CONTROL = re.compile(r"(%\d+) = (if|while)\((.*)\) \{$")
_ROLE = re.compile(r"(\w+) = fn \((.*)\) -> .* \{$")
_SAME = re.compile(r"(\w+) = @(\S+)$")
_END = re.compile(r"\}(?:\((.*)\))?$")
_TYPE = re.compile(r"(\w+)\[([\d, ]*)\]")
_CONST = re.compile(r"const\[(.+): (\w+\[[\d, ]*\]), (\w+)\]$")


def print_module(module: IRModule) -> str:
    """Print relay functions, followed by what their text leaves out."""
    record: dict[str, Any] = {}
    texts = [print_func(f, name, record) for name, f in module.functions.items() if isinstance(f, Function)]
    return "\n".join(texts) + to_text(record)


def parse_module(text: str, name: str) -> IRModule:
    """Parse a module (E5101, E5104, E5130, E5131); metadata may be missing if the text is complete without them."""
    body, head, metadata = text.partition(HEAD)
    parser = _Parser(body, from_text(metadata) if head else {})
    functions = parsed(lambda _: dict(parser.functions()), name)
    if not functions:
        raise UsageError(Problem("E5130", "the text has no function; one begins with def @main("))
    return IRModule(functions, name)


class _Parser:
    """Reads the lines of a text in order."""

    def __init__(self, text: str, record: Mapping[str, Any]) -> None:
        self._lines = [f"  {line}".split("  // ")[0].strip() for line in text.splitlines()]
        self._record = record
        self._at = 0
        self._inner: dict[str, Function] = {}

    def functions(self) -> Iterator[tuple[str, Function]]:
        while (line := self._next(end=True)) is not None:
            match = _HEAD.match(line)
            if match is None:
                self._fail("def @name(...) -> type {")
            try:
                yield match[1], self._function(match[1], match[2])[0]
            except UsageError as error:  # the error may name a line of the calling Python program
                at = f"line {self._at}"
                raise UsageError(*(p if p.where.startswith("line ") else replace(p, where=at) for p in error.problems)) from error

    def _next(self, *, end: bool = False) -> str | None:
        while self._at < len(self._lines):
            self._at += 1
            if is_too_deep(self._lines[self._at - 1]):
                self._fail("brackets that are nested less deeply")
            if self._lines[self._at - 1]:
                return self._lines[self._at - 1]
        if not end:
            self._fail("}")
        return None

    def _fail(self, expected: str) -> NoReturn:
        line = self._lines[min(self._at, len(self._lines)) - 1] if self._lines else ""
        raise UsageError(Problem("E5130", f"{line[:80]!r}: {expected} is expected", f"line {self._at}"))

    def _noted(self, place: str, key: str, default: Any = None, classes: Mapping[str, type] | None = None) -> Any:
        entry = entry_of(self._record, place)
        return (decode(entry[key], classes) if classes else decode(entry[key])) if key in entry else default

    def _function(self, path: str, params: str) -> tuple[Function, str]:
        """Parse a function after its head; return it and the arguments after its closing brace."""
        names: dict[str, Expr] = {}
        noted = self._noted(path, "params", ())
        variables = []
        for i, text in enumerate(_split(params)):
            name, _, type_text = text.partition(": ")
            original, quant, span = noted[i] if i < len(noted) else (name.removeprefix("%"), None, NO_SPAN)
            var = Var(original, replace(self._type(type_text), quant=quant), span)
            variables.append(var)
            names[name] = var
        result: Expr | None = None
        while (line := self._next()) is not None:
            end = _END.match(line)
            if end is not None:
                if result is None:
                    self._fail("the function's result")
                return Function(tuple(variables), result, self._noted(path, "attrs", {})), end[1] or ""
            result = self._statement(line, path, names)
        raise AssertionError("unreachable")

    def _statement(self, line: str, path: str, names: dict[str, Expr]) -> Expr:
        """Parse a line and define its value under its name."""
        if (match := _FUNCTION.match(line)) is not None:
            place = f"{path}/{match[1]}"
            func, arguments = self._function(place, match[3])
            args = tuple(self._atom(a, path, names) for a in _split(arguments))
            value: Expr = Call(func, args, None, func.body.type, self._noted(f"{place}/call", "span", NO_SPAN))
        elif (match := _CONTROL.match(line)) is not None:
            value = self._control(match, f"{path}/{match[1]}", path, names)
        elif (match := _LINE.match(line)) is not None:
            value = self._call(match, f"{path}/{match[1]}", path, names)
        elif (match := _TUPLE.match(line)) is not None:
            value = make_tuple(self._fields(match[2], path, names), span=self._noted(f"{path}/{match[1]}", "span", NO_SPAN))
        else:
            return self._atom(line, path, names)
        names[match[1]] = value
        return value

    def _control(self, match: re.Match[str], place: str, path: str, names: dict[str, Expr]) -> Expr:
        """Parse a branch or loop after its head, up to the brace after its functions."""
        args = tuple(self._atom(a, path, names) for a in _split(match[3]))
        first, second = (self._role(role, f"{place}/{role}") for role in ROLES[match[2]])
        if self._next() != "}":
            self._fail("}")
        span = self._noted(place, "span", NO_SPAN)
        if match[2] == "while":
            return While(args, first, second, second.body.type, span)
        if not args:
            self._fail("a condition")
        return If(args[0], args[1:], first, second, first.body.type, span)

    def _role(self, role: str, place: str) -> Function:
        """Parse `then = fn (...) -> type {` with its lines, or `then = @place`, which refers to a function read before."""
        line = self._next() or ""
        if (match := _ROLE.match(line)) is not None and match[1] == role:
            self._inner[place] = self._function(place, match[2])[0]
            return self._inner[place]
        match = _SAME.match(line)
        if match is None or match[1] != role or match[2] not in self._inner:
            self._fail(f"{role} = fn (...) -> type {{")
        return self._inner[match[2]]

    def _call(self, match: re.Match[str], place: str, path: str, names: dict[str, Expr]) -> Expr:
        info = op_info(match[2])
        parts = _split(match[3])
        named = [p for p in parts if re.match(r"[a-z]\w*=", p)]
        args = [self._atom(p, path, names) for p in parts if p not in named]
        values: dict[str, Any] = {}
        long = self._noted(place, "attrs", {}, classes_of(info.attrs_type))
        for part in named:
            key, _, text = part.partition("=")
            said = long.get(key)
            values[key] = said[1] if said is not None and said[0] == text else self._value(text)
        names_of_attrs = [f.name for f in fields(info.attrs_type)] if info.attrs_type is not None else []
        values |= {key: value for key, (_, value) in long.items() if key in names_of_attrs and key not in values}
        try:
            attrs = make_attrs(info, [], values)
            result = call(match[2], args, attrs, span=self._noted(place, "span", NO_SPAN))
        except TypeRuleError as error:
            raise UsageError(Problem("E5130", f"{match[2]}: {error.message}", f"line {self._at}")) from None
        except (AssertionError, TypeError, ValueError) as error:  # attributes that validate themselves
            raise UsageError(Problem("E5130", f"{match[2]}: attributes of these values: {error}", f"line {self._at}")) from None
        noted = self._noted(place, "type")
        alike = (
            isinstance(noted, TensorType)
            and isinstance(result.type, TensorType)
            and noted == replace(result.type, quant=noted.quant)
        )
        return (
            replace(result, type=noted) if alike or (isinstance(noted, TupleType) and str(noted) == str(result.type)) else result
        )

    def _value(self, text: str) -> Any:
        """Parse a short attribute: a number, a word or a tuple of them."""
        if text in ("None", "True", "False"):
            return {"None": None, "True": True, "False": False}[text]
        if text.startswith("(") and text.endswith(")"):
            return tuple(self._value(p) for p in _split(text[1:-1]))
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
        if re.fullmatch(r"\w+", text) is None:
            self._fail(f"a number or a word, or metadata for {text[:40]}")
        return text

    def _atom(self, text: str, path: str, names: dict[str, Expr]) -> Expr:
        if text in names:
            return names[text]
        if (match := _CONST.match(text)) is not None:
            names[text] = self._constant(match, path)  # a single node, however often it is used
            return names[text]
        if text.startswith("(") and text.endswith(")"):
            return make_tuple(self._fields(text, path, names))
        value, dot, index = text.rpartition(".")
        if dot and value in names and index.isdigit():
            tuple_type = names[value].type
            if isinstance(tuple_type, TupleType) and int(index) < len(tuple_type.fields):
                return get_item(names[value], int(index), span=names[value].span)
        self._fail(f"a known name, not {text[:40]},")

    def _fields(self, text: str, path: str, names: dict[str, Expr]) -> Sequence[Expr]:
        items = [self._atom(p, path, names) for p in _split(text[1:-1])]
        if not items or not all(isinstance(f.type, TensorType) for f in items):
            self._fail("a tuple of tensors")
        return items

    def _constant(self, match: re.Match[str], path: str) -> Constant:
        place = f"{path}/const:{match[1]}"
        data = self._noted(place, "data")
        if data is None:
            message = f"the text has no metadata with the data of the constant {match[1]}; print it with show_meta_data=True"
            raise UsageError(Problem("E5131", message, f"line {self._at}"))
        type_ = replace(self._type(match[2]), quant=self._noted(place, "quant"))
        if tuple(data.shape) != type_.shape:
            self._fail(f"the shape {list(data.shape)} of the constant's data")
        return Constant(data, type_, self._noted(place, "span", NO_SPAN))

    def _type(self, text: str) -> TensorType:
        match = _TYPE.fullmatch(text)
        if match is None:
            self._fail("a type such as int8[1, 4]")
        if re.fullmatch(r"(\d+(, \d+)*)?", match[2]) is None:
            self._fail("a shape such as [1, 4]")
        shape = tuple(int(n) for n in match[2].split(",") if n)
        if not all(shape):
            return TensorType(shape, match[1])
        return tensor_type_of(shape, match[1], least=0)


def _split(text: str) -> list[str]:
    """Split at commas that are not inside brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    last = text[start:].strip()
    return [*parts, last] if last else parts
