"""Where things are kept that can be made again: objects and programs that are run later, so the folder must be nobody else's."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from aot.errors import Problem, UsageError

_MOST_LINKS = 40
"""Symbolic links on the way to a folder."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a folder is opened that others may keep from being listed, such as that of all homes."""


def cache_folder(kind: str) -> Path:
    """The folder `kind` below $AOT_CACHE, else below $XDG_CACHE_HOME/aot, else below ~/.cache/aot; made with mode 0700.

    What lies in it is executed and loaded, so it must belong to this user, nobody else may write to it, and nobody else may
    put another folder into the place of one on the way.  The path returned has no symbolic links.  Where the default one is not
    so, or cannot be made (no home folder, a read-only one), a fresh private folder takes its place, which goes with the process.
    Raises UsageError E5061 if $AOT_CACHE cannot be used.
    """
    explicit = os.environ.get("AOT_CACHE")
    reason = "there is no home folder"
    try:
        return _own_folder((Path(explicit) if explicit else _default()) / kind)
    except _UntrustedError as error:
        reason = str(error)
    except OSError as error:
        reason = error.strerror or str(error)
    except (RuntimeError, ValueError):  # RuntimeError: no home folder; ValueError: a NUL in its name
        pass
    if explicit:
        raise UsageError(Problem("E5061", f"AOT_CACHE={explicit} cannot be used: {reason}"))
    private = _private() / kind
    private.mkdir(mode=0o700, exist_ok=True)
    return private


def files_by_use(folder: Path) -> list[tuple[int, int, Path]]:
    """(time of the last use, bytes, path) of each file, that of longest ago first."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                found.append((about.st_mtime_ns, about.st_size, Path(entry.path)))
    return sorted(found)


def read_own(path: Path, *, most: int) -> bytes | None:
    """The content of a file that this user wrote; None for no file, a link, a pipe, another user's, or more than `most` bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022 or found.st_size > most:
            return None
        with open(handle, "rb", closefd=False) as file:
            data = file.read(most + 1)
        return data if len(data) <= most else None
    except OSError:
        return None
    finally:
        os.close(handle)


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


def seal(secret: bytes, *parts: bytes, size: int = 32) -> bytes:
    """A digest of the parts that only who knows the secret can make: what was changed, or put elsewhere, does not match."""
    state = hashlib.blake2b(key=secret, digest_size=size)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


def secret() -> bytes:
    """32 random bytes of this user's cache, made when they are first needed; where they cannot be kept, of this process."""
    return _secret(cache_folder("secret") / "key")


class _UntrustedError(Exception):
    """Somebody else could decide what a folder holds."""


@cache
def _secret(path: Path) -> bytes:
    fresh = os.urandom(32)
    with suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(fresh)
            with suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            os.unlink(temporary)
    found = read_own(path, most=len(fresh))
    return found if found is not None and len(found) == len(fresh) else fresh


def _default() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "aot"


def _own_folder(folder: Path) -> Path:
    """The folder, made if it is missing, by a path that nobody else can redirect (_UntrustedError, OSError)."""
    parent, handle = _trusted(folder.parent)
    try:
        found = _made(folder.name, handle)
    finally:
        os.close(handle)
    path = parent / folder.name
    if not stat.S_ISDIR(found.st_mode):
        raise _UntrustedError(f"{path} is not a folder")
    if found.st_uid != os.geteuid():
        raise _UntrustedError(f"{path} belongs to another user")
    if found.st_mode & 0o022:
        raise _UntrustedError(f"others may write to {path}")
    with tempfile.TemporaryFile(dir=path):
        return path


def _trusted(folder: Path) -> tuple[Path, int]:
    """A folder without links in its path, and a descriptor of it; folders that are missing are made.

    Each one is opened in the one before, and looked at, so that none can be exchanged in between.
    """
    waiting, links = _names(os.path.join(os.getcwd(), folder)), 0
    path, handle = Path("/"), os.open("/", _FOLDER)
    try:
        _check(path, os.fstat(handle))
        while waiting:
            name = waiting.pop()
            found = _made(name, handle)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                if found.st_uid not in _masters() or links > _MOST_LINKS:
                    raise _UntrustedError(f"{path / name} is a link of another user, or one of a circle")
                target = os.readlink(name, dir_fd=handle)
                waiting += _names(target)
                if not target.startswith("/"):
                    continue
                name = "/"
            path = path.parent if name == ".." else path / name
            inner = os.open(name, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
            _check(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return path, handle


def _names(path: str) -> list[str]:
    """The parts of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _made(name: str, parent: int) -> os.stat_result:
    """What is there, a new folder if nothing is."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def _check(path: Path, found: os.stat_result) -> None:
    """Whether others could put a folder of theirs into this one's place, or into this one (_UntrustedError)."""
    if found.st_uid not in _masters():
        raise _UntrustedError(f"{path} belongs to another user")
    by_all = found.st_mode & 0o002
    by_group = found.st_mode & 0o020 and not _is_private_group(found.st_gid)
    if (by_all or by_group) and not found.st_mode & stat.S_ISVTX:
        raise _UntrustedError(f"others may write to {path}")


@cache
def _masters() -> frozenset[int]:
    """Who can do everything anyway: root, who owns the folder of all folders, and this user."""
    return frozenset({0, os.stat("/").st_uid, os.geteuid()})


@cache
def _is_private_group(gid: int) -> bool:
    """Whether a group is this user's alone, as many systems give everyone one of his name (and a umask of 002)."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()).pw_name, grp.getgrgid(gid)
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


@cache
def _private() -> Path:
    for place in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp")):
        with suppress(OSError, _UntrustedError):
            parent, handle = _trusted(Path(place))
            os.close(handle)
            folder = Path(tempfile.mkdtemp(prefix="aot-cache-", dir=parent))
            break
    else:
        message = f"neither the home folder nor {tempfile.gettempdir()} can hold a cache: set AOT_CACHE to a folder of your own"
        raise UsageError(Problem("E5061", message))
    from multiprocessing.util import Finalize  # imports much, and few runs need it

    Finalize(None, shutil.rmtree, (folder, True), exitpriority=0)  # in worker processes, too, where atexit does nothing
    return folder


@cache
def compiler_fingerprint() -> str:
    """Changes when a file of the package does (by its size and time), or the Python that runs it."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256(f"{root} {platform.python_version()}".encode())
    for path, size, when in sorted(_files(root)):
        digest.update(f"{path} {size} {when}\n".encode())
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _files(Path(entry.path))
            elif not entry.name.endswith(".pyc"):
                found = entry.stat()
                yield entry.path, found.st_size, found.st_mtime_ns
