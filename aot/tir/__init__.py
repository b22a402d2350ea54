"""The loop-nest IR: expressions, statements, builder, text, verifier, interpreter; passes lie in `transform`."""

from __future__ import annotations

from typing import Any

from aot.ir.dialect import Dialect, register_dialect
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.tir.function import PrimFunc
from aot.tir.printer import print_func
from aot.tir.verify import verify


def _run(module: Any, name: str, seed: int) -> list[Array] | None:
    from aot.tir.evaluate import run_drawn  # few compilations run functions, print or read text

    return run_drawn(module, name, seed)


def _to_full_text(module: IRModule) -> str:
    from aot.tir.text import print_module

    return print_module(module)


def _from_text(text: str, name: str) -> IRModule:
    from aot.tir.parser import parse_module

    return parse_module(text, name)


def _reads(text: str) -> bool:
    from aot.tir.parser import is_tir

    return is_tir(text)


register_dialect(
    Dialect(
        "tir",
        PrimFunc,
        to_text=lambda func, name: print_func(func, name),
        verify=lambda func, _name: verify(func),
        run=_run,
        to_full_text=_to_full_text,
        from_text=_from_text,
        reads=_reads,
    )
)
