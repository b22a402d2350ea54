"""Plug-ins: Python files, or installed packages in the entry-point group `aot.plugins`, that register their own extensions.

They can register operators (`aot.ir.op.register_op`), converters (`aot.frontend.tflite.convert.converter`), kernels
(`register_impl` of `aot.topi.strategy`), targets and boards (`register_core`, `register_boards`), passes (`register_pass`),
external code generators (`aot.byoc.register_external_codegen`) and oracles (`register_oracle`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from aot.errors import AotError, Problem, UsageError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "aot.plugins"

_LOADED: dict[str, str] = {}
"""Loaded plug-ins: entry point's name or file's path -> the error it ended with, empty if there was none."""

_PLACES: dict[str, str] = {}
"""Where plug-ins' code is: a file or a package's folder -> the plug-in's name."""


def any_loaded() -> bool:
    """Whether a plug-in may have changed what the compiler does."""
    return bool(_LOADED)


def load_installed() -> tuple[str, ...]:
    """Load the plug-ins of installed packages, each once per process, and return their names.

    An entry point names a module, which registers things when it is imported, or a function, which is called without arguments.
    UsageError E5110 names a plug-in that fails.
    """
    if not _may_be_installed():
        return ()
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=GROUP), key=lambda e: e.name)
    for point in found:
        if point.name not in _LOADED:
            _run(point.name, lambda point=point: _enter(point))  # type: ignore[misc]
        elif _LOADED[point.name]:
            raise UsageError(Problem("E5110", _LOADED[point.name], f"plug-in {point.name}"))
    return tuple(e.name for e in found)


def _may_be_installed() -> bool:
    """Whether importlib.metadata could find an entry point of `aot.plugins`; importing it would take longer than this search."""
    if any(hasattr(f, "find_distributions") and f is not PathFinder for f in sys.meta_path):
        return True
    return any(GROUP.encode() in text for folder in sys.path for text in _entry_points_of(folder or os.curdir))


def _entry_points_of(folder: str) -> Iterator[bytes]:
    """The entry-point files of the packages installed in a folder or an archive."""
    if os.path.isfile(folder):
        yield GROUP.encode()  # an archive: importlib.metadata can read it
        return
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if name.lower().endswith((".dist-info", ".egg-info", ".egg")):
            for place in ("entry_points.txt", "EGG-INFO/entry_points.txt"):
                try:
                    with open(f"{folder}/{name}/{place}", "rb") as file:
                        yield file.read()
                except OSError:
                    continue


def load_file(path: Path) -> None:
    """Run a plug-in's file, once per process; UsageError E5110 if it fails, E5111 if the file does not exist."""
    try:
        key = str(path.resolve())
        missing = not path.is_file()
    except (OSError, ValueError):
        key, missing = str(path), True
    if missing or path.suffix != ".py":
        raise UsageError(Problem("E5111", f"--plugin {path}: name a Python file that exists"))
    if key not in _LOADED:
        _PLACES[key] = path.name
        _run(path.name, lambda: _execute(path), key=key)


def blame(error: BaseException) -> Problem | None:
    """E5110 if a plug-in's own line raised the error, in one of its passes for example; None for other errors."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return None
    path = Path(frames[-1].filename)
    name = next((_PLACES[str(p)] for p in (path, *path.parents) if str(p) in _PLACES), None)
    return None if name is None else Problem("E5110", _failure(error, frames), f"plug-in {name}")


def _failure(error: BaseException, frames: Sequence[traceback.FrameSummary]) -> str:
    place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"fails{place}: {type(error).__name__}: {error}"


def _enter(point: EntryPoint) -> None:
    loaded = point.load()
    source = getattr(sys.modules.get(point.module.partition(".")[0]), "__file__", None)
    if source is not None:
        package = Path(source)
        _PLACES[str(package.parent if package.name == "__init__.py" else package)] = point.name
    if callable(loaded):
        loaded()


def _execute(path: Path) -> None:
    name = f"aot_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _run(name: str, action: Callable[[], None], *, key: str = "") -> None:
    _LOADED[key or name] = ""
    try:
        with redirect_stdout(sys.stderr):  # standard output belongs to the verb
            action()
    except AotError as error:
        _LOADED[key or name] = str(error.problems[0])
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # sys.exit too: a plug-in must not end the command
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "aot/driver/plugins.py" not in f.filename]
        message = _failure(error, frames)
        _LOADED[key or name] = message
        raise UsageError(Problem("E5110", message, f"plug-in {name}")) from error
