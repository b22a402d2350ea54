"""Kernels.  `load_all` imports them all, which registers them."""

from __future__ import annotations

import importlib
import pkgutil


def load_all() -> None:
    """Import the kernel files of every instruction set, in sorted order."""
    for name in sorted(info.name for info in pkgutil.walk_packages(__path__, f"{__name__}.")):
        importlib.import_module(name)
