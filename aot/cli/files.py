"""Output folders and files, written completely or not at all."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from aot.errors import Problem, UsageError
from aot.support.names import is_keyword, model_identifier, name_fault
from aot.support.text import printable
from aot.support.untrusted import parse_json
from aot.system.files import digest, write_error

MANIFEST = "aot-output.json"
SCHEMA = "aot-output/1"

_LARGEST = 1 << 26
"""Maximum size of a manifest in bytes."""
_EXCHANGE = 2  # RENAME_EXCHANGE of renameat2(2)
_HERE = -100  # AT_FDCWD


def write_folder(folder: Path, files: Mapping[str, str | bytes], *, force: bool) -> list[Path]:
    """Write `files` (path below the folder -> content) and their manifest atomically; return the paths.

    Everything is written to a temporary folder next to `folder`, which is then renamed in one step: a full disk, an error or an
    interrupt leaves either the old folder or the new one, complete.  An existing folder is replaced if it contains only files
    of its manifest, unchanged (by their checksums).  Any other folder needs `force`, which replaces the files of the manifest
    and keeps the user's (E5004, E5005, E5041); a full disk is E5006.
    """
    listed = check_replaceable(folder, force=force)
    kept = _kept(folder, listed)
    _refuse_collisions(folder, kept, files)
    content = {**files, MANIFEST: _manifest(files)}
    _write(folder, content, kept)
    return [folder / name for name in content]


def write_new_folder(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write a folder that does not exist or is empty, without a manifest (E5004 to E5007)."""
    check_replaceable(folder, force=False)
    _write(folder, files, ())


def _write(folder: Path, content: Mapping[str, str | bytes], kept: Collection[str]) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        staging = _staging(folder)
    except OSError as error:
        raise write_error(folder, error) from None
    try:
        _write_all(staging, content)
        _keep(folder, staging, kept)
        _put_in_place(staging, folder)
    except OSError as error:
        raise write_error(folder, error) from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)  # after the exchange: the old folder


def check_replaceable(folder: Path, *, force: bool) -> Collection[str]:
    """The files in `folder` that may be replaced; raises if it must not be written.  Verbs call this before the long work."""
    try:
        return _replaceable(folder, force=force)
    except OSError as error:  # a name too long for the file system, a folder without permission
        raise write_error(folder, error) from None


def _replaceable(folder: Path, *, force: bool) -> Collection[str]:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UsageError(Problem("E5005", f"'{folder}' exists and is not a folder"))
    if not folder.exists():
        return ()
    if Path.cwd().is_relative_to(folder.resolve()):
        raise UsageError(Problem("E5005", f"'{folder}' is the current folder, or contains it; choose another with -o"))
    if not any(folder.iterdir()):
        return ()
    listed = read_manifest(folder / MANIFEST, SCHEMA)
    changed = sorted(name for name, known in (listed or {}).items() if not _is_as_written(folder / name, known))
    if not force and (listed is None or changed or _kept(folder, (*listed, MANIFEST))):
        message = f"'{folder}' exists and contains more than aot's files; --force replaces only these, -o chooses another folder"
        raise UsageError(Problem("E5004", message))
    if listed is None:
        raise UsageError(
            Problem("E5005", f"'{folder}' was not written by aot (no valid {MANIFEST}), so --force does not replace it")
        )
    if changed:
        raise UsageError(
            *(Problem("E5041", f"'{folder / name}' was changed after aot wrote it; move it away") for name in changed)
        )
    return {*listed, MANIFEST}


def read_manifest(path: Path, schema: str) -> dict[str, str] | None:
    """The files in a manifest (path -> checksum); None if it is not aot's or names a file outside its folder."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:  # reading a pipe would block
            return None
        document = parse_json(path.read_bytes())
        listed = dict(document["generated"])
        ours = document["schema"] == schema and all(isinstance(v, str) and is_inside(k) for k, v in listed.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return listed if ours else None


def is_inside(name: str) -> bool:
    """Whether a manifest's path is in normal form and stays inside the folder: manifests are untrusted."""
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and str(path) == name and "\0" not in name


def encoded(content: str | bytes) -> bytes:
    """The bytes of a file; surrogates (from file names that are not UTF-8) are escaped."""
    return content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content


def _manifest(files: Mapping[str, str | bytes]) -> str:
    document = {"schema": SCHEMA, "generated": {name: digest(files[name]) for name in sorted(files)}}
    return json.dumps(document, indent=2) + "\n"


def _is_as_written(path: Path, known: str) -> bool:
    """Whether a listed file still has its checksum, or is gone."""
    if path.is_symlink():
        return False
    if not path.exists():
        return True
    try:
        return path.is_file() and digest(path.read_bytes()) == known
    except OSError:
        return False


