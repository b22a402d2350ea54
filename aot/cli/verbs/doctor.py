"""`aot doctor`: what is installed, what is missing, and how to get it."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import typer

from aot.cli.options import JsonFlag, QuietFlag
from aot.cli.output import Output, paint
from aot.errors import EXIT_TOOLCHAIN
from aot.support.dataclass import dataclass
from aot.version import DISTRIBUTION

NAME = "doctor"


@dataclass(frozen=True, slots=True)
class Finding:
    """A program or package: `version` is empty if it is missing; `get` is the command that installs it."""

    name: str
    purpose: str
    needed: bool
    version: str
    get: str

    @property
    def ok(self) -> bool:
        return bool(self.version)


_OPTIONAL = {
    "ai-edge-litert": "the reference of aot verify",
    "tflite-micro": "the reference of aot verify --oracle tflm",
    "pytest": "the tests",
}

_PURPOSES = {
    "arm-none-eabi-gcc": ("building firmware", True),
    "arm-none-eabi-objdump": ("checking the image", True),
    "qemu-system-arm": ("running firmware on this machine", True),
    "gcc": ("--board host", True),
    "clang": ("checking generated C with a second compiler", False),
}


def required_packages() -> list[str]:
    """The Python packages that aot depends on, from pyproject.toml in a checkout, else from the installed metadata."""
    from importlib.metadata import PackageNotFoundError, requires

    checkout = Path(__file__).resolve().parents[3] / "pyproject.toml"
    try:
        lines = _dependencies(checkout) if checkout.is_file() else requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in lines if "extra ==" not in line]


def _dependencies(file: Path) -> list[str]:
    import tomllib

    project = tomllib.loads(file.read_text(encoding="utf-8")).get("project", {})
    return list(project["dependencies"]) if project.get("name") == DISTRIBUTION else []


def _packages() -> list[Finding]:
    from importlib.metadata import PackageNotFoundError, version

    findings = []
    required = [(name, "the compiler", True) for name in required_packages()]
    for name, purpose, needed in [*required, *((n, p, False) for n, p in _OPTIONAL.items())]:
        try:
            have = version(name)
        except PackageNotFoundError:
            have = ""
        findings.append(Finding(name, purpose, needed, have, f"{sys.executable} -m pip install {name}"))
    return findings


def _tools() -> list[Finding]:
    from aot.errors import ToolchainError
    from aot.micro.build.toolchain import find_tool, how_to_get, known_tools

    findings = []
    for name in known_tools():
        purpose, needed = _PURPOSES.get(name, ("tool chain", False))
        try:
            have = find_tool(name).version
        except ToolchainError:
            have = ""
        findings.append(Finding(name, purpose, needed, have, how_to_get(name)))
    return findings


def examine() -> list[Finding]:
    """Everything that aot can use, most important first; runs each program with --version."""
    python = Finding("python", "the compiler", True, platform.python_version(), "apt-get install python3")
    return [python, *_tools(), *_packages()]


def _show(out: Output, findings: Sequence[Finding]) -> None:
    for f in findings:
        mark = paint("ok     ", "green") if f.ok else (paint("MISSING", "red") if f.needed else "absent ")
        out.line(f" {mark}  {f.name:<22} {f.version or f'for {f.purpose}; to install: {f.get}'}")
    missing = [f for f in findings if f.needed and not f.ok]
    out.line()
    cache = _cache()
    out.line(f"cached models: {cache['entries']}, {int(cache['bytes']) / (1 << 20):.1f} MiB, in {cache['folder']}")
    out.line(f"kernel and plan cache: {int(cache['facts_bytes']) / (1 << 20):.1f} MiB")
    records = _records()
    out.line(f"tuning records for --tuning tophub: {records['count']}")
    for note in records["notes"]:
        out.line(f"  {note}")
    out.line(f"{len(missing)} missing" if missing else "ready: check, compile, build, run and verify all work on this machine")


def _records() -> dict[str, Any]:
    """The package's tuning records: how many are valid for the current kernels, and notes on the ones left out."""
    from aot.tune.tophub import load_tophub

    records = load_tophub()
    return {"count": len(records.history.rows), "notes": list(records.notes)}


def _cache() -> dict[str, str | int]:
    from aot.driver.model_cache import LIMIT, usage
    from aot.system import disk_memo

    folder, count, size = usage()
    return {"folder": str(folder), "entries": count, "bytes": size, "limit": LIMIT, "facts_bytes": disk_memo.usage()[1]}


def command(*, as_json: JsonFlag = False, quiet: QuietFlag = False) -> None:
    """Check that everything aot needs is installed; say how to get what is missing."""
    out = Output(json=as_json, quiet=quiet)
    findings = examine()
    ok = all(f.ok for f in findings if f.needed)
    _show(out, findings)
    out.result({"ok": ok, "findings": [{**asdict(f), "ok": f.ok} for f in findings], "cache": _cache(), "records": _records()})
    if not ok:
        raise typer.Exit(EXIT_TOOLCHAIN)
