"""Compiled models on disk, so that the same model with the same options is compiled once. Data only: nothing in it is executed.

An entry is a seal, then the artifact as compressed JSON; its name is the hash of everything the result depends on: the model,
its name, the core, the options, and the compiler's own files.  What this user's cache did not seal under this name is no entry,
nor is what does not have the form of an artifact.  Entries are written to a temporary file and moved into place, so processes may
share the folder; the least recently used are evicted.
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
"""Bytes that all entries may have together."""

LARGEST = 64 << 20
"""Bytes that an entry may have unpacked."""

_SEAL = 32

_FORM: dict[str, type | tuple[type, ...]] = {"name": str, "files": dict, "metadata": dict, "graph": (dict, type(None))}

_METADATA: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("schema", "name", "oracle", "opt", "io"), str),
    **dict.fromkeys(("tool", "model", "target", "options", "workspace", "constants", "selection"), dict),
    **dict.fromkeys(("inputs", "outputs", "layers"), list),
    **dict.fromkeys(("macs", "macs_nominal"), int),
}
"""What metadata.json always has (docs/metadata.md)."""


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
    """The artifact that an entry describes; None if it is not as a compilation makes it, or names files elsewhere."""
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
        return  # something that JSON would change, such as a tuple: compiled again each time
    packed = zlib.compress(text, 1)
    replace_file(path, _sealed(path, packed) + packed)
    _shrink(path.parent)


def _sealed(path: Path, packed: bytes) -> bytes:
    return seal(secret(), path.name.encode(), packed, size=_SEAL)


def _shrink(folder: Path) -> None:
    """Remove what was not used for the longest time, until the rest is within the limit."""
    entries = files_by_use(folder)
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= LIMIT:
            return
        path.unlink(missing_ok=True)
        total -= size
