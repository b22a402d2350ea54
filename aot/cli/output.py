"""The output of a verb: text for people, or one JSON object for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from aot.cli.streams import answers
from aot.cli.wrap_text import fold, fold_prose, fold_table, width_of
from aot.errors import Problem
from aot.support.dataclass import dataclass
from aot.support.text import escaped


@dataclass(frozen=True, slots=True)
class Output:
    """Prints a verb's output. With `json` only the final object is printed, with `quiet` nothing."""

    json: bool = False
    quiet: bool = False
    verbose: bool = False

    @property
    def silent(self) -> bool:
        return self.json or self.quiet

    def line(self, text: str = "") -> None:
        if not self.silent:
            single = "\n" not in text  # longer texts, such as code, are printed as they are
            print(_safe(fold(text, width_of(sys.stdout), hang=len(text) - len(text.lstrip(" ")) + 2) if single else text))

    def flush(self) -> None:
        """Flush standard output, which is buffered if it is not a terminal."""
        sys.stdout.flush()

    def row(self, label: str, text: str) -> None:
        """Print ` label     text`, the form of all summaries, folded to the width of a terminal."""
        self.line(fold(f" {paint(f'{label:<9}', 'cyan')} {one_line(text)}", width_of(sys.stdout), hang=11))

    def prose(self, text: str) -> None:
        """Print paragraphs, folded to the width of the terminal."""
        self.line(fold_prose(text, width_of(sys.stdout)))

    def rule(self) -> None:
        self.line(" " + "─" * min(78, (width_of(sys.stdout) or 80) - 2))

    def detail(self, text: str) -> None:
        """Print a line, only with -v."""
        if self.verbose:
            self.line(text)

    def table(self, headers: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        for text in format_table(headers, rows, width=width_of(sys.stdout)):
            self.line(text)

    def result(self, data: Mapping[str, Any]) -> None:
        """Print the --json object; the order of keys is part of the interface."""
        if self.json:
            print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False), file=answers())

    @contextmanager
    def working(self, what: str) -> Iterator[None]:
        """Show a spinner on a terminal during slow work."""
        if self.silent or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.text import Text

        with Console(stderr=True).status(Text(escaped(what))):  # a Text, since names may look like rich's markup
            yield


def use_colour() -> bool:
    """Whether to print colours: on a terminal only, and not with NO_COLOR or TERM=dumb."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


_SGR = {"cyan": "36", "green": "32", "yellow": "33", "red": "31", "bold": "1"}
_PAINT = re.compile(rf"(\x1b\[(?:0|{'|'.join(_SGR.values())})m)")


def _safe(text: str) -> str:
    """`text` with control characters escaped; on a terminal, the colours of `paint` are kept."""
    if text.isprintable():
        return text
    parts = _PAINT.split(text) if use_colour() else [text]
    return "".join(part if i % 2 else "\n".join(map(escaped, part.split("\n"))) for i, part in enumerate(parts))


def one_line(text: str) -> str:
    """`text` without line breaks: names of files and tensors must not start a new line."""
    return text.replace("\n", "\\n")


def paint(text: str, colour: str) -> str:
    return f"\x1b[{_SGR[colour]}m{text}\x1b[0m" if use_colour() else text


def format_table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, width: int | None = None) -> list[str]:
    """Lines of a table: columns two spaces apart, numbers right-aligned with thousands separators, no padding at the end.

    Lines wider than `width` are folded.
    """
    cells = [[_cell(c) for c in row] for row in rows]
    right = [bool(rows) and all(isinstance(row[i], int | float) or row[i] is None for row in rows) for i in range(len(headers))]
    widths = [max([len(h), *(len(row[i]) for row in cells)]) for i, h in enumerate(headers)]

    def layout(row: Sequence[str]) -> str:
        columns = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        return ("  " + "  ".join(columns)).rstrip()

    return fold_table(headers, cells, [layout(headers), *map(layout, cells)], width)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.2f}"
    return one_line(str(value))


def print_problems(problems: Sequence[Problem], *, exit_code: int, as_json: bool) -> None:
    """Print one line per problem on stderr; with --json an object on stdout instead, so that a program always gets one."""
    if as_json:
        listed = [{"code": p.code, "where": p.where, "message": p.message} for p in problems]
        result = {"ok": False, "exit_code": exit_code, "problems": listed}
        print(json.dumps(result, indent=2, ensure_ascii=False), file=answers())
        return
    for problem in problems:
        print(fold(str(problem), width_of(sys.stderr), hang=4), file=sys.stderr)
