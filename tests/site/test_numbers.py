"""Every measured number of the documentation is written by a script, shown by a command that is run, found in a file, or sourced.

Before a paragraph, a table or a text block with such numbers stands a mark (see pages.py for those of commands):

| mark | meaning |
|---|---|
| `figures: NAME` … `/figures: NAME` | written by scripts/figures.py or scripts/doc_figures.py |
| `numbers in: PATH …` | each of them is in one of these files, sources, tests or data |
| `numbers asserted by: PATH::test …` | these tests hold them, and name them |
| `numbers measured at COMMIT by: command` | for what takes too long for tests; the commit is the repository's |
| `numbers published at: URL …` | not ours |
| `numbers of boards` | sizes of memories, and instructions a tick, of the board that the row is about |

What is measured: figures with a thousands separator, decimals that are no version (Python 3.11), and counts of bytes,
instructions, cycles and the like.  Decisions (docs/adr) are of their day and left out, and so are generated pages.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise

import pytest

from aot.micro.board import load_board
from tests.scripts import script
from tests.site.pages import ROOT, blocks, name_of, pages, text_of

_UNITS = r"(?:B|KB|kB|KiB|MiB|bytes|instructions|cycles|MAC|seconds|ms|s|%|per cent)\b"
_FIGURE = re.compile(rf"(?<![\w.,])(\d{{1,3}}(?:,\d{{3}})+|\d+\.\d+(?![\w.])|\d+(?=[ -]?{_UNITS}))")
_VERSION = re.compile(r"\b[A-Z][\w-]+ v?\d+\.\d+")
_MARK = re.compile(r"<!-- (numbers [^\n]+?) -->")
_MEASURED = re.compile(r"numbers measured at ([0-9a-f]{7,}) by")
_COMMAND = re.compile(r"(aot (?:check|compile|report|run|verify) |python (?:-m examples\.|scripts/)).")
_WRITTEN = re.compile(r"<!-- (figures(?:: \S+)?|output: \w+) -->.*?<!-- /(?:figures(?:: \S+)?|output) -->", re.DOTALL)
_BOOT = 8192
"""Bytes of flash that a board file may leave to a boot loader."""
_UNWATCHED = ("docs/adr/", "docs/operators.md", "CONTRIBUTING.md")


@dataclass(frozen=True, slots=True)
class Part:
    """A paragraph, a table or a text block: where it begins, its mark, its text without code, links and comments."""

    page: str
    line: int
    mark: str
    text: str
    raw: str = ""

    @property
    def figures(self) -> list[str]:
        return _FIGURE.findall(_VERSION.sub("", self.text))


def watched() -> list[str]:
    return [n for n in map(name_of, pages()) if not n.startswith(_UNWATCHED)]


def parts(page: str) -> list[Part]:
    """What of a page may hold numbers; what a script writes is left out."""
    text = _WRITTEN.sub(lambda m: "\n" * m[0].count("\n"), text_of(page))
    for block in blocks(page):
        if block.language != "text":
            text = text.replace(block.text, "\n" * block.text.count("\n"))
    found, mark, line = [], "", 1
    for piece in re.split(r"(\n[ \t]*\n)", text):
        start, line = line, line + piece.count("\n")
        if not piece.strip():
            continue
        here = _MARK.search(piece)
        rest = re.sub(r"`[^`\n]+`|\]\([^)\n]*\)|<!--.*?-->", "", _MARK.sub("", piece), flags=re.DOTALL)
        mark = here[1] if here else mark
        if rest.strip():
            found.append(Part(page, start, mark, rest, piece))
            mark = ""
    return found


@cache
def contents(path: str) -> str:
    """A file; of a page its blocks alone, as what it says of itself proves nothing."""
    return "\n".join(b.text for b in blocks(path)) if path.endswith(".md") else (ROOT / path).read_text(encoding="utf-8")


@cache
def has_commit(name: str) -> bool:
    """Whether the repository has it; true where its history is not here."""
    if shutil.which("git") is None or subprocess.run(["git", "rev-parse"], cwd=ROOT, capture_output=True).returncode != 0:
        return True
    shallow = subprocess.run(["git", "rev-parse", "--is-shallow-repository"], cwd=ROOT, capture_output=True, text=True)
    known = subprocess.run(["git", "cat-file", "-e", f"{name}^{{commit}}"], cwd=ROOT, capture_output=True)
    return known.returncode == 0 or shallow.stdout.strip() == "true"


def in_file(figure: str, path: str) -> bool:
    """Whether a file has the number, as Python, JSON or a page writes it."""
    digits = figure.replace(",", "")
    forms = {figure, digits, f"{int(digits):_}" if digits.isdigit() else digits}
    return any(re.search(rf"(?<![\d.]){re.escape(form)}(?![\d]|\.\d)", contents(path)) for form in forms)


def faults(part: Part) -> Iterator[str]:
    """Numbers of a part that nothing stands for."""
    kind, _, what = part.mark.partition(": ")
    if kind == "numbers in":
        for figure in part.figures:
            if not any(in_file(figure, path) for path in what.split()):
                yield f"{figure} is not in {what}"
    elif kind == "numbers asserted by":
        yield from _asserted(part, what.split())
    elif measured := _MEASURED.fullmatch(kind):
        if not has_commit(measured[1]):
            yield f"there is no commit {measured[1]}"
        if not _COMMAND.match(what):
            yield f"no command: {what}"
    elif kind == "numbers published at":
        if not all(re.fullmatch(r"https://[\w.-]+/\S+", word) for word in what.split()):
            yield f"no address: {what}"
    elif part.mark == "numbers of boards":
        yield from _of_boards(part.raw)
    else:
        yield f"the mark is words: {part.mark}" if part.mark else f"no mark for {', '.join(part.figures)}"


def _asserted(part: Part, tests: Sequence[str]) -> Iterator[str]:
    """Tests that there are not, and numbers that none of them names."""
    paths = []
    for test in tests:
        path, _, name = test.partition("::")
        if not (ROOT / path).is_file() or not re.search(rf"^def {re.escape(name)}\(", contents(path), re.MULTILINE):
            yield f"there is no {test}"
            return
        paths.append(path)
    for figure in part.figures:
        if not any(in_file(figure, path) for path in paths):
            yield f"{figure} is not in {', '.join(paths)}"


def _of_boards(table: str) -> Iterator[str]:
    """Sizes in a row that are none of the board's memories (one, two neighbours, or one behind a boot loader); wrong ticks."""
    source = dict(re.findall(r"^\| `([\w-]+)` \|(.*)$", table, re.MULTILINE))
    if len(source) < 5:
        yield "is no table of boards"
    for name, row in source.items():
        board = load_board(name)
        single = [m.size for m in (*board.memory, *board.pools)]
        sizes = {*single, *(a + b for a, b in pairwise(single))}
        for number, unit in re.findall(r"(\d+) (KiB|MiB)", row):
            size = int(number) << (10 if unit == "KiB" else 20)
            if not any(0 <= size - s <= _BOOT for s in sizes):
                yield f"{name} has no memory of {number} {unit}"
        for tick, clock in re.findall(r"([\d.]+) \(([\d.]+) MHz\)", row):
            if board.tick != Fraction(tick) or board.tick * Fraction(clock) != 1000:  # QEMU takes a nanosecond an instruction
                yield f"{name} has not {tick} instructions a tick at {clock} MHz"


