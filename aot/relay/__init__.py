"""The graph IR: expressions, text, verifier, interpreter; passes lie in `transform`."""

from __future__ import annotations

from aot.ir.dialect import Dialect, register_dialect
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate
from aot.relay.printer import print_func
from aot.relay.verify import verify

register_dialect(
    Dialect(
        "relay",
        Function,
        to_text=print_func,
        verify=verify,
        input_types=lambda func: [p.type for p in func.params],
        evaluate=evaluate,
    )
)
