"""Numbers as linker scripts and devicetrees write them: 0x20000000, 128K, 4 * (1 << 20), ORIGIN(RAM) + 4."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping

_MOST = 2000
"""Characters of an expression."""
_UNITS = {"K": 1 << 10, "M": 1 << 20}
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip


def value_of(text: str, known: Mapping[str, int]) -> int | None:
    """The value of an expression over `known` names, or over `ORIGIN(NAME)` as the name `ORIGIN_NAME`; None if it has none."""
    if len(text) > _MOST:
        return None
    plain = re.sub(r"\b(ORIGIN|LENGTH|DT_SIZE_K|DT_SIZE_M)\s*\(\s*([\w.$]+)\s*\)", _call, text)
    plain = re.sub(r"\b(0[xX][0-9a-fA-F]+|[0-9]+)([kKmM])?(?:[uU]?[lL]{0,2}|[uU])\b", _number, plain).replace("/", "//")
    try:
        return _evaluate(ast.parse(plain.strip(), mode="eval").body, known)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, MemoryError):
        return None


def _call(match: re.Match[str]) -> str:
    name, argument = match[1], match[2]
    if name.startswith("DT_SIZE_"):
        return f"({argument}{name[-1]})"
    return f"{name}_{argument}"


def _number(match: re.Match[str]) -> str:
    return str(int(match[1], 16 if match[1][:2] in ("0x", "0X") else 10) * _UNITS.get((match[2] or "").upper(), 1))


def _evaluate(node: ast.expr, known: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name) if name in known:
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            a, b = _evaluate(left, known), _evaluate(right, known)
            if isinstance(op, ast.LShift) and not 0 <= b <= 32:
                raise ValueError
            return _OPERATIONS[type(op)](a, b)
    raise ValueError
