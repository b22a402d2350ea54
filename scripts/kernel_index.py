#!/usr/bin/env python3
"""Which files of aot/topi make kernels for which operators, so that a compilation imports only those that it needs.

python scripts/kernel_index.py            compare with aot/topi/kernel_index.py; exit 1 if it is out of date
python scripts/kernel_index.py --write    write it
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "aot" / "topi" / "kernel_index.py"

HEAD = '''"""For each operator the files whose kernels may run groups anchored at it; "*": any group.

Written by scripts/kernel_index.py, which imports all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

FILES: Mapping[str, tuple[str, ...]] = {
'''


def files() -> dict[str, list[str]]:
    """The modules of aot.topi, without that prefix, by the operators for which importing them registers kernels."""
    from aot import op, topi
    from aot.topi import strategy

    op.load_all()
    found: dict[str, list[str]] = {}
    entered = strategy.register_impl

    def register_impl(impl: strategy.OpImplementation) -> strategy.OpImplementation:
        frame = sys._getframe(1)
        while frame.f_code.co_name != "<module>" or not frame.f_globals["__name__"].startswith("aot.topi."):
            assert frame.f_back is not None
            frame = frame.f_back
        file = frame.f_globals["__name__"].removeprefix("aot.topi.")
        if file not in found.setdefault(impl.anchor, []):
            found[impl.anchor].append(file)
        return entered(impl)

    strategy.register_impl = register_impl
    for info in sorted(pkgutil.walk_packages(topi.__path__, "aot.topi."), key=lambda i: i.name):
        importlib.import_module(info.name)
    return {anchor: sorted(found[anchor]) for anchor in sorted(found)}


def text() -> str:
    """The file as it should be."""
    lines = []
    for anchor, names in files().items():
        inside = ", ".join(f'"{n}"' for n in names) + ("," if len(names) == 1 else "")
        line = f'    "{anchor}": ({inside}),\n'
        if len(line) > 131:
            line = f'    "{anchor}": (\n' + "".join(f'        "{n}",\n' for n in names) + "    ),\n"
        lines.append(line)
    return HEAD + "".join(lines) + "}\n"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from scripts.written import main

    sys.exit(main(__file__, lambda: {INDEX: text()}))
