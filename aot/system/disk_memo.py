"""Memoisation on disk: results of slow compilation steps, keyed by a hash of everything that they depend on.

There is one file of lines `KEY CHECK JSON` per version of the compiler.  A process reads it completely on first use, and appends
new lines in one write, so that processes can share it; lines without this user's valid seal are ignored.  A file that has grown
too long is replaced by the lines that the last process used.  Facts are data only (numbers, strings, lists); callers validate
them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from aot.support.untrusted import parse_json
from aot.system.disk_cache import cache_folder, compiler_fingerprint, files_by_use, read_own, replace_file, seal, secret

T = TypeVar("T")

KIND = "facts"
"""Name of the folder in the cache."""

LIMIT = 8 << 20
"""A file of more bytes is replaced."""

VERSIONS = 3
"""Number of files to keep, for the most recently used compiler versions."""


class Facts:
    """The facts in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._secret = secret()
        self._known: dict[bytes, bytes] | None = None
        self._used: dict[bytes, bytes] = {}
        self._new: dict[bytes, bytes] = {}

    def find(self, key: bytes) -> Any:
        """The fact for a key, or None."""
        if self._known is None:
            self._known = dict(_lines(read_own(self._path, most=2 * LIMIT) or b""))
        line = self._new.get(key) or self._known.get(key)
        if line is None:
            return None
        check, _, text = line.partition(b" ")
        try:
            value = parse_json(text) if check == self._check(key, text) else None
        except ValueError:
            return None
        self._used[key] = line
        return value

    def enter(self, key: bytes, value: Any) -> None:
        """Store a fact, which must be JSON-serialisable."""
        text = json.dumps(value, separators=(",", ":")).encode()
        self._new[key] = self._check(key, text) + b" " + text

    def _check(self, key: bytes, text: bytes) -> bytes:
        return seal(self._secret, key, text, size=8).hex().encode()

    def write(self) -> None:
        """Append the new facts to the file; errors are ignored."""
        if not self._new:
            return
        with suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > LIMIT:
                replace_file(self._path, _text({**self._used, **self._new}))
            else:
                with open(self._path, "ab", opener=_private) as file:
                    file.write(b"\n" + _text(self._new))  # the last line may be incomplete
            _forget_old(self._path.parent)
        self._new = {}


_CURRENT: ContextVar[Facts | None] = ContextVar("facts", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Context in which `recall` looks up and stores facts."""
    facts = Facts(cache_folder(KIND) / compiler_fingerprint()[:32])
    before = _CURRENT.set(facts)
    try:
        yield
    finally:
        _CURRENT.reset(before)
        facts.write()


def recall(
    kind: str,
    depends: Callable[[], bytes],
    compute: Callable[[], T],
    *,
    pack: Callable[[T], Any],
    unpack: Callable[[Any], T | None],
) -> T:
    """The result of `compute`, from disk if it was computed before with the same `depends()`.

    `depends` returns everything that the result depends on.  `pack` converts the result to JSON; `unpack` converts it back, or
    returns None for invalid JSON.  Outside of `remembering`, nothing is stored.
    """
    facts = _CURRENT.get()
    if facts is None:
        return compute()
    key = hashlib.sha256(kind.encode() + b"\0" + depends()).hexdigest()[:32].encode()
    data = facts.find(key)
    result = None
    if data is not None:
        with suppress(ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
            result = unpack(data)
    if result is None:
        result = compute()
        facts.enter(key, pack(result))
    return result


def usage() -> tuple[Path, int]:
    """The folder, and the total size of its files in bytes."""
    folder = cache_folder(KIND)
    return folder, sum(size for _, size, _ in files_by_use(folder))


def _lines(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in data.split(b"\n"):
        key, _, fact = line.partition(b" ")
        if fact:
            yield key, fact


def _text(facts: dict[bytes, bytes]) -> bytes:
    return b"".join(b"%s %s\n" % fact for fact in facts.items())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _forget_old(folder: Path) -> None:
    for _, _, path in files_by_use(folder)[:-VERSIONS]:
        path.unlink(missing_ok=True)
