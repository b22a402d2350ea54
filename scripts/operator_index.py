#!/usr/bin/env python3
"""Which file of aot/op registers which operator and converter, so that a compilation imports only those of its model.

python scripts/operator_index.py            compare with aot/op/operator_index.py; exit 1 where that is not current
python scripts/operator_index.py --write    write it
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "aot" / "op" / "operator_index.py"

HEAD = '''"""The file of aot/op that registers an operator, with all that is entered under its name, and the one of a converter.

Written by scripts/operator_index.py, which imports all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

'''


def _file() -> str:
    """The file of aot/op that is being imported, without that prefix; empty if there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if frame.f_code.co_name == "<module>" and module.startswith("aot.op."):
            return module.removeprefix("aot.op.")
        frame = frame.f_back
    return ""


def files() -> tuple[dict[str, str], dict[str, str]]:
    """Files by what they enter into attribute maps, and by the operators of TensorFlow Lite that they convert."""
    from aot import op
    from aot.ir.attr_map import AttrMap
    from aot.op import convert
    from aot.relay.construct import F_CONSTRUCT

    operators: dict[str, set[str]] = {}
    converters: dict[str, set[str]] = {}
    entered, registered = AttrMap.set, convert.from_tflite

    def enter(self: AttrMap[Any], name: str, value: Any, *, plevel: int = 10) -> None:
        if self is not F_CONSTRUCT:  # all those are in one file, which is imported when a constructor is asked for
            operators.setdefault(name, set()).add(_file())
        entered(self, name, value, plevel=plevel)

    def register(opcode: str, types: str, through: str, *, oracle: str = "LiteRT") -> Any:
        converters.setdefault(opcode, set()).add(_file())
        return registered(opcode, types, through, oracle=oracle)

    AttrMap.set, convert.from_tflite = enter, register  # type: ignore[method-assign]
    op.load_all()
    return _single(operators), _single(converters)


def _single(found: dict[str, set[str]]) -> dict[str, str]:
    several = {name: sorted(places) for name, places in found.items() if len(places) > 1}
    assert not several, f"all that belongs to an operator is in one file: {several}"
    return {name: found[name].pop() for name in sorted(found)}


def text() -> str:
    """The file as it should be."""
    parts = []
    for title, found in zip(("OPERATORS", "CONVERTERS"), files(), strict=True):
        lines = "".join(f'    "{name}": "{file}",\n' for name, file in found.items() if file)
        parts.append(f"{title}: Mapping[str, str] = {{\n{lines}}}\n")
    return HEAD + "\n".join(parts)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from scripts.written import main

    sys.exit(main(__file__, lambda: {INDEX: text()}))
