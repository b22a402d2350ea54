"""A call of a kernel with what was decided for it."""

from __future__ import annotations

from dataclasses import dataclass

from aot.executor.plan.layout import Place
from aot.executor.schedule import LayerCall


@dataclass(frozen=True, slots=True)
class Layer:
    """A call with what was decided for it: the function's C name, its constants by array index, and where its operands are."""

    call: LayerCall
    function: str
    constants: tuple[int, ...]
    inputs: tuple[Place, ...]
    outputs: tuple[Place, ...]
    scratch: tuple[str, ...]
