"""`aot ops`: the operators that this version compiles, read from the registries."""

from __future__ import annotations

from typing import Any

from aot.cli.options import JsonFlag, QuietFlag
from aot.cli.output import Output

NAME = "ops"


def operator_rows() -> list[dict[str, Any]]:
    """One entry per TensorFlow Lite operator: its name, the file that implements it, what that file says of it."""
    import sys

    from aot.op import load_all
    from aot.op.convert import CONVERTERS

    load_all()
    rows = []
    for name in sorted(CONVERTERS):
        module = CONVERTERS[name].__module__
        doc = (sys.modules[module].__doc__ or "").strip().splitlines()
        oracles = getattr(sys.modules[module], "ORACLES", ("litert", "tflm"))
        rows.append(
            {"operator": name, "file": module.replace(".", "/") + ".py", "oracles": list(oracles), "doc": doc[0] if doc else ""}
        )
    return rows


def command(*, as_json: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """List the TensorFlow Lite operators that can be compiled."""
    out = Output(json=as_json, quiet=quiet)
    rows = operator_rows()
    out.table(("operator", "exact to", "what"), [(r["operator"], ", ".join(r["oracles"]), r["doc"]) for r in rows])
    out.line(f"{len(rows)} operators")
    out.result({"operators": rows})
