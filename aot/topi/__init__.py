"""Kernels. `load_all` imports them all, which registers them with the op strategy."""

from __future__ import annotations

import importlib
import pkgutil


def load_all() -> None:
    """Import every kernel file of every instruction set, in sorted order."""
    for package in sorted(pkgutil.iter_modules(__path__), key=lambda i: i.name):
        if package.ispkg:
            folder = importlib.import_module(f"{__name__}.{package.name}")
            for info in sorted(pkgutil.iter_modules(folder.__path__), key=lambda i: i.name):
                importlib.import_module(f"{folder.__name__}.{info.name}")
