"""Errors of writing, by what the user can do about them."""

from __future__ import annotations

import errno
from pathlib import Path

from aot.errors import Problem, UsageError


def write_error(path: Path, error: OSError) -> UsageError:
    """E5006 for a disk that is full, E5007 for all else."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    code = "E5006" if full else "E5007"
    return UsageError(Problem(code, f"cannot write '{path}': {error.strerror}; nothing was changed there"))
