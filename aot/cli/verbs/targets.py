"""`aot targets`: the cores that aot can generate code for."""

from __future__ import annotations

from aot.cli.options import JsonFlag, QuietFlag, load_plugins
from aot.cli.output import Output

NAME = "targets"


def command(*, as_json: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """List the processor cores for --target."""
    from aot.target.cpu import CORES

    load_plugins()
    out = Output(json=as_json, quiet=quiet)
    rows = [
        {"name": t.name, "description": t.description, "features": sorted(t.features), "gcc_flags": list(t.gcc_flags)}
        for t in CORES.values()
    ]
    out.table(("target", "features", "what"), [(r["name"], " ".join(r["features"]) or "-", r["description"]) for r in rows])
    out.result({"targets": rows})
