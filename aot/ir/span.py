"""The origin of a node in the .tflite file."""

from __future__ import annotations

from aot.support.dataclass import dataclass
from aot.support.text import printable


@dataclass(frozen=True, slots=True)
class Span:
    """Operator `op_index` of kind `opcode`; `name` and `tensor` are the name and index of the tensor that it writes."""

    op_index: int = -1
    opcode: str = ""
    name: str = ""
    tensor: int = -1

    def __str__(self) -> str:
        if self.op_index >= 0:
            return f'op {self.op_index} {self.opcode} "{printable(self.name)}"'
        if self.tensor >= 0:
            return f'tensor {self.tensor} "{printable(self.name)}"'
        return ""


NO_SPAN = Span()
