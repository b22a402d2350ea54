"""A place in memory, as the executor names it."""

from __future__ import annotations

from typing import Literal

from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StorageInfo:
    """`workspace`: `key` names a planned storage; `input`, `output`: the caller's tensor `index`; `const`: constant `index`;
    `state`: the array of persistent tensors.

    `offset` in bytes from its start; `hop` more for each run since the windows of the state began (aot/memory/rings.py).
    """

    where: Literal["workspace", "input", "output", "const", "state"]
    key: str = ""
    index: int = 0
    offset: int = 0
    hop: int = 0
