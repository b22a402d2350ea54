"""One file an operator. `load_all` imports them all, which fills the registries."""

from __future__ import annotations

import importlib
import pkgutil

_NOT_OPERATORS = frozenset({"common", "convert", "te_rule"})


def load_all() -> None:
    """Import every operator file, sorted by its own name whatever folder it lies in."""
    found = [(info.name, f"{__name__}.{info.name}", info.ispkg) for info in pkgutil.iter_modules(__path__)]
    files = [(name, module) for name, module, is_folder in found if not is_folder]
    for name, module, is_folder in found:
        if is_folder and name not in _NOT_OPERATORS:
            folder = importlib.import_module(module)
            files += [(info.name, f"{module}.{info.name}") for info in pkgutil.iter_modules(folder.__path__)]
    for name, module in sorted(files):
        if name not in _NOT_OPERATORS and not name.startswith("_"):
            importlib.import_module(module)