@pytest.mark.parametrize("page", watched())
def test_every_number_has_a_source(page: str) -> None:
    found = [f"{p.page}:{p.line}: {fault}" for p in parts(page) if p.figures or p.mark for fault in faults(p)]
    assert found == []


def test_numbers_are_found() -> None:
    assert _FIGURE.findall("takes 1,234 B, 0.81 a MAC, 12 KiB and 95 instructions, in E1234 or on 3 cores") == [
        "1,234",
        "0.81",
        "12",
        "95",
    ]
    part = Part("x.md", 1, "", "needs 8,768 B")
    assert list(faults(part)) == ["no mark for 8,768"]
    assert list(faults(Part("x.md", 1, "numbers in: tests/baseline.json", "needs 8,768 B"))) == []
    assert list(faults(Part("x.md", 1, "numbers in: tests/baseline.json", "needs 8,767 B"))) != []


@pytest.mark.parametrize(
    "mark",
    [
        "numbers from: the manuals named above",
        "numbers measured at 657f732 by: somebody",
        "numbers measured at 0000000 by: aot verify MODEL",
        "numbers published at: the rounds of MLPerf Tiny",
        "numbers asserted by: tests/site/test_numbers.py::test_that_is_not_there",
        "numbers asserted by: tests/site/test_numbers.py",
        "numbers in: docs/boards.md",
    ],
)
def test_words_are_no_source(mark: str) -> None:
    assert list(faults(Part("x.md", 1, mark, "needs 87,654 B"))) != []


def test_written_tables_have_a_writer() -> None:
    """Every NAME of a mark is one that the script writes, and the other way round; slow ones say when they were measured."""
    named = {(p, n) for p in watched() if p != "README.md" for n in re.findall(r"<!-- figures: (\S+) -->", text_of(p))}
    assert named == {(table.page, name) for name, table in script("doc_figures").TABLES.items()}
    assert all(f"<!-- /figures: {name} -->" in text_of(page) for page, name in named)
    for name, table in script("doc_figures").TABLES.items():
        stamp = re.search(rf"<!-- figures: {name} -->\n<!-- measured at ([0-9a-f]+) -->", text_of(table.page))
        assert (stamp is None) == table.quick, name
        assert stamp is None or has_commit(stamp[1]), name


@pytest.mark.slow
@pytest.mark.qemu
@pytest.mark.parametrize("name", [name for name, table in script("doc_figures").TABLES.items() if table.quick])
def test_written_tables_are_up_to_date(name: str) -> None:
    """The quick ones; `python scripts/doc_figures.py --check` measures all."""
    written = script("doc_figures")
    if written.TABLES[name].shared and not written.NETS.is_dir():
        pytest.skip("the shared models are not here")
    page = text_of(written.TABLES[name].page)
    assert written.rendered(name, page) == page, f"scripts/doc_figures.py {name}"
