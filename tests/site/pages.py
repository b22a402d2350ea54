"""The pages of the documentation as the tests read them: fenced blocks with their marks, and the prose between.

A mark is an HTML comment on the line before a block or a paragraph:

| mark | of | meaning |
|---|---|---|
| `run` | sh, console | the commands are run by `pytest -m slow`; what a console block shows has to come |
| `run: quick` | sh, console | by the default tests |
| `run: qemu` | sh, console | by `pytest -m qemu` |
| `run: NAME` | sh | README.md only: run by tests/test_readme.py |
| `not run: why` | any | |
| `files: A=B …` | a page | before its first command: file A in the reader's folder is B of the repository, or of `MADE` |
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.op.state.test_signatures import two_signatures

ROOT = Path(__file__).resolve().parents[2]
SHELL = ("sh", "console")


MADE: dict[str, Callable[[], bytes]] = {"signatures": two_signatures}
"""What pages use and is not a file of the repository."""

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w+-]*)(?: title=\"(?P<name>[^\n\"]+)\")?\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_MARK = re.compile(r"<!-- ((?:[^-]|-(?!->))*?) -->\s*\Z")
_FILES = re.compile(r"<!-- files: ([^>]*?) -->")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; `name` is the file that it shows, "" for none."""

    page: str
    line: int
    language: str
    name: str
    mark: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[tuple[str, list[str]]]:
        """(command, the lines that it is shown to print): of sh the whole block at once unless each line is one of ours."""
        if self.language == "console":
            parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
            return [(head, rest.splitlines()) for head, _, rest in (p.partition("\n") for p in parts)]
        lines = [line for line in self.text.splitlines() if line.strip()]
        single = all(line.startswith("aot ") and not set(line.partition("#")[0]) & set("<>|$;&*\\") for line in lines)
        return [(line, []) for line in lines] if single else [(self.text, [])]


def pages() -> list[Path]:
    """Every page that readers see, with the README."""
    folders = ("docs", "examples", "samples", "integrations")
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(p for f in folders for p in sorted((ROOT / f).rglob("*.md")))]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page in their order."""
    found = []
    text = text_of(page)
    for match in _FENCE.finditer(text):
        mark = _MARK.search(text, 0, match.start())
        found.append(
            Block(
                page=page,
                line=text.count("\n", 0, match.start()) + 1,
                language=match["language"],
                name=match["name"] or "",
                mark=mark[1] if mark else "",
                text=match["text"],
            )
        )
    return found


def prose(page: str) -> str:
    """The page with its fenced blocks emptied; lines keep their numbers."""
    return _FENCE.sub(lambda m: "\n" * m[0].count("\n"), text_of(page))


def files(page: str) -> dict[str, str]:
    """What the reader of a page is taken to have: file name to path in the repository, or to a key of MADE."""
    pairs = [pair.partition("=") for line in _FILES.findall(text_of(page)) for pair in line.split()]
    return {name: source for name, _, source in pairs}
