"""Compiled models on disk, so that the same model with the same options is compiled once. Data only: nothing in it is executed.

An entry is the hash of its bytes, then the artifact as compressed JSON; its name is the hash of everything the result depends on:
the model, its name, the core, the options, and the compiler's own files.  What does not match its hash is no entry.  Entries are
written to a temporary file and moved into place, so processes may share the folder; the least recently used are evicted.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from aot.executor.artifact import Artifact
from aot.system.cache import cache_folder, files_by_use, replace_file
from aot.system.fingerprint import compiler_fingerprint

if TYPE_CHECKING:
    from aot.driver.options import Options

KIND = "models"
"""The folder's name in the cache."""

LIMIT = 256 << 20
"""Bytes that all entries may have together."""

LARGEST = 64 << 20
"""Bytes that an entry may have unpacked."""

_HASH = 32


def is_off() -> bool:
    """Whether $AOT_NO_CACHE says that nothing is to be kept."""
    return os.environ.get("AOT_NO_CACHE", "") not in ("", "0")


def key_of(model: bytes, file_name: str, name: str, target: str, options: Options) -> str:
    """The name of the entry: a hash of everything the artifact depends on."""
    parts = (compiler_fingerprint(), file_name, name, target, json.dumps(asdict(options), sort_keys=True, default=str))
    head = json.dumps(parts).encode()
    return hashlib.sha256(hashlib.sha256(head).digest() + hashlib.sha256(model).digest()).hexdigest()


def kept(key: str, compile_it: Callable[[], Artifact]) -> Artifact:
    """The entry `key`, or what `compile_it` returns, which becomes the entry.  A folder that fails is as good as none."""
    path = cache_folder(KIND) / key
    found = _read(path)
    if found is not None:
        with suppress(OSError):
            os.utime(path)
        return found
    artifact = compile_it()
    with suppress(OSError):
        _write(path, artifact)
    return artifact


def usage() -> tuple[Path, int, int]:
    """The folder, the number of its entries and their bytes."""
    folder = cache_folder(KIND)
    sizes = [size for _, size, _ in files_by_use(folder)]
    return folder, len(sizes), sum(sizes)


def _read(path: Path) -> Artifact | None:
    try:
        packed = path.read_bytes()
        if hashlib.sha256(packed[_HASH:]).digest() != packed[:_HASH]:
            return None
        unpack = zlib.decompressobj()
        text = unpack.decompress(packed[_HASH:], LARGEST)
        data = json.loads(text) if unpack.eof else None
        return Artifact(data["name"], data["files"], data["metadata"], data["graph"]) if data else None
    except (OSError, ValueError, KeyError, TypeError, zlib.error):
        return None


def _write(path: Path, artifact: Artifact) -> None:
    data = {"name": artifact.name, "files": dict(artifact.files), "metadata": artifact.metadata, "graph": artifact.graph}
    text = json.dumps(data).encode()
    if len(text) > LARGEST or json.loads(text) != data:
        return  # something that JSON would change, such as a tuple: compiled again each time
    packed = zlib.compress(text, 1)
    replace_file(path, hashlib.sha256(packed).digest() + packed)
    _shrink(path.parent)


def _shrink(folder: Path) -> None:
    """Remove what was not used for the longest time, until the rest is within the limit."""
    entries = files_by_use(folder)
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= LIMIT:
            return
        path.unlink(missing_ok=True)
        total -= size
