"""Files that a user names: each is read once, up to a limit."""

from __future__ import annotations

from pathlib import Path

from aot.errors import Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.text import printable

MAX_BYTES = 1 << 30
"""The longest file that is accepted (1 GiB): a pipe or a device may never end."""

_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class NamedBytes:
    """A file as it was when it was read; later changes at `path` have no effect."""

    path: Path
    data: bytes


def read_limited(path: Path, *, limit: int | None = None) -> bytes:
    """The content of a file, pipe or device (E5001 if it cannot be read, E5002 beyond `limit` bytes, by default MAX_BYTES)."""
    most = MAX_BYTES if limit is None else limit
    parts, left = [], most + 1
    try:
        with path.open("rb") as file:
            while left > 0 and (part := file.read(min(left, _CHUNK))):
                parts.append(part)
                left -= len(part)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(Problem("E5001", f"cannot read '{printable(str(path))}': {reason}")) from None
    if left <= 0:
        raise UsageError(Problem("E5002", f"'{printable(str(path))}' has more than {most:,} bytes"))
    return b"".join(parts)


def read_named(path: Path, *, limit: int | None = None) -> NamedBytes:
    """`read_limited`, with the path."""
    return NamedBytes(path, read_limited(path, limit=limit))
