"""Kernels. `load_all` imports them all, which registers them with the op strategy."""

from __future__ import annotations

import importlib
import pkgutil


def load_all() -> None:
    """Import every kernel file of every instruction set, in sorted order."""
    for name in sorted(info.name for info in pkgutil.walk_packages(__path__, f"{__name__}.")):
        importlib.import_module(name)
