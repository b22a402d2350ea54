"""What docs/stability.md promises, as lines of text: none of them may cease to be true unnoticed."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer.main

import aot
from aot import errors
from aot.cli.app import make_app
from aot.driver.options import Options
from aot.errors.explanations import codes

ROOT = Path(__file__).resolve().parent.parent
PROMISED = ROOT / "tests" / "golden" / "interface.txt"
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


def command_line() -> Iterator[str]:
    program: Any = typer.main.get_command(make_app())
    for name, verb in program.commands.items():
        yield f"aot {name}"
        for p in verb.params:
            for option in (*p.opts, *p.secondary_opts) if p.param_type_name == "option" else ():
                value = "" if p.is_flag or p.count else f" = {p.default!r}" if p.default not in (None, ()) else " VALUE"
                yield f"aot {name} {option}{value}"


def schema_keys(schema: Mapping[str, Any], place: str) -> Iterator[str]:
    """`place.key: type` for every key of a JSON Schema, those of parts included."""
    for key, part in sorted(schema.get("properties", {}).items()):
        kind = part.get("type", "any")
        yield f"{place}.{key}: {kind if isinstance(kind, str) else ' or '.join(kind)}"
        yield from schema_keys(part, f"{place}.{key}")
        yield from schema_keys(part.get("items", {}) if isinstance(part.get("items"), dict) else {}, f"{place}.{key}[]")


def schemas() -> Iterator[str]:
    for path in sorted((ROOT / "aot" / "report" / "figures" / "schema").glob("*.json")):
        yield from schema_keys(json.loads(path.read_text(encoding="utf-8")), path.name.removesuffix(".schema.json"))
    for name, values in (("metadata.json", aot.build(DIGITS).metadata),):
        yield from (f"{name} {key}: {type(values[key]).__name__}" for key in sorted(values))


def header(text: str) -> Iterator[str]:
    """Functions, structs and macros that a header declares, without comments and without the values of macros."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for struct, fields in re.findall(r"^struct (\w+) \{\n(.*?)^\};", text, flags=re.DOTALL | re.MULTILINE):
        yield from (f"digits.h struct {struct}: {field.strip()}" for field in fields.splitlines() if field.strip())
    for line in re.sub(r"\\\n", "", text).splitlines():
        found = re.match(r"#define (\w+(?:\([^)]*\))?)", line) or re.match(r"[a-z][\w *]*\(.*\);$", line)
        if found and not line.startswith(("extern", "#define AOT_ALIGN")):
            yield f"digits.h {found[1] if line.startswith('#') else ' '.join(line.split())}"


def promised() -> list[str]:
    lines = [*command_line(), *(f"exit {k} = {v}" for k, v in vars(errors).items() if k.startswith("EXIT_"))]
    lines += [f"error {code}" for code in codes()]
    lines += [f"aot.{name}" for name in aot.__all__]
    lines += [f"aot.build option {name}" for name in inspect.signature(Options).parameters]
    lines += schemas()
    for io in ("arena", "user"):
        lines += header(aot.build(DIGITS, options=Options(io=io)).files["digits.h"])
    status = (ROOT / "crt" / "include" / "aot" / "status.h").read_text(encoding="utf-8")
    lines += [f"status.h {name} = {value}" for name, value in re.findall(r"(AOT_\w+) = (-?\d+)", status)]
    return list(dict.fromkeys(lines))


def test_what_was_promised_is_still_there(pytestconfig: pytest.Config) -> None:
    """Lines that are new are no fault: they are promised with the next release."""
    now = promised()
    if pytestconfig.getoption("--update-golden"):
        PROMISED.write_text("\n".join(now) + "\n", encoding="utf-8")
    gone = set(PROMISED.read_text(encoding="utf-8").splitlines()) - set(now)
    assert not gone, "\n".join(["docs/stability.md says what to do when these change:", *sorted(gone)])


def test_the_list_is_not_empty_in_any_part() -> None:
    text = PROMISED.read_text(encoding="utf-8")
    for line in (
        "aot compile --board VALUE", "aot compile --opt = 'balanced'", "exit EXIT_MODEL = 3", "error E1203", "aot.build",
        "digits.h DIGITS_WORKSPACE_SIZE", "digits.h struct digits_inputs: const int8_t *input;",
        "digits.h int32_t digits_run(", "metadata.json inputs: list", "aot-report-3.",
        "status.h AOT_ERROR_NULL = ",
    ):  # fmt: skip
        assert f"\n{line}" in f"\n{text}", line
