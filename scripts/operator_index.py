#!/usr/bin/env python3
"""Which file registers which operator or converter, so that a compilation imports only those of its model.

python scripts/operator_index.py            compare with the two indexes; exit 1 if one is out of date
python scripts/operator_index.py --write    write them
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OPERATORS, CONVERTERS = "aot.op", "aot.frontend.tflite"

TEXT = '''"""The file of {package} {what}.

Written by scripts/operator_index.py, which imports all of them.
"""

from __future__ import annotations

{name} = {{
    name: file
    for file, *names in map(
        str.split,
        """
{lines}
""".strip().splitlines(),
    )
    for name in names
}}
"""Name -> file."""
'''


def _file(package: str) -> str:
    """The file of the package that is being imported, without that prefix; empty if there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == "<module>" and module.startswith(f"{package}."):
            return module.removeprefix(f"{package}.")
        frame = frame.f_back
    return ""


def _import_all(package: str) -> None:
    for info in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        if not info.name.rpartition(".")[2].startswith("_"):
            importlib.import_module(info.name)


def files() -> tuple[dict[str, str], dict[str, str]]:
    """Files by their entries in attribute maps, and by the operators of TensorFlow Lite that they convert."""
    from aot.ir.op import AttrMap
    from aot.op.operator_index import OPERATORS as OLD
    from aot.relay.construct import F_CONSTRUCT

    OLD.clear()  # files may have moved since
    operators: dict[str, set[str]] = {}
    converters: dict[str, set[str]] = {}
    entered = AttrMap.set

    def enter(self: AttrMap[Any], name: str, value: Any, *, plevel: int = 10) -> None:
        if self is not F_CONSTRUCT:  # these are all in one file, imported when a constructor is used
            operators.setdefault(name, set()).add(_file(OPERATORS))
        entered(self, name, value, plevel=plevel)

    def register(opcode: str, types: str, through: str, **kwargs: Any) -> Any:
        converters.setdefault(opcode, set()).add(_file(CONVERTERS))
        return registered(opcode, types, through, **kwargs)

    AttrMap.set = enter  # type: ignore[method-assign]
    from aot.frontend.tflite import convert
    from aot.frontend.tflite.converter_index import FILES

    FILES.clear()
    registered = convert.converter
    convert.converter = register
    _import_all(OPERATORS)
    _import_all(CONVERTERS)
    return _single(operators), _single(converters)


def _single(found: dict[str, set[str]]) -> dict[str, str]:
    several = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    assert not several, f"everything of an operator must be in one file: {several}"
    return {name: found[name].pop() for name in sorted(found)}


def _lines(index: dict[str, str]) -> str:
    """One or more lines for each file and its names."""
    lines = []
    for file in sorted(set(index.values()) - {""}):
        wrapper = textwrap.TextWrapper(128 - len(file), break_long_words=False, break_on_hyphens=False)
        lines += [f"{file} {part}" for part in wrapper.wrap(" ".join(name for name in index if index[name] == file))]
    return "\n".join(lines)


def texts() -> dict[Path, str]:
    """The files as they should be."""
    operators, converters = (_lines(index) for index in files())
    entered = "that registers an operator and everything under its name"
    return {
        ROOT / "aot/op/operator_index.py": TEXT.format(package=OPERATORS, what=entered, name="OPERATORS", lines=operators),
        ROOT / "aot/frontend/tflite/converter_index.py": TEXT.format(
            package=CONVERTERS, what="that converts an operator of TensorFlow Lite", name="FILES", lines=converters
        ),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from scripts.written import main

    sys.exit(main(__file__, texts))
