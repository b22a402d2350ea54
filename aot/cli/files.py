"""Reading what the user names, writing what he asked for: whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from aot.cli.output_folder import encoded
from aot.errors import Problem, UsageError
from aot.support.names import model_identifier
from aot.support.text import printable
from aot.system.files import write_error


def model_name(path: Path, name: str | None) -> str:
    """The prefix of all C symbols: what the user asks for (E5003 if it is no such name), or one made of the file's name."""
    if name is None:
        return model_identifier(path.stem)
    proposal = model_identifier(name)
    if proposal != name:
        own = proposal == f"model_{name}"
        why = "is reserved: names that begin with aot_ belong to the runtime" if own else "is not a lower-case C identifier"
        raise UsageError(Problem("E5003", f"'{printable(name)}' {why}; '{proposal}' would do"))
    return name


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
    """Raise E5005 if `folder` exists as a file; verbs check this before the long work."""
    there = next(p for p in (folder, *folder.absolute().parents) if os.path.lexists(p))
    if not there.is_dir():
        raise UsageError(Problem("E5005", f"'{printable(str(there))}' exists and is not a folder"))
