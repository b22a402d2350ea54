"""The cache folder.  It contains objects and programs that are executed later, so only this user may write to it."""

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
"""Maximum number of symbolic links on the way to a folder."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags to open a folder that may not be readable, such as /home."""


def cache_folder(kind: str) -> Path:
    """The folder `kind` below $AOT_CACHE, else below $XDG_CACHE_HOME/aot, else below ~/.cache/aot; created with mode 0700.

    Its content is executed and loaded, so it must belong to this user, nobody else may write to it, and nobody else may replace
    one of its parent folders.  The returned path has no symbolic links.  If the default folder does not meet this, or cannot be
    created (no home folder, or a read-only one), a private temporary folder is used, which is deleted with the process.
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
    """(time of the last use, bytes, path) of each file, least recently used first."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                files.append((about.st_mtime_ns, about.st_size, Path(entry.path)))
    return sorted(files)


def read_own(path: Path, *, most: int) -> bytes | None:
    """The content of a file of this user; None if it is missing, a link, a pipe, another user's, or larger than `most` bytes."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022 or info.st_size > most:
            return None
        with open(handle, "rb", closefd=False) as file:
            data = file.read(most + 1)
        return data if len(data) <= most else None
    except OSError:
        return None
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file atomically: other processes see the old content or the complete new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink(missing_ok=True)
        raise


def seal(secret: bytes, *parts: bytes, size: int = 32) -> bytes:
    """A keyed digest of the parts, which only someone who knows the secret can compute."""
    state = hashlib.blake2b(key=secret, digest_size=size)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


def secret() -> bytes:
    """32 random bytes, created on first use and kept in this user's cache; only for this process if they cannot be kept."""
    return _secret(cache_folder("secret") / "key")


class _UntrustedError(Exception):
    """Another user could control the content of a folder."""


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
    kept = read_own(path, most=len(fresh))
    return kept if kept is not None and len(kept) == len(fresh) else fresh


def _default() -> Path:
    named = os.environ.get("XDG_CACHE_HOME")
    return (Path(named) if named else Path.home() / ".cache") / "aot"


def _own_folder(folder: Path) -> Path:
    """The folder, created if it does not exist, by a path that nobody else can redirect (_UntrustedError, OSError)."""
    parent, handle = _trusted(folder.parent)
    try:
        info = _stat_or_create(folder.name, handle)
    finally:
        os.close(handle)
    path = parent / folder.name
    if not stat.S_ISDIR(info.st_mode):
        raise _UntrustedError(f"{path} is not a folder")
    if info.st_uid != os.geteuid():
        raise _UntrustedError(f"{path} belongs to another user")
    if info.st_mode & 0o022:
        raise _UntrustedError(f"others may write to {path}")
    with tempfile.TemporaryFile(dir=path):
        return path


def _trusted(folder: Path) -> tuple[Path, int]:
    """The path of a folder with all links resolved, and a descriptor of it; missing folders are created.

    Each folder is opened relative to its parent's descriptor and checked, so that none can be replaced in between.
    """
    waiting, links = _names(os.path.join(os.getcwd(), folder)), 0
    path, handle = Path("/"), os.open("/", _FOLDER)
    try:
        _check(path, os.fstat(handle))
        while waiting:
            name = waiting.pop()
            info = _stat_or_create(name, handle)
            if stat.S_ISLNK(info.st_mode):
                links += 1
                if info.st_uid not in _trusted_users() or links > _MOST_LINKS:
                    raise _UntrustedError(f"{path / name} is another user's link, or part of a cycle of links")
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


def _stat_or_create(name: str, parent: int) -> os.stat_result:
    """The status of `name` in the folder `parent`; creates a folder if there is nothing."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=parent, follow_symlinks=False)
    with suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
    return os.stat(name, dir_fd=parent, follow_symlinks=False)


def _check(path: Path, info: os.stat_result) -> None:
    """Raise _UntrustedError if others could replace this folder, or the folders in it."""
    if info.st_uid not in _trusted_users():
        raise _UntrustedError(f"{path} belongs to another user")
    by_all = info.st_mode & 0o002
    by_group = info.st_mode & 0o020 and not _is_private_group(info.st_gid)
    if (by_all or by_group) and not info.st_mode & stat.S_ISVTX:
        raise _UntrustedError(f"others may write to {path}")


@cache
def _trusted_users() -> frozenset[int]:
    """The users that can do anything anyway: root, the owner of /, and this user."""
    return frozenset({0, os.stat("/").st_uid, os.geteuid()})


@cache
def _is_private_group(gid: int) -> bool:
    """Whether the user is the only member of a group: many systems give each user a group of the same name (and umask 002)."""
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
    from multiprocessing.util import Finalize  # a slow import that few runs need

    Finalize(None, shutil.rmtree, (folder, True), exitpriority=0)  # works in worker processes too, where atexit does not
    return folder


@cache
def compiler_fingerprint() -> str:
    """A digest that changes with any file of the package (by size and time), and with the Python version."""
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
                info = entry.stat()
                yield entry.path, info.st_size, info.st_mtime_ns
