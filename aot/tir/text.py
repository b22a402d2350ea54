"""A module of loop nests as text that is parsed back: functions, the meaning of the blocks that they use, and metadata.

The metadata have attributes and constants of the functions, and of each block its C text, with `@{x.pointer}` where an operand
stands.  So the text needs nothing of the process that printed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aot.ir.metadata import encode, to_text
from aot.ir.module import IRModule
from aot.tir.expr import Imm
from aot.tir.function import PrimFunc
from aot.tir.functor import walk
from aot.tir.intrin import COperand, TensorIntrin
from aot.tir.printer import print_func
from aot.tir.stmt import Block, Region

Form = tuple[str, ...]
"""What each operand of a block is: `pointer`, `value`, `=4` for a number (the C text may depend on it), or how many scalars."""


def print_module(module: IRModule) -> str:
    """The text of all PrimFuncs of a module."""
    record: dict[str, Any] = {}
    intrins: dict[str, TensorIntrin] = {}
    texts: list[str] = []
    functions = {name: f for name, f in module.functions.items() if isinstance(f, PrimFunc)}
    for func in functions.values():
        _collect(func, intrins, record)
    for name, intrin in intrins.items():
        texts.append(print_func(intrin.desc, name, keyword="intrin"))
    for name, func in functions.items():
        texts.append(print_func(func, name))
        entry = {"name": encode(func.name), "attrs": encode(func.attrs)}
        record[f"@{name}"] = entry | {"constants": encode(dict(module.constants.get(name, {})))}
    return "\n".join(texts) + to_text(record)


def _collect(func: PrimFunc, intrins: dict[str, TensorIntrin], record: dict[str, Any]) -> None:
    """The blocks of a function and of their meanings, those inside first."""
    for stmt in walk(func.body):
        if not isinstance(stmt, Block):
            continue
        intrin = stmt.intrin
        name = _key(intrin, intrins)
        entry = record.setdefault(f"intrin {name}", {"name": intrin.name, "forms": {}})
        if name not in intrins:
            _collect(intrin.desc, intrins, record)
            intrins[name] = intrin
            entry |= {"requires": intrin.requires, "header": intrin.header, "ordered": intrin.ordered}
            entry |= {"desc": encode(intrin.desc.name), "attrs": encode(intrin.desc.attrs)}
        form = tuple(_kind(o) for o in stmt.operands)
        for one in (form, tuple("value" if kind.startswith("=") else kind for kind in form)):
            if " ".join(one) not in entry["forms"]:
                emitted = intrin.emit(_placeholders(intrin, one))
                entry["forms"][" ".join(one)] = [emitted.text, emitted.registers, emitted.fpu]


def _key(intrin: TensorIntrin, intrins: Mapping[str, TensorIntrin]) -> str:
    """The intrinsic's name, which tells it apart from all others of the module."""
    known = intrins.get(intrin.name)
    assert known is None or known is intrin or print_func(known.desc) == print_func(intrin.desc), intrin.name
    return intrin.name


def _kind(operand: object) -> str:
    if isinstance(operand, Imm) and operand.dtype == "int32" and operand.value >= 0:
        return f"={operand.value}"
    if not isinstance(operand, Region):
        return "value"
    buffer = operand.buffer
    return str(buffer.size) if buffer.scope == "local" and not buffer.indexed else "pointer"


def _placeholders(intrin: TensorIntrin, form: Form) -> dict[str, COperand]:
    """Operands that stand for those of any block of the form."""
    found = {}
    for param, kind in zip(intrin.desc.params, form, strict=True):
        if kind.startswith("="):
            found[param.name] = COperand(value=kind[1:])
        elif kind == "value":
            found[param.name] = COperand(value=f"@{{{param.name}.value}}")
        elif kind == "pointer":
            found[param.name] = COperand(pointer=f"@{{{param.name}.pointer}}")
        else:
            found[param.name] = COperand(scalars=tuple(f"@{{{param.name}.{k}}}" for k in range(int(kind))))
    return found
