"""Types of values in the graph IR."""

from __future__ import annotations

from aot.support.dataclass import dataclass
from aot.support.dtype import Typed


@dataclass(frozen=True, slots=True)
class QuantParams:
    """real = scale * (q - zero_point); one pair for the whole tensor, or one per index along `axis`.

    Scales are the float32 values in the file, held exactly as Python floats.
    """

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None

    def __post_init__(self) -> None:
        if not self.scale or len(self.scale) != len(self.zero_point):
            raise ValueError("QuantParams needs as many zero points as scales, at least one")

    @property
    def is_per_channel(self) -> bool:
        return self.axis is not None


def per_tensor(scale: float, zero_point: int) -> QuantParams:
    return QuantParams((scale,), (zero_point,))


@dataclass(frozen=True, slots=True)
class TensorType(Typed):
    """Shape (static), element type and, for quantised values, the quantisation parameters."""

    shape: tuple[int, ...]
    dtype: str
    quant: QuantParams | None = None

    def with_dtype(self, dtype: str, quant: QuantParams | None = None) -> TensorType:
        return TensorType(self.shape, dtype, quant)

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class TupleType:
    """Several values at once, such as the results of a split."""

    fields: tuple[TensorType, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


Type = TensorType | TupleType
