"""What lies beyond the end of a file: one cause, most often a download that broke off, and so one problem."""

from __future__ import annotations

from aot.frontend.flatbuffer import FlatbufferError
from aot.frontend.problems import Problems

_ALL = "buffers"
"""The part of a file that lists all buffers."""


class CutShort:
    """Collects what lies beyond the end of a file while it is read; `report` notes all of it."""

    __slots__ = ("_found", "_parts", "_problems")

    def __init__(self, problems: Problems) -> None:
        self._found: list[tuple[FlatbufferError, str, str]] = []
        self._parts: set[str] = set()
        self._problems = problems

    def add(self, error: FlatbufferError, where: str, field: str = "") -> None:
        """What could not be read, of which part and field of the file; noted at once unless it lies beyond the end."""
        message = f"{field}: {error.message}" if field else error.message
        if error.reaches is None:
            self._problems.add(error.code, message, where)
        else:
            self._found.append((error, message, where))
            self._parts.add(where or field)

    def report(self, size: int, buffers: int) -> bool:
        """Note one part by itself, several (or all buffers) as one E1003; whether there are several.

        `size` is the file's; `buffers` is the number that the model lists.
        """
        if len(self._parts) < 2 and _ALL not in self._parts:
            for error, message, where in self._found:
                self._problems.add(error.code, message, where)
            return False
        lost = sum(part.startswith("buffer ") for part in self._parts)
        others = len(self._parts) - lost - (_ALL in self._parts)
        said = ["all buffers"] if _ALL in self._parts else [f"{lost} of {buffers} buffers"] if lost else []
        if others:
            said.append(f"{others} {'other ' if said else ''}{'part' if others == 1 else 'parts'}")
        furthest = max(error.reaches or 0 for error, _, _ in self._found)
        message = f"the file ends at byte {size}; {' and '.join(said)} lie beyond it, up to byte {furthest} at least"
        self._problems.add("E1003", f"{message}: is the download complete?")
        return True
