"""Files: the data that comes with aot, checksums, and write errors."""

from __future__ import annotations

import errno
import hashlib
from pathlib import Path

from aot.errors import Problem, UsageError


def write_error(path: Path, error: OSError) -> UsageError:
    """E5006 for a full disk, E5007 for any other error."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    code = "E5006" if full else "E5007"
    return UsageError(Problem(code, f"cannot write '{path}': {error.strerror}; nothing was changed there"))


_PACKAGE = Path(__file__).resolve().parent.parent


def data_folder(name: str) -> Path:
    """The folder `crt` or `boards`: inside an installed package, else at the root of the checkout."""
    installed = _PACKAGE / "_data" / name
    return installed if installed.is_dir() else _PACKAGE.parent / name


def digest(content: str | bytes) -> str:
    """SHA-256 of a file; text files are hashed with LF line endings, because version control may change these."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    if b"\0" not in data:
        data = data.replace(b"\r\n", b"\n")
    return hashlib.sha256(data).hexdigest()
