"""Every public name says what it is: its parameters, and shapes, units and errors where it has them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from aot.errors import Problem, UsageError

ROOT = Path(__file__).resolve().parent.parent
MODULES = ("aot", "aot.te", "aot.target", "aot.runtime", "aot.tir.schedule", "aot.ir.transform", "aot.ir.instrument")
_IMPORT = re.compile(r"from (aot[\w.]*) import ([\w, ]+)")


def exported() -> Iterator[tuple[str, Any]]:
    """(name, value) of what packages export, and of what the pages import."""
    for module in MODULES:
        found = import_module(module)
        for name in getattr(found, "__all__", ()):
            if not name.startswith("__"):
                yield f"{module}.{name}", getattr(found, name)
    for page in (ROOT / "docs").glob("*.md"):
        for module, names in _IMPORT.findall(page.read_text(encoding="utf-8")):
            for name in names.split(","):
                if name.strip() and name.strip().isidentifier():
                    yield (
                        f"{module}.{name.strip()}",
                        getattr(import_module(module), name.strip(), None) or import_module(f"{module}.{name.strip()}"),
                    )


def members(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The value itself; of a class its public methods and properties too, inherited ones of other packages left out."""
    yield name, value
    if inspect.isclass(value):
        for key, member in vars(value).items():
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if not key.startswith("_") and (inspect.isfunction(plain) or isinstance(plain, property)):
                yield f"{name}.{key}", plain


PUBLIC = sorted({n: v for name, value in exported() for n, v in members(name, value)}.items())


def fails(function: Any) -> bool:
    """Whether a function raises an error of ours by itself."""
    try:
        return bool(re.search(r"raise (UsageError|_wrong|ScheduleError|ToolchainError)\b", inspect.getsource(function)))
    except (OSError, TypeError):
        return False


def unnamed(value: Any) -> list[str]:
    """Parameters of a function that its docstring leaves out; `*args` and `**keywords` are named as a whole."""
    if not inspect.isfunction(value):
        return []
    text = inspect.getdoc(value) or ""
    given = [p.name for p in inspect.signature(value).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return [p for p in given if p not in ("self", "cls") and not re.search(rf"\b{re.escape(p.rstrip('_'))}s?\b", text)]


def faults(name: str, value: Any) -> Iterator[str]:
    """What a docstring lacks."""
    text = inspect.getdoc(value) or ""
    generated = inspect.isclass(value) and text.startswith(f"{value.__name__}(")  # what dataclasses make up
    if len(text.split()) < 3 or generated:
        yield f"{name} has no docstring of its own"
    if inspect.isfunction(value) and fails(value) and not re.search(r"E\d{4}|Error", text):
        yield f"{name} raises, and does not say so"
    for parameter in unnamed(value):
        yield f"{name} does not say what {parameter} is"
    unit = re.search(r"\b(bytes?|seconds|elements|B)\b", text, re.IGNORECASE)
    if re.search(r"(_bytes|_budget|timeout|size)\b", name.rpartition(".")[2]) and not unit:
        yield f"{name} is a quantity without a unit"


def test_every_public_name_says_what_it_is() -> None:
    found = [fault for name, value in PUBLIC for fault in faults(name, value)]
    assert not found, "\n".join(found)


def test_faults_are_found() -> None:
    def silent() -> None:
        raise UsageError(Problem("E5074", "x"))

    def stack_bytes() -> None:
        """How deep it was at most."""

    def split(axis: int, factor: int) -> None:
        """Make two loops of one, with factor iterations inside."""

    assert list(faults("a.split", split)) == ["a.split does not say what axis is"]
    assert list(faults("a.silent", silent)) == ["a.silent has no docstring of its own", "a.silent raises, and does not say so"]
    assert list(faults("a.stack_bytes", stack_bytes)) == ["a.stack_bytes is a quantity without a unit"]


def test_there_are_names_to_look_at() -> None:
    assert len(PUBLIC) > 120
    assert {"aot.report", "aot.build", "aot.te.Stage.split", "aot.HostModel.run"} <= {n for n, _ in PUBLIC}
