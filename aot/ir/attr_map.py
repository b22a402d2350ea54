"""Attribute maps with priority levels, after TVM's AttrRegistry and `plevel`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from aot.errors import Problem, UsageError
from aot.support.caller import call_place

T = TypeVar("T")


class RegistryError(UsageError):
    """Something is asked of a registry that it does not have (E5103), or entered twice (E5102)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(Problem(code, message, call_place()))


class AttrMap(Generic[T]):
    """Maps a name (an operator's) to a value; a later entry wins only with a higher plevel.

    Two entries of one name and one plevel raise RegistryError E5102.
    """

    _all: ClassVar[dict[str, AttrMap[Any]]] = {}

    def __init__(self, title: str) -> None:
        self.title = title
        self._entries: dict[str, tuple[int, T]] = {}
        self._all[title] = self

    @classmethod
    def all(cls) -> tuple[AttrMap[Any], ...]:
        """Every attribute map, by title."""
        return tuple(cls._all[t] for t in sorted(cls._all))

    def set(self, name: str, value: T, *, plevel: int = 10) -> None:
        old = self._entries.get(name)
        if old is not None and old[0] == plevel:
            raise RegistryError("E5102", f"{self.title} of {name} is registered twice at plevel {plevel}")
        if old is None or plevel > old[0]:
            self._entries[name] = (plevel, value)

    def get(self, name: str) -> T:
        try:
            return self._entries[name][1]
        except KeyError:
            raise RegistryError("E5103", f"{name} has no {self.title}") from None

    def find(self, name: str) -> T | None:
        entry = self._entries.get(name)
        return None if entry is None else entry[1]

    def reset(self, name: str) -> None:
        """Forget the entry of a name, if there is one."""
        self._entries.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))
