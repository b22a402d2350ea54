"""What slow steps of a compilation found, kept on disk by a hash of all that they depend on, for the next compilation.

One file of lines `KEY CHECK JSON` per version of the compiler.  A process reads it whole when it first asks, and appends what
it found in one write, so processes may share it; a line that this user's cache did not seal is none.  A file that has grown too
long is replaced by what the last process used.  Data only: a fact is a number, a text or a list, and whoever asks looks whether
it can be one.
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
"""The folder's name in the cache."""

LIMIT = 8 << 20
"""Bytes of a file from which on it is replaced."""

VERSIONS = 3
"""Files that are kept, those of the compilers that were used last."""


class Facts:
    """The facts in one file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._secret = secret()
        self._known: dict[bytes, bytes] | None = None
        self._used: dict[bytes, bytes] = {}
        self._new: dict[bytes, bytes] = {}

    def find(self, key: bytes) -> Any:
        """The fact, or None."""
        if self._known is None:
            self._known = dict(_lines(read_own(self._path, most=2 * LIMIT) or b""))
        found = self._new.get(key) or self._known.get(key)
        if found is None:
            return None
        check, _, text = found.partition(b" ")
        try:
            value = parse_json(text) if check == self._check(key, text) else None
        except ValueError:
            return None
        self._used[key] = found
        return value

    def enter(self, key: bytes, value: Any) -> None:
        """Keep a fact that JSON can hold."""
        text = json.dumps(value, separators=(",", ":")).encode()
        self._new[key] = self._check(key, text) + b" " + text

    def _check(self, key: bytes, text: bytes) -> bytes:
        return seal(self._secret, key, text, size=8).hex().encode()

    def write(self) -> None:
        """Append what is new; a folder that fails is as good as none."""
        if not self._new:
            return
        with suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > LIMIT:
                replace_file(self._path, _text({**self._used, **self._new}))
            else:
                with open(self._path, "ab", opener=_private) as file:
                    file.write(b"\n" + _text(self._new))  # the line before may have been cut off
            _forget_old(self._path.parent)
        self._new = {}


_CURRENT: ContextVar[Facts | None] = ContextVar("facts", default=None)


@contextmanager
def remembering() -> Iterator[None]:
    """Facts are looked up and kept in this block."""
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
    """What `compute` returns, or what it returned before for the same `depends()`, which says all that the result depends on.

    `pack` makes JSON of it, and `unpack` it of JSON, or None of what it cannot be.  Without `remembering`, it is just computed.
    """
    facts = _CURRENT.get()
    if facts is None:
        return compute()
    key = hashlib.sha256(kind.encode() + b"\0" + depends()).hexdigest()[:32].encode()
    data = facts.find(key)
    found = None
    if data is not None:
        with suppress(ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
            found = unpack(data)
    if found is None:
        found = compute()
        facts.enter(key, pack(found))
    return found


def usage() -> tuple[Path, int]:
    """The folder and the bytes of all files in it."""
    folder = cache_folder(KIND)
    return folder, sum(size for _, size, _ in files_by_use(folder))


def _lines(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in data.split(b"\n"):
        key, _, rest = line.partition(b" ")
        if rest:
            yield key, rest


def _text(facts: dict[bytes, bytes]) -> bytes:
    return b"".join(b"%s %s\n" % fact for fact in facts.items())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _forget_old(folder: Path) -> None:
    for _, _, path in files_by_use(folder)[:-VERSIONS]:
        path.unlink(missing_ok=True)
