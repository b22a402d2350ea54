"""What two fused functions must have in common so that a kernel of one is a kernel of the other."""

from __future__ import annotations

import hashlib

import numpy as np

from aot.relay.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem, Var, operands, post_order


def group_key(func: Function) -> bytes | None:
    """A hash of operators, attributes, types and constants, whatever the names and places in the file.

    None for a function that holds more than calls of operators, or attributes that are no plain values.
    """
    digest = hashlib.sha256()
    nodes = [*func.params, *(e for e in post_order(func.body) if not isinstance(e, Var))]
    place = {id(e): i for i, e in enumerate(nodes)}
    for expr in nodes:
        text = _text(expr)
        if text is None:
            return None
        digest.update(f"{text} {[place[id(o)] for o in operands(expr)]}\n".encode())
        if isinstance(expr, Constant):
            digest.update(np.ascontiguousarray(expr.data).tobytes())
    if not all(map(_is_plain, func.attrs.values())):
        return None
    digest.update(f"{place[id(func.body)]} {sorted((k, repr(v)) for k, v in func.attrs.items())}".encode())
    return digest.digest()


def _text(expr: Expr) -> str | None:
    match expr:
        case Var():
            return f"var {expr.type!r}"
        case Constant():
            return f"constant {expr.type!r} {expr.stored!r} {expr.data.dtype} {expr.data.shape}"
        case Call():
            if isinstance(expr.op, Function) or not _is_plain(expr.attrs):
                return None
            return f"call {expr.op.name} {expr.attrs!r} {expr.type!r}"
        case Tuple():
            return "tuple"
        case TupleGetItem():
            return f"field {expr.index}"
    return None


def _is_plain(attrs: object) -> bool:
    """Whether the attributes have one text for each value; arrays, which cannot be hashed, do not."""
    try:
        hash(attrs)
    except TypeError:
        return False
    return attrs is None or type(attrs).__hash__ is not object.__hash__
