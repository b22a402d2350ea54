"""Plug-ins: Python files, or installed packages of the entry-point group `aot.plugins`, that register things of their own.

What can be registered: operators (`aot.ir.op.register_op`, `aot.op.convert.from_tflite`), kernels (`register_impl` of
`aot.topi.strategy`), targets and boards (`register_core`, `register_boards`), passes (`register_pass`), external
code generators (`aot.byoc.register_external_codegen`) and oracles (`register_oracle`).
"""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from aot.errors import AotError, Problem, UsageError

GROUP = "aot.plugins"

_LOADED: dict[str, str] = {}
"""What has been loaded: entry point's name or file's path -> the error it ended with, empty for none."""


def any_loaded() -> bool:
    """Whether a plug-in may have changed what the compiler does."""
    return bool(_LOADED)


def load_installed() -> tuple[str, ...]:
    """Load the plug-ins of installed packages, each once in a process; their names.

    An entry point names a module, which registers things when it is imported, or a function, which is called without arguments.
    UsageError E5110 names a plug-in that fails.
    """
    found = sorted(entry_points(group=GROUP), key=lambda e: e.name)
    for point in found:
        if point.name not in _LOADED:
            _run(point.name, lambda point=point: _enter(point))  # type: ignore[misc]
        elif _LOADED[point.name]:
            raise UsageError(Problem("E5110", _LOADED[point.name], f"plug-in {point.name}"))
    return tuple(e.name for e in found)


def load_file(path: Path) -> None:
    """Run a plug-in's file, once in a process; UsageError E5110 if it fails, E5111 if there is no such file."""
    try:
        key = str(path.resolve())
        missing = not path.is_file()
    except (OSError, ValueError):
        key, missing = str(path), True
    if missing or path.suffix != ".py":
        raise UsageError(Problem("E5111", f"--plugin {path}: name a Python file that exists"))
    if key not in _LOADED:
        _run(path.name, lambda: _execute(path), key=key)


def _enter(point: EntryPoint) -> None:
    loaded = point.load()
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
        action()
    except AotError as error:
        _LOADED[key or name] = str(error.problems[0])
        raise
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "aot/driver/plugins.py" not in f.filename]
        place = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
        message = f"fails{place}: {type(error).__name__}: {error}"
        _LOADED[key or name] = message
        raise UsageError(Problem("E5110", message, f"plug-in {name}")) from error
