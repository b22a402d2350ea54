"""Oracles: whose bytes are right. "litert" and "tflm" are built in; a plug-in may add one.

"litert-reference" reproduces LiteRT's reference kernels exactly, including the bugs that only they have
(`report/measure/divergence.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aot.errors import Problem, UsageError, call_place

if TYPE_CHECKING:
    from aot.ir.op import Array

Engine = Callable[[bytes], Callable[["Sequence[Array]"], "Sequence[Array]"]]
"""model -> function from the model's inputs to its outputs"""

BUILTIN = ("litert", "tflm", "litert-reference")

_ENGINES: dict[str, Engine] = {}


def register_oracle(name: str, engine: Engine) -> None:
    """Register an oracle for `--oracle NAME`.  Models get litert's rounding, and their results are compared with the oracle's."""
    if not isinstance(name, str) or not name.isidentifier() or not callable(engine):
        raise UsageError(
            Problem("E5112", f"register_oracle takes a word and a function of a model, not {name!r}, {engine!r}", call_place())
        )
    if name in BUILTIN or name in _ENGINES:
        raise UsageError(Problem("E5102", f"the oracle {name} is registered twice", call_place()))
    _ENGINES[name] = engine


def oracles() -> tuple[str, ...]:
    """The names of all oracles; plug-ins' oracles come last."""
    return (*BUILTIN, *_ENGINES)


def engine_of(name: str) -> Engine | None:
    """A plug-in's engine; None for a built-in oracle."""
    return _ENGINES.get(name)
