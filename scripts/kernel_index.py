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
from textwrap import wrap

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "aot" / "topi" / "kernel_index.py"

HEAD = '''"""For each file of aot/topi the operators whose groups its kernels may run; "*": any group.

Written by scripts/kernel_index.py, which imports all of them.
"""

from __future__ import annotations

OPERATORS = {
'''

TAIL = '''}

FILES: dict[str, tuple[str, ...]] = {}
"""For each operator the files whose kernels may run groups anchored at it."""
for _file, _operators in OPERATORS.items():
    for _operator in _operators.split():
        FILES[_operator] = (*FILES.get(_operator, ()), _file)
'''


def operators() -> dict[str, list[str]]:
    """The operators for which importing a module of aot.topi registers kernels, by the module's name without that prefix."""
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
        if impl.anchor not in found.setdefault(file, []):
            found[file].append(impl.anchor)
        return entered(impl)

    strategy.register_impl = register_impl
    for info in sorted(pkgutil.walk_packages(topi.__path__, "aot.topi."), key=lambda i: i.name):
        importlib.import_module(info.name)
    return {file: sorted(found[file]) for file in sorted(found)}


def text() -> str:
    """The file as it should be."""
    lines = []
    for file, names in operators().items():
        first, *others = wrap(" ".join(names), 116 - (len(file) if len(" ".join(names)) < 116 - len(file) else 0))
        if others:
            parts = [f'        "{part} "\n' for part in (first, *others[:-1])] + [f'        "{others[-1]}"\n']
            lines.append(f'    "{file}": (\n{"".join(parts)}    ),\n')
        else:
            lines.append(f'    "{file}": "{first}",\n')
    return HEAD + "".join(lines) + TAIL


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    from scripts.written import main

    sys.exit(main(__file__, lambda: {INDEX: text()}))
