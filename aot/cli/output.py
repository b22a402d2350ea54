"""The output of a verb: text for people, folded to the terminal, or one JSON object for programs; on streams that never fail."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, TextIO

from aot.cli.options import option
from aot.errors import Problem
from aot.support.dataclass import dataclass
from aot.support.text import escaped


@dataclass(frozen=True, slots=True)
class Output:
    """Prints a verb's output. With `json` only the final object is printed, with `quiet` nothing."""

    json: Annotated[bool, option("--json", "Print one JSON object instead of text.")] = False
    quiet: Annotated[bool, option("-q --quiet", "Print errors only.")] = False
    verbose: Annotated[bool, option("-v --verbose", "Print more.")] = False

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

    def row(self, label: str, text: str | None) -> None:
        """Print ` label     text`, the form of all summaries, folded to the width of a terminal; nothing for None."""
        if text is not None:
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


# ---- folding of text to the width of a terminal; nothing is cut off
# Files and pipes get unfolded lines, for the programs that read them.


_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_LEAST = 40
_TEXT = 24
"""The last column of a table is folded only if it is at least this wide."""


def width_of(stream: TextIO) -> int | None:
    """The width of a terminal in columns; None if `stream` is not one."""
    return max(_LEAST, shutil.get_terminal_size().columns) if stream.isatty() else None


def shown(text: str) -> int:
    """The width of a text in columns; colours have no width."""
    return len(_ESCAPE.sub("", text))


def fold(text: str, width: int | None, *, hang: int) -> str:
    """One line broken at spaces into lines of at most `width` columns; all but the first begin with `hang` spaces.

    A word longer than a line stays whole, so that paths can be copied.
    """
    if width is None or shown(text) <= width:
        return text
    lead = len(text) - len(text.lstrip(" "))
    lines, here = [], text[:lead]
    empty = True
    for word in re.split(r"(?<=\S) ", text[lead:]):
        if empty:
            here, empty = here + word, False
        elif shown(here) + 1 + shown(word) <= width:
            here += " " + word
        else:
            lines.append(here.rstrip())
            here = " " * hang + word.lstrip(" ")
    return "\n".join([*lines, here])


def fold_prose(text: str, width: int | None) -> str:
    """Paragraphs refolded to `width`; indented lines, lists and tables are folded line by line."""
    if width is None:
        return text
    parts: list[str] = []
    for line in text.split("\n"):
        plain = bool(line) and line[0] not in " |*-#"
        if plain and parts and parts[-1] and parts[-1][0] not in " |#":
            parts[-1] += " " + line
        else:
            parts.append(line)
    return "\n".join(p if p.startswith("    ") else fold(p, width, hang=2 if p[:1] in "*-" else 0) for p in parts)


def fold_table(headers: Sequence[str], cells: Sequence[Sequence[str]], lines: Sequence[str], width: int | None) -> list[str]:
    """A table whose `lines` may be too wide: folds the last column if it is text and wide enough, else one paragraph per row."""
    if width is None or max(map(shown, lines)) <= width:
        return list(lines)
    hang = 2 + sum(max(map(shown, column)) + 2 for column in list(zip(headers, *cells, strict=True))[:-1])
    is_text = any(" " in row[-1] for row in cells)
    if is_text and width - hang >= _TEXT:
        return [fold(line, width, hang=hang) for line in lines]
    paragraphs = [fold(f"  {' '.join(headers[:2])}{': ' if headers[2:] else ''}{' · '.join(headers[2:])}", width, hang=4)]
    for row in cells:
        details = [f"{h} {c}" for h, c in zip(headers[2:], row[2:], strict=True) if c not in ("", "-")]
        paragraphs.append(fold(f"  {' '.join(row[:2])}{': ' if details else ''}{' · '.join(details)}", width, hang=4))
    return paragraphs


# ---- standard output and error for verbs: a failed write never changes behaviour or exit code
# A reader that closes the pipe (`| head`), a stream that was closed before the start, a full disk, or a name that the encoding
# cannot represent must neither stop a verb halfway nor replace its exit code.  What cannot be written is dropped, and the error
# is kept.  Names come from models: in CI, none of them may act as a workflow command.


