"""No command that we show leaves a scheduler, a worker or a page of theirs open to every network: that is to run programs."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
COMMAND = re.compile(r"^dask (?:scheduler|worker) .*", re.MULTILINE)


def test_schedulers_and_workers_listen_where_they_are_told() -> None:
    """`--no-dashboard` does not help: their server listens all the same, on every interface."""
    found = []
    for path in (*(ROOT / "docs").rglob("*.md"), *(ROOT / "aot/errors/codes").glob("*.md"), ROOT / "README.md"):
        text = path.read_text(encoding="utf-8")
        found += [command.replace("$here", where(text)) for command in COMMAND.findall(text)]
    assert len(found) >= 5
    for command in found:
        assert re.search(r"--host (127\.0\.0\.1|10\.0\.0\.\d)\b", command), command
        assert re.search(r"--dashboard-address 127\.0\.0\.1:\d", command), command


def where(text: str) -> str:
    match = re.search(r'^here="(.*)"$', text, re.MULTILINE)
    return match[1] if match else ""
