"""The project's own scripts as modules, to be tested."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "scripts"


def script(name: str) -> ModuleType:
    """scripts/NAME.py, executed anew."""
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # its dataclasses look for themselves there
    spec.loader.exec_module(module)
    return module
