"""Reading the tables of a TOML file, with every problem noted, so that all are reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from aot.errors import Problem
from aot.support.names import name_fault
from aot.support.near import did_you_mean


class TableReader:
    """One table of the file; `where` names it in messages, `problems` takes what is wrong (E5021)."""

    def __init__(self, table: Mapping[str, Any], where: str, problems: list[Problem]) -> None:
        self.table = table
        self.where = where
        self.problems = problems
        self.known: set[str] = set()

    def note(self, message: str) -> None:
        self.problems.append(Problem("E5021", message, self.where))

    def take(self, key: str, kind: type, default: Any) -> Any:
        """The value of `key`; a default of None means that the key is required."""
        self.known.add(key)
        value = self.table.get(key)
        right = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(max(min(value, 1 << 64), -1 << 64))
        if value is not None and right:
            return value
        if value is not None:
            self.note(f"{key} must be {kind.__name__}, not {type(value).__name__}")
        elif default is None:
            self.note(f"{key} is missing")
        return kind() if default is None else default

    def named(self, key: str, *, symbol: bool) -> str:
        """A required name, as `aot.support.names.name_fault` wants it."""
        name: str = self.take(key, str, None)
        wrong = name_fault(name, symbol=symbol) if isinstance(self.table.get(key), str) else ""
        if wrong:
            self.note(f"{key} {name!r} {wrong}")
        return name

    def matching(self, key: str, rule: re.Pattern[str], what: str) -> str:
        """A required string all of which `rule` matches."""
        text: str = self.take(key, str, None)
        if isinstance(self.table.get(key), str) and not rule.fullmatch(text):
            self.note(f"{key} {text!r}: {what}")
        return text

    def below(self, key: str, limit: int, *, least: int = 0, step: int = 1) -> int:
        """A required whole number from `least` to below `limit`, a multiple of `step`."""
        value: int = self.take(key, int, None)
        if isinstance(self.table.get(key), int) and (not least <= value < limit or value % step):
            aligned = f", a multiple of {step}" if step > 1 else ""
            self.note(
                f"{key} must be {least:#x} to {limit - 1:#x}{aligned}" if limit > 256 else f"{key} must be {least} to {limit - 1}"
            )
        return value

    def strings(self, key: str, *, required: bool) -> tuple[str, ...]:
        values = self.take(key, list, None if required else [])
        if not all(isinstance(v, str) for v in values):
            self.note(f"{key} must be a list of strings")
            return ()
        return tuple(values)

    def finish(self) -> None:
        for key in sorted(set(self.table) - self.known):
            self.note(f"unknown key {key!r}{did_you_mean(key, self.known)}")

    def sub(self, key: str, path: str, *, required: bool) -> TableReader:
        """The table `key` of this one; an empty one if there is none."""
        table = self.take(key, dict, None if required else {})
        return TableReader(table, f"{path} [{key}]", self.problems)
