"""Running the command line in this process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from aot.cli.__main__ import run


@dataclass(frozen=True, slots=True)
class Finished:
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """`cli("boards", "--json")` runs `aot boards --json`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: object) -> Finished:
        self._capsys.readouterr()
        code = run([str(a) for a in arguments])
        captured = self._capsys.readouterr()
        return Finished(code, captured.out, captured.err)
