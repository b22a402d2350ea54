"""Generated C as a shared library of this machine, built once for each content."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from aot.errors import Problem, ToolchainError
from aot.support.data import data_folder
from aot.system.cache import cache_folder
from aot.system.files import write_error
from aot.system.process import require_output, run_program, version_of

FLAGS = ("-std=c99", "-O1", "-fPIC", "-shared", "-ffp-contract=off", "-DAOT_HOOKS=1")


def build_library(name: str, files: Mapping[str, str], *, cache: Path | None = None) -> Path:
    """The library made of the C files among `files` (by name; headers may be there too), `<name>-<digest>.so` in a cache.

    The library is kept in `cache`, by default in a folder that nobody else can write to (aot.system.cache).
    Raises ToolchainError E3001 without gcc, E3002 to E3006 when it fails; UsageError E5007, E5061 if it cannot be kept.
    """
    gcc = os.environ.get("AOT_GCC") or shutil.which("gcc")
    if gcc is None:
        raise ToolchainError(Problem("E3001", "gcc is not on PATH; on Debian: apt-get install gcc"))
    folder = cache if cache is not None else cache_folder("host")
    library = folder / f"{name}-{_digest(files, gcc)}.so"
    try:
        if not library.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            _compile(name, files, gcc, library)
    except OSError as error:
        raise write_error(folder, error) from None
    return library


def _digest(files: Mapping[str, str], gcc: str) -> str:
    state = hashlib.sha256()
    headers = {p.name: p.read_text(encoding="utf-8") for p in sorted((data_folder("crt") / "include" / "aot").glob("*.h"))}
    for part in (*FLAGS, version_of(gcc), *(t for item in sorted({**headers, **files}.items()) for t in item)):
        data = part.encode()
        state.update(len(data).to_bytes(8, "little") + data)
    return state.hexdigest()[:24]


def _compile(name: str, files: Mapping[str, str], gcc: str, library: Path) -> None:
    """Compile in a folder of its own and move the result into place, so that builds at the same time do not meet."""
    with tempfile.TemporaryDirectory(dir=library.parent) as temporary:
        folder = Path(temporary)
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8", newline="\n")
        sources = [f for f in sorted(files) if f.endswith(".c")]
        command = [
            gcc,
            *FLAGS,
            "-I.",
            "-isystem",
            "byoc/Include",
            f"-I{data_folder('crt') / 'include'}",
            *sources,
            "-lm",
            "-o",
            "library.so",
        ]
        done = run_program(command, cwd=folder)
        if done.code != 0:
            message = f"gcc refuses the generated sources of {name}:\n{done.err[-4000:]}"
            raise ToolchainError(Problem("E3002", message))
        require_output(folder / "library.so", gcc)
        (folder / "library.so").replace(library)
