"""A single function as a model of one layer, so that everything that boards can do with a model they can do with it."""

from __future__ import annotations

from aot.executor.artifact import Artifact
from aot.executor.emit import compile_lowered
from aot.executor.lowered import CallLowered, LoweredModule, TensorRef
from aot.ir.type import TensorType
from aot.target.target import Target
from aot.tir.buffer import Buffer
from aot.tir.function import PrimFunc


def function_artifact(func: PrimFunc, name: str, target: Target) -> Artifact:
    """The Artifact whose inputs and outputs are those of `func`, and whose one layer calls it."""
    inputs, outputs = (tuple(map(_tensor, buffers)) for buffers in (func.inputs, func.outputs))
    calls = (CallLowered(func.name, inputs, outputs),)
    lowered = LoweredModule({func.name: func}, name, inputs=inputs, outputs=outputs, calls=calls)
    return compile_lowered(lowered, target=target).artifact


def _tensor(buffer: Buffer) -> TensorRef:
    return TensorRef(buffer.name, TensorType(buffer.shape, buffer.dtype))