def _kept(folder: Path, listed: Collection[str]) -> list[str]:
    """Everything in the folder that is not listed: files, links and empty folders."""
    paths = []
    for root, folders, names in os.walk(folder):
        here = Path(root).relative_to(folder)
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        paths += [(here / name).as_posix() for name in (*names, *links)]
        if not names and not folders and root != str(folder):
            paths.append(here.as_posix())
    return sorted(set(paths) - set(listed))


def _refuse_collisions(folder: Path, kept: Iterable[str], files: Iterable[str]) -> None:
    """E5005 if a new file would replace one of the user's, or needs a folder where the user has a file."""
    new = set(files)
    above = {str(parent) for name in new for parent in PurePosixPath(name).parents}
    bad = [
        name
        for name in kept
        if name in new
        or (name in above and not (folder / name).is_dir())
        or any(str(p) in new for p in PurePosixPath(name).parents)
    ]
    if bad:
        raise UsageError(*(Problem("E5005", f"'{folder / name}' already exists and was not written by aot") for name in bad))


def _write_all(staging: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(content))


def _staging(folder: Path) -> Path:
    """A new folder beside `folder` with default permissions (tempfile's folders are private)."""
    while True:
        path = folder.parent / f".{folder.name}.{os.urandom(4).hex()}"
        with suppress(FileExistsError):
            path.mkdir()
            return path


def _keep(folder: Path, staging: Path, kept: Iterable[str]) -> None:
    """Add the user's files to the new folder as hard links, so that they exist at every moment."""
    for name in kept:
        source, target = folder / name, staging / name
        for parent in reversed(PurePosixPath(name).parents):
            if not (staging / parent).is_dir():
                (staging / parent).mkdir()
                shutil.copystat(folder / parent, staging / parent)
        if source.is_dir() and not source.is_symlink():
            target.mkdir(exist_ok=True)
            shutil.copystat(source, target)
            continue
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # a file system without hard links
            shutil.copy2(source, target, follow_symlinks=False)
    if folder.exists():
        shutil.copymode(folder, staging)


def _put_in_place(staging: Path, folder: Path) -> None:
    """Rename `staging` to `folder`; afterwards `staging` is the old folder, or does not exist."""
    if not folder.exists() or not any(folder.iterdir()):
        staging.rename(folder)  # works for an empty folder, too
    elif not exchange(staging, folder):
        _move_aside(staging, folder)


def exchange(a: Path, b: Path) -> bool:
    """Swap the names of two folders atomically; False if the system cannot (only Linux can)."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    if call(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP):
        return False
    raise OSError(number, os.strerror(number))


def _move_aside(staging: Path, folder: Path) -> None:
    """Replace `folder` in two steps; if the second fails, restore the old folder."""
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.old.", dir=folder.parent))
    try:
        folder.rename(old / folder.name)
        staging.rename(folder)
    except BaseException:
        if not os.path.lexists(folder):
            (old / folder.name).rename(folder)
        raise
    finally:
        if os.path.lexists(folder):
            with suppress(OSError):
                shutil.rmtree(old)


def model_name(path: Path, name: str | None) -> str:
    """The prefix of all C symbols: `name` (E5003 if it is not valid), or one derived from the file's name."""
    if name is None:
        return model_identifier(path.stem)
    valid = model_identifier(name)
    if valid != name:
        raise UsageError(Problem("E5003", f"'{printable(name)}' {_name_fault(name)}; use '{valid}', for example"))
    return name


def _name_fault(name: str) -> str:
    """Why a name cannot be the prefix of C symbols."""
    fault = name_fault(name, symbol=True)
    if not fault and name != name.lower():
        fault = "must be lower case"
    if not fault and name.split("_")[0] == "aot":
        fault = "is reserved: the runtime's names begin with aot_"
    if not fault and is_keyword(name):
        fault = "is reserved in C or C++"
    return fault or "must not begin or end with _, or contain __"


def write_file(path: Path, content: str | bytes) -> None:
    """Write one file atomically, replacing an existing one (E5006, E5007)."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(encoded(content))
        partial.replace(path)
    except OSError as error:
        raise write_error(path, error) from None
    finally:
        with suppress(OSError):
            partial.unlink()


def check_usable(folder: Path) -> None:
    """Raise E5005 if `folder`, or a parent, is a file; verbs call this before the long work."""
    existing = next(p for p in (folder, *folder.absolute().parents) if os.path.lexists(p))
    if not existing.is_dir():
        raise UsageError(Problem("E5005", f"'{printable(str(existing))}' exists and is not a folder"))
