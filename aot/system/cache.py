"""Where things are kept that can be made again: objects and programs that are run later, so the folder must be nobody else's."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from aot.errors import Problem, UsageError


def cache_folder(kind: str) -> Path:
    """The folder `kind` below $AOT_CACHE, else below $XDG_CACHE_HOME/aot, else below ~/.cache/aot; made with mode 0700.

    What lies in it is executed and loaded, so it must belong to this user and nobody else may write to it.  Where the default
    one is not so, or cannot be made (no home folder, a read-only one), a fresh private folder takes its place, which goes with
    the process.  Raises UsageError E5061 if $AOT_CACHE cannot be used.
    """
    explicit = os.environ.get("AOT_CACHE")
    reason = "there is no home folder"
    try:
        base = Path(explicit) if explicit else _default()
        reason = _fault(base / kind)
        if not reason:
            return base / kind
    except OSError as error:
        reason = error.strerror or str(error)
    except (RuntimeError, ValueError):  # RuntimeError: no home folder; ValueError: a NUL in its name
        pass
    if explicit:
        raise UsageError(Problem("E5061", f"AOT_CACHE={explicit} cannot be used: {reason}"))
    return _private() / kind


def files_by_use(folder: Path) -> list[tuple[int, int, Path]]:
    """(time of the last use, bytes, path) of each file, that of longest ago first."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                found.append((about.st_mtime_ns, about.st_size, Path(entry.path)))
    return sorted(found)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that other processes may read meanwhile: they find the old one or all of the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def _default() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "aot"


def _fault(folder: Path) -> str:
    """Make the folder where it is missing; why it must not be used, "" where it may."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{folder} is not a folder"
    if found.st_uid != os.geteuid():
        return f"{folder} belongs to another user"
    if found.st_mode & 0o022:
        return f"others may write to {folder}"
    with tempfile.TemporaryFile(dir=folder):
        return ""


@cache
def _private() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="aot-cache-"))
    from multiprocessing.util import Finalize  # imports much, and few runs need it

    Finalize(None, shutil.rmtree, (folder, True), exitpriority=0)  # in worker processes, too, where atexit does nothing
    for kind in ("build", "facts", "host", "models"):
        (folder / kind).mkdir(mode=0o700)
    return folder
