"""The loop-nest IR: expressions, statements, builder, text, verifier, interpreter; passes lie in `transform`."""

from __future__ import annotations

from aot.ir.dialect import Dialect, register_dialect
from aot.tir.evaluate import run_drawn
from aot.tir.function import PrimFunc
from aot.tir.printer import print_func
from aot.tir.verify import verify

register_dialect(
    Dialect(
        "tir",
        PrimFunc,
        to_text=lambda func, name: print_func(func, name),
        verify=lambda func, _name: verify(func),
        run=run_drawn,
    )
)
