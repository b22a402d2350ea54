"""One file an operator. `load_all` imports them all, which fills the registries."""

from __future__ import annotations

import importlib
import pkgutil

_NOT_OPERATORS = frozenset({"convert", "impl", "te_rule"})


def load_all() -> None:
    """Import every operator file of this folder, in sorted order."""
    for info in sorted(pkgutil.iter_modules(__path__), key=lambda i: i.name):
        if info.name not in _NOT_OPERATORS and not info.name.startswith("_"):
            importlib.import_module(f"{__name__}.{info.name}")
