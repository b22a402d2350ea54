"""A call of a kernel with what was decided for it."""

from __future__ import annotations

from aot.executor.lowered import CallLowered
from aot.executor.plan.storage_info import StorageInfo
from aot.support.dataclass import dataclass
from aot.tir.function import PrimFunc


@dataclass(frozen=True, slots=True)
class Layer:
    """A call with what was decided for it: the function's C name, its constants by array index, and where its operands are.

    `func` is the layer's own function, which says what the layer is, whichever function is called for it.
    """

    call: CallLowered
    func: PrimFunc
    function: str
    constants: tuple[int, ...]
    inputs: tuple[StorageInfo, ...]
    outputs: tuple[StorageInfo, ...]
    scratch: tuple[str, ...]
