"""Reading what the user names, writing what he asked for: whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from aot.cli.output_folder import encoded
from aot.errors import Problem, UsageError
from aot.support.names import is_keyword, model_identifier, name_fault
from aot.support.text import printable
from aot.system.files import write_error


def model_name(path: Path, name: str | None) -> str:
    """The prefix of all C symbols: what the user asks for (E5003 if it is no such name), or one made of the file's name."""
    if name is None:
        return model_identifier(path.stem)
    proposal = model_identifier(name)
    if proposal != name:
        raise UsageError(Problem("E5003", f"'{printable(name)}' {_name_fault(name)}; '{proposal}' would do"))
    return name


def _name_fault(name: str) -> str:
    """Why a name cannot be the prefix of symbols."""
    fault = name_fault(name, symbol=True)
    if not fault and name != name.lower():
        fault = "must be lower case"
    if not fault and name.split("_")[0] == "aot":
        fault = "is reserved: names that begin with aot_ belong to the runtime"
    if not fault and is_keyword(name):
        fault = "is reserved: it means something else in C or C++"
    return fault or "must have no _ at an end and none beside another"


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
