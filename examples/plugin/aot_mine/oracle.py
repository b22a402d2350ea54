"""The oracle `mine`: what our own networks should give, here the graph as the file has it, in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aot.frontend.tflite import from_tflite
from aot.ir.op import Array
from aot.relay.interpreter import evaluate


def engine(model: bytes) -> Callable[[Sequence[Array]], Sequence[Array]]:
    """A function of the model's inputs that returns its outputs."""
    main = from_tflite(model)["main"]
    return lambda inputs: evaluate(main, inputs)  # type: ignore[arg-type]
