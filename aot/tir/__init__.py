"""The loop-nest IR: expressions, statements, builder, text, verifier, interpreter; passes lie in `transform`."""

from __future__ import annotations

from aot.ir.dialect import Dialect, register_dialect
from aot.tir.evaluate import run_drawn
from aot.tir.function import PrimFunc
from aot.tir.parser import is_tir, parse_module
from aot.tir.printer import print_func
from aot.tir.text import print_module
from aot.tir.verify import verify

register_dialect(
    Dialect(
        "tir",
        PrimFunc,
        to_text=lambda func, name: print_func(func, name),
        verify=lambda func, _name: verify(func),
        run=run_drawn,
        to_full_text=print_module,
        from_text=parse_module,
        reads=is_tir,
    )
)
