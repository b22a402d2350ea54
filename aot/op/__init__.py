"""One file an operator, imported when something asks for the operator or for its converter; `load_all` imports them all."""

from __future__ import annotations

import importlib
import pkgutil

from aot.op.operator_index import CONVERTERS, OPERATORS

_NOT_OPERATORS = frozenset({"common", "convert", "operator_index", "te_rule"})


def load(name: str) -> None:
    """Import the file that registers an operator, if it is one of ours."""
    if name in OPERATORS:
        importlib.import_module(f"{__name__}.{OPERATORS[name]}")


def load_converter(opcode: str) -> None:
    """Import the file that has the converter of an operator of TensorFlow Lite, if there is one."""
    if opcode in CONVERTERS:
        importlib.import_module(f"{__name__}.{CONVERTERS[opcode]}")


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
