"""A module of loop nests as text that is parsed back: functions, the meaning of the blocks that they use, and metadata.

The metadata have attributes and constants of the functions, and of each block its C text, with `@{x.pointer}` where an operand
stands.  So the text does not depend on the process that printed it.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

from aot.ir.metadata import encode, to_text
from aot.ir.module import IRModule
from aot.ir.structural import structural_equal
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


def _is_same(a: PrimFunc, b: PrimFunc) -> bool:
    """Whether two meanings are one, by the names of their variables too: C text is made with these."""
    return structural_equal(a, b) and print_func(a, "desc") == print_func(b, "desc")


class _Intrins:
    """The blocks of a module, each under a name of its own that is one word, and with an entry in `record`."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.names: dict[TensorIntrin, str] = {}
        self.by_name: dict[str, TensorIntrin] = {}
        self._record = record

    def collect(self, func: PrimFunc) -> None:
        """The blocks of a function and of their meanings, those inside first."""
        for stmt in walk(func.body):
            if isinstance(stmt, Block):
                if stmt.intrin not in self.names:
                    self.collect(stmt.intrin.desc)
                    self._enter(stmt.intrin)
                self._add_forms(stmt)

    def _enter(self, intrin: TensorIntrin) -> None:
        word = re.sub(r"[^\w.]", "_", intrin.name)
        for name in itertools.chain([word], (f"{word}.{n}" for n in itertools.count(1))):
            known = self.by_name.get(name)
            if known is None or _is_same(known.desc, intrin.desc):
                break
        self.names[intrin] = name
        if known is not None:
            return
        self.by_name[name] = intrin
        self._record[f"intrin {name}"] = {
            "name": intrin.name, "requires": intrin.requires, "header": intrin.header, "ordered": intrin.ordered,
            "desc": encode(intrin.desc.name), "attrs": encode(intrin.desc.attrs), "forms": {},
        }  # fmt: skip

    def _add_forms(self, block: Block) -> None:
        """The C text for operands of these kinds, and for numbers other than these."""
        forms = self._record[f"intrin {self.names[block.intrin]}"]["forms"]
        form = tuple(_kind(o) for o in block.operands)
        for one in (form, tuple("value" if kind.startswith("=") else kind for kind in form)):
            if " ".join(one) not in forms:
                emitted = block.intrin.emit(_placeholders(block.intrin, one))
                forms[" ".join(one)] = [emitted.text, emitted.registers, emitted.fpu]


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