_CI = ("CI", "GITHUB_ACTIONS", "GITLAB_CI", "TF_BUILD", "TEAMCITY_VERSION")
_COMMAND = re.compile(r"##(?=\w*\[)")
_FIRST_LINE = re.compile(r"((?:^|[\n\r])[^\S\n\r]*):(?=:)")
_LATER_LINE = re.compile(r"([\n\r][^\S\n\r]*):(?=:)")


def in_ci() -> bool:
    """Whether a CI service may read the output: these obey `::error::` at the start of a line, and `##[error]` anywhere."""
    return any(os.environ.get(name) for name in _CI)


@dataclass(slots=True)
class GuardedStream:
    """A text stream whose writes never raise; `lost` is the first error of the underlying stream."""

    inner: TextIO | None
    lost: OSError | None = None
    written: bool = False
    at_start: bool = True
    answer: Any = None
    """The stream for the --json object, if everything else written here goes elsewhere."""

    def write(self, text: str) -> int:
        """Write `text`; characters that the encoding lacks become escapes, such as \\udce9 for a byte that is not UTF-8."""
        self.written = self.written or bool(text)
        size = len(text)
        if text and in_ci():
            text = self._defused(text)
        if self.inner is not None and self.lost is None:
            try:
                self.inner.write(text if text.isascii() else self._encodable(text))
            except (OSError, ValueError) as error:  # ValueError: the stream was closed
                self._lose(error)
        return size

    def _defused(self, text: str) -> str:
        """`text` with CI commands escaped; the escapes are valid in JSON too."""
        lines = _FIRST_LINE if self.at_start else _LATER_LINE
        self.at_start = text.rstrip(" \t").endswith(("\n", "\r")) or (self.at_start and not text.strip())
        return lines.sub(r"\1\\u003a:", _COMMAND.sub(r"#\\u0023", text))

    def _encodable(self, text: str) -> str:
        """`text` with escapes for what the encoding lacks.  (With LANG=C Python writes stray bytes: JSON would not be UTF-8.)"""
        encoding = getattr(self.inner, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        if self.inner is not None and self.lost is None:
            try:
                self.inner.flush()
            except (OSError, ValueError) as error:
                self._lose(error)

    def _lose(self, error: OSError | ValueError) -> None:
        self.lost = error if isinstance(error, OSError) else OSError(errno.EBADF, os.strerror(errno.EBADF))

    def isatty(self) -> bool:
        return self.inner is not None and self.inner.isatty()

    def problem(self) -> Problem | None:
        """E5060 if output was lost; a closed pipe is no error, as the reader has what it wanted."""
        if self.inner is None and self.written:
            return Problem("E5060", "standard output is closed; the output is lost")
        if self.lost is not None and self.lost.errno not in (errno.EPIPE, None):
            return Problem("E5060", f"standard output cannot be written: {self.lost.strerror}; the output is incomplete")
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def answers() -> TextIO:
    """Standard output for the --json object."""
    stream: TextIO = getattr(sys.stdout, "answer", None) or sys.stdout
    return stream


@contextmanager
def guarded(*, answer_only: bool = False) -> Iterator[GuardedStream]:
    """Replace sys.stdout and sys.stderr by GuardedStreams; yields the former.

    `answer_only`: only what is written to `answers()` reaches standard output, so that programs read one JSON object; all other
    output (of a plug-in, say) goes to standard error.
    """
    before = sys.stdout, sys.stderr
    out, err = GuardedStream(before[0]), GuardedStream(before[1])
    sys.stdout, sys.stderr = GuardedStream(before[1], answer=out) if answer_only else out, err
    try:
        yield out
    finally:
        out.flush()
        err.flush()
        sys.stdout, sys.stderr = before
        for stream in (out, err):
            if stream.lost is not None:
                _silence(stream)


def _silence(stream: GuardedStream) -> None:
    """Drop what is still buffered: otherwise Python complains at exit and exits with 120."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def open_standard_files() -> None:
    """Open descriptors 0 to 2 if they are closed: the next file we open must not become a child process's standard output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number
