"""A model as a user names it: a .tflite file, or a chain, which is a TOML file that names several models (docs/streaming.md)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aot.driver.reading import NamedBytes, read_limited, read_named
from aot.errors import Problem, UsageError
from aot.frontend.chain import Chain, Stage, pack
from aot.support.names import model_identifier
from aot.support.text import did_you_mean, printable
from aot.support.untrusted import parse_toml

SUFFIX = ".toml"
LARGEST = 1 << 16
"""The most bytes that the TOML file may have."""

_CHAIN_KEYS = {"rate": (int, float), "stage": (list,)}
_STAGE_KEYS = {"model": (str,), "slide": (int,), "axis": (int,), "output": (str,)}
_WORDS = {int: "a whole number", float: "a number", str: "text", list: "tables [[stage]]"}


def read_model(path: Path) -> NamedBytes:
    """The bytes that are compiled: the file, or a chain together with its stages (E5001, E5002, E1300)."""
    if path.suffix.lower() != SUFFIX:
        return read_named(path)
    return NamedBytes(path, pack(read_chain(path)))


def read_chain(path: Path) -> Chain:
    """The chain in a TOML file; paths of models are relative to its folder (E1300 with all problems, E5001)."""
    try:
        table = parse_toml(read_limited(path, limit=LARGEST))
    except ValueError as error:
        raise UsageError(_problem(path, f"is no TOML: {error}")) from None
    problems = _wrong_keys(path, table, _CHAIN_KEYS, "")
    rows = table.get("stage", [])
    if not problems and not rows:
        problems.append(_problem(path, 'has no [[stage]]; each names a model = "FILE.tflite"'))
    for number, row in enumerate(rows if isinstance(rows, list) else ()):
        problems += _wrong_stage(path, row, f"stage {number}")
    rate = table.get("rate")
    if not problems and rate is not None and not 0 < rate < 1e12:
        problems.append(_problem(path, f"rate = {rate}: give the elements a second, above 0"))
    if problems:
        raise UsageError(*problems)
    names: list[str] = []
    for row in rows:
        stem = model_identifier(Path(row["model"]).stem)
        names.append(stem if stem not in names else f"{stem}_{len(names)}")
    stages = (_stage(path.parent, row, name) for row, name in zip(rows, names, strict=True))
    return Chain(tuple(stages), None if rate is None else float(rate))


def _stage(folder: Path, row: Mapping[str, Any], name: str) -> Stage:
    return Stage(name, read_limited(folder / row["model"]), row.get("slide"), row.get("axis", 1), row.get("output"))


def _wrong_stage(path: Path, row: Any, where: str) -> list[Problem]:
    if not isinstance(row, Mapping):
        return [_problem(path, f"{where} is no table; begin it with [[stage]]")]
    found = _wrong_keys(path, row, _STAGE_KEYS, where)
    if "model" not in row:
        found.append(_problem(path, f'{where} has no model = "FILE.tflite"'))
    if not found and row.get("slide", 1) < 1:
        found.append(_problem(path, f"{where}: slide = {row['slide']}: a window moves by one row at least"))
    return found


def _wrong_keys(path: Path, table: Mapping[str, Any], known: Mapping[str, tuple[type, ...]], where: str) -> list[Problem]:
    found, before = [], f"{where}: " if where else ""
    for key, value in table.items():
        if key not in known:
            message = f"{before}there is no {printable(key)}{did_you_mean(key, known)}; known are {', '.join(known)}"
            found.append(_problem(path, message))
        elif not isinstance(value, known[key]) or isinstance(value, bool):
            found.append(_problem(path, f"{before}{key} is {_WORDS[known[key][-1]]}"))
    return found


def _problem(path: Path, message: str) -> Problem:
    return Problem("E1300", message, printable(path.name))
