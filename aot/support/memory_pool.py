"""A memory for parts of the workspace or of the constants."""

from __future__ import annotations

import math

from aot.support.dataclass import dataclass
from aot.support.names import name_fault

BASE_ALIGN = 16
"""Every pool's array is aligned to this many bytes."""


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool; `size` in bytes, `address` of its first byte (None: the linker places it).

    `speed` is relative: an access to a pool with speed 2 takes half as long as to a pool with speed 1.
    """

    name: str
    size: int
    address: int | None = None
    speed: float = 1.0

    @property
    def fault(self) -> str:
        """The problem with the pool's name, size, speed or address; "" if it is valid."""
        name_problem = name_fault(self.name, symbol=True)
        if name_problem:
            return f"pool {self.name!r}: the name {name_problem}"
        if self.size <= 0 or not 0 < self.speed < math.inf:
            return f"pool {self.name}: size and speed must be positive"
        if self.size + (self.address or 0) > 1 << 32:
            return f"pool {self.name}: address and size must fit in 32 bits"
        if self.address is not None and self.address % BASE_ALIGN:
            return f"pool {self.name}: the address must be a multiple of {BASE_ALIGN}"
        return ""
