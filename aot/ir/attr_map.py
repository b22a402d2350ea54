"""Attribute maps with priority levels, after TVM's AttrRegistry and `plevel`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, ClassVar, Generic, TypeVar

from aot.errors import Problem, UsageError
from aot.support.caller import call_place
from aot.support.entry_points import reach

T = TypeVar("T")


class RegistryError(UsageError):
    """Something is asked of a registry that it does not have (E5103), or entered twice (E5102)."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(Problem(code, message, call_place()))


@cache
def _load(name: str) -> None:
    """Import the file of an operator, once."""
    reach("operator", name)


def load_operators() -> None:
    """Import the files of all operators."""
    reach("operators")


class AttrMap(Generic[T]):
    """Maps a name (an operator's) to a value; a later entry wins only with a higher plevel.

    Two entries of one name and one plevel raise RegistryError E5102.  An operator's file is imported when its name is first
    asked for or entered; going through the names imports all.
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
        _load(name)
        old = self._entries.get(name)
        if old is not None and old[0] == plevel:
            raise RegistryError("E5102", f"{self.title} of {name} is registered twice at plevel {plevel}")
        if old is None or plevel > old[0]:
            self._entries[name] = (plevel, value)

    def get(self, name: str) -> T:
        entry = self._entry(name)
        if entry is None:
            raise RegistryError("E5103", f"{name} has no {self.title}")
        return entry[1]

    def find(self, name: str) -> T | None:
        entry = self._entry(name)
        return None if entry is None else entry[1]

    def reset(self, name: str) -> None:
        """Forget the entry of a name, if there is one."""
        _load(name)
        self._entries.pop(name, None)

    def _entry(self, name: str) -> tuple[int, T] | None:
        if name not in self._entries:
            _load(name)
        return self._entries.get(name)

    def __contains__(self, name: str) -> bool:
        return self._entry(name) is not None

    def __iter__(self) -> Iterator[str]:
        load_operators()
        return iter(sorted(self._entries))
