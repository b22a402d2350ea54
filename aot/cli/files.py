"""Reading what the user names, writing what he asked for: whole or not at all."""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from aot.errors import Problem, UsageError
from aot.support.names import model_identifier
from aot.support.text import printable

MAX_MODEL_BYTES = 1 << 30
MARKER = "metadata.json"
"""Every folder that aot writes holds this file; --force replaces no other folder."""


def read_file(path: Path, *, limit: int = MAX_MODEL_BYTES) -> bytes:
    """The content of a file that the user named (E5001 when it cannot be read, E5002 beyond `limit` bytes)."""
    try:
        if path.is_file() and path.stat().st_size > limit:
            raise UsageError(Problem("E5002", f"'{path}' has more than {limit:,} bytes"))
        return path.read_bytes()
    except OSError as error:
        raise UsageError(Problem("E5001", f"cannot read '{printable(str(path))}': {error.strerror}")) from None


def model_name(path: Path, name: str | None) -> str:
    """The prefix of all C symbols: what the user asks for (E5003 where it is no such name), or one made of the file's name."""
    if name is None:
        return model_identifier(path.stem)
    proposal = model_identifier(name)
    if proposal != name:
        own = proposal == f"model_{name}"
        why = "belongs to the runtime, as all that begins with aot_" if own else "is no lower-case C identifier"
        raise UsageError(Problem("E5003", f"'{printable(name)}' {why}; '{proposal}' would do"))
    return name


def write_folder(folder: Path, files: Mapping[str, str | bytes], *, force: bool) -> list[Path]:
    """Write `files` (path below the folder -> content) so that the folder appears complete or not at all.

    The files go to a temporary folder beside the wanted one, which is renamed when all is written.  An existing folder with
    content is replaced only with `force`, and only when it was written by aot (E5004, E5005); a full disk is E5006.
    """
    check_replaceable(folder, force=force)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise _write_error(folder, error) from None
    try:
        _write_all(staging, files)
        _swap(staging, folder)
    except OSError as error:
        raise _write_error(folder, error) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return [folder / name for name in files]


def write_file(path: Path, content: str | bytes) -> None:
    """Write one file, whole or not at all; what was there goes (E5006, E5007)."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        partial.replace(path)
    except OSError as error:
        with suppress(OSError):
            partial.unlink()
        raise _write_error(path, error) from None


def check_usable(folder: Path) -> None:
    """Raise E5005 where a file stands in the way of `folder`; verbs ask before the long work."""
    there = next(p for p in (folder, *folder.absolute().parents) if os.path.lexists(p))
    if not there.is_dir():
        raise UsageError(Problem("E5005", f"'{printable(str(there))}' exists and is not a folder"))


def check_replaceable(folder: Path, *, force: bool) -> None:
    """Raise when `folder` may not be written; verbs call it before the long work, too."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(Problem("E5005", f"'{folder}' exists and is not a folder"))
    if not folder.exists() or not any(folder.iterdir()):
        return
    if not force:
        raise UsageError(Problem("E5004", f"'{folder}' exists; --force replaces it, -o names another one"))
    if not _is_ours(folder):
        raise UsageError(Problem("E5005", f"'{folder}' was not written by aot, so --force does not replace it"))


def _is_ours(folder: Path) -> bool:
    try:
        return str(json.loads((folder / MARKER).read_bytes())["schema"]).startswith("aot-")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write_all(staging: Path, files: Mapping[str, str | bytes]) -> None:
    staging.chmod(0o777 & ~_umask())
    for name, content in files.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


def _umask() -> int:
    """mkdtemp makes folders private; output folders are to be like any other."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _swap(staging: Path, folder: Path) -> None:
    if not folder.exists():
        staging.rename(folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    folder.rename(old / folder.name)
    try:
        staging.rename(folder)
    except OSError:
        (old / folder.name).rename(folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _write_error(folder: Path, error: OSError) -> UsageError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    code = "E5006" if full else "E5007"
    return UsageError(Problem(code, f"cannot write '{folder}': {error.strerror}; nothing was changed there"))
