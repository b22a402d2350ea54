"""A memory that a part of the workspace, or of the constants, can be given to."""

from __future__ import annotations

import math

from aot.support.dataclass import dataclass
from aot.support.names import name_fault

BASE_ALIGN = 16
"""Every pool's array is aligned to this many bytes."""


@dataclass(frozen=True, slots=True)
class Pool:
    """`size` in bytes, `address` of its first byte (None: where the linker puts it).

    `speed` is relative: an access to a pool of speed 2 takes half the time of one to a pool of speed 1.
    """

    name: str
    size: int
    address: int | None = None
    speed: float = 1.0

    @property
    def fault(self) -> str:
        """What is wrong with it: it has no name for C, can hold nothing, or lies askew; "" where nothing is."""
        wrong = name_fault(self.name, symbol=True)
        if wrong:
            return f"pool {self.name!r}: the name {wrong}"
        if self.size <= 0 or not 0 < self.speed < math.inf:
            return f"pool {self.name}: size and speed must be positive"
        if self.size + (self.address or 0) > 1 << 32:
            return f"pool {self.name}: address and size must lie within 32 bits"
        if self.address is not None and self.address % BASE_ALIGN:
            return f"pool {self.name}: the address must be a multiple of {BASE_ALIGN}"
        return ""
