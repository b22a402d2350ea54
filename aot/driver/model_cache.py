"""Compiled models on disk, so that the same model with the same options compiles only once.  Only data: nothing is executed.

An entry is a seal followed by the artifact as compressed JSON.  Its name is the hash of everything that the result depends on:
the model, its name, the core, the options, and the compiler's own files.  An entry is ignored if this user's cache did not seal
it under this name, or if it does not have the form of an artifact.  Entries are written to a temporary file and moved into place,
so processes may share the folder.  The least recently used entries are evicted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aot.executor.artifact import Artifact
from aot.support.untrusted import parse_json
from aot.system.disk_cache import cache_folder, compiler_fingerprint, files_by_use, read_own, replace_file, seal, secret

if TYPE_CHECKING:
    from aot.driver.options import Options

KIND = "models"
"""The folder's name in the cache."""

LIMIT = 256 << 20
"""The most bytes that all entries together may have."""

LARGEST = 64 << 20
"""The most bytes that an entry may have when unpacked."""

_SEAL = 32

_FORM: dict[str, type | tuple[type, ...]] = {"name": str, "files": dict, "metadata": dict, "graph": (dict, type(None))}

_METADATA: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("schema", "name", "oracle", "opt", "io"), str),
    **dict.fromkeys(("tool", "model", "target", "options", "workspace", "constants", "selection"), dict),
    **dict.fromkeys(("inputs", "outputs", "layers"), list),
    **dict.fromkeys(("macs", "macs_nominal"), int),
}
"""Keys that are always in metadata.json (docs/metadata.md)."""


def is_off() -> bool:
    """Whether $AOT_NO_CACHE turns the cache off."""
    return os.environ.get("AOT_NO_CACHE", "") not in ("", "0")


def key_of(model: bytes, file_name: str, name: str, target: str, options: Options) -> str:
    """The name of the entry: a hash of everything the artifact depends on."""
    parts = (compiler_fingerprint(), file_name, name, target, json.dumps(asdict(options), sort_keys=True, default=str))
    head = json.dumps(parts).encode()
    return hashlib.sha256(hashlib.sha256(head).digest() + hashlib.sha256(model).digest()).hexdigest()


def kept(key: str, compile_it: Callable[[], Artifact]) -> Artifact:
    """The entry `key`, or the result of `compile_it`, which becomes the entry.  Errors of the folder are ignored."""
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
    """The folder, the number of its entries, and their total bytes."""
    folder = cache_folder(KIND)
    sizes = [size for _, size, _ in files_by_use(folder)]
    return folder, len(sizes), sum(sizes)


def _read(path: Path) -> Artifact | None:
    """The artifact of an entry that this cache wrote under this name; None for anything else."""
    entry = read_own(path, most=LARGEST)
    if entry is None or entry[:_SEAL] != _sealed(path, entry[_SEAL:]):
        return None
    try:
        unpack = zlib.decompressobj()
        text = unpack.decompress(entry[_SEAL:], LARGEST)
        return _artifact(parse_json(text)) if unpack.eof else None
    except (ValueError, zlib.error):
        return None


def _artifact(data: Any) -> Artifact | None:
    """The artifact that an entry describes; None if no compilation makes such an artifact, or if it names files elsewhere."""
    if not _is_form(data, _FORM) or not _is_form(data["metadata"], _METADATA):
        return None
    name, files, graph = data["name"], data["files"], data["graph"]
    own = re.compile(rf"{re.escape(name)}(_[a-z]+)?\.[ch]")
    named = name.isidentifier() and all(own.fullmatch(file) and isinstance(text, str) for file, text in files.items())
    return Artifact(name, files, data["metadata"], graph) if named and data["metadata"]["name"] == name else None


def _is_form(data: Any, form: Mapping[str, type | tuple[type, ...]]) -> bool:
    return isinstance(data, dict) and all(isinstance(data.get(key, ...), kind) for key, kind in form.items())


def _write(path: Path, artifact: Artifact) -> None:
    data = {"name": artifact.name, "files": dict(artifact.files), "metadata": artifact.metadata, "graph": artifact.graph}
    text = json.dumps(data).encode()
    if len(text) > LARGEST or json.loads(text) != data:
        return  # too large, or JSON would change something, such as a tuple: compile again each time
    packed = zlib.compress(text, 1)
    replace_file(path, _sealed(path, packed) + packed)
    _shrink(path.parent)


def _sealed(path: Path, packed: bytes) -> bytes:
    return seal(secret(), path.name.encode(), packed, size=_SEAL)


def _shrink(folder: Path) -> None:
    """Remove the least recently used entries until the others are within the limit."""
    entries = files_by_use(folder)
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= LIMIT:
            return
        path.unlink(missing_ok=True)
        total -= size
