"""Attribute maps with priority levels, after TVM's AttrRegistry and `plevel`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class AttrMap(Generic[T]):
    """Maps a name (an operator's) to a value; a later entry wins only with a higher plevel.

    Two entries of one name and one plevel are a mistake in this code base and raise ValueError at import.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self._entries: dict[str, tuple[int, T]] = {}

    def set(self, name: str, value: T, *, plevel: int = 10) -> None:
        old = self._entries.get(name)
        if old is not None and old[0] == plevel:
            raise ValueError(f"{self.title} of {name} is registered twice at plevel {plevel}")
        if old is None or plevel > old[0]:
            self._entries[name] = (plevel, value)

    def get(self, name: str) -> T:
        try:
            return self._entries[name][1]
        except KeyError:
            raise KeyError(f"{name} has no {self.title}") from None

    def find(self, name: str) -> T | None:
        entry = self._entries.get(name)
        return None if entry is None else entry[1]

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))
