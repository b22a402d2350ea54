"""The elements of a report as data: headings, texts, tables, cards, drawings; `html` and `markdown` render them.

Nothing here is escaped: the renderers do that, whatever a model's names contain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aot.support.dataclass import dataclass

LONG = 44
"""Maximum characters of a table's cell on the page; converters generate names of hundreds."""


@dataclass(frozen=True, slots=True)
class Heading:
    """`mark` is the id for links on the page, `note` a small text after it; the `first` one has no rule above it."""

    text: str
    level: int = 3
    mark: str = ""
    note: str = ""
    first: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """A paragraph; `css`: dim, bad or nothing."""

    text: str
    css: str = ""


@dataclass(frozen=True, slots=True)
class Items:
    """A list; each entry with a bold word before it, or ""."""

    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """All columns after the first `left` are right-aligned; on the page, cells of more than `cut` characters are shortened."""

    headers: Sequence[str]
    rows: Sequence[Sequence[object]]
    label: str = ""
    left: int = 1
    cut: int = LONG
    css: str = ""


@dataclass(frozen=True, slots=True)
class Details:
    """Blocks folded under a summary."""

    summary: str
    blocks: Sequence[Block]
    open: bool = False


@dataclass(frozen=True, slots=True)
class Columns:
    """Lists of blocks, side by side if the page is wide enough."""

    columns: Sequence[Sequence[Block]]


@dataclass(frozen=True, slots=True)
class Key:
    """(class, word) for each colour of a drawing."""

    colours: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A drawing of `aot.report.render.drawings` in a scrolling region."""

    label: str
    svg: str


@dataclass(frozen=True, slots=True)
class Zoom:
    """Drawings, shown one at a time, each with the text of its button; `mark` is the prefix of their ids."""

    mark: str
    parts: Sequence[tuple[str, Drawing]]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a card: text, `moved` in colour, `code` for a command or name, `below` the text if set; `share` as a bar."""

    text: str
    css: str = ""
    moved: str = ""
    code: str = ""
    below: bool = False
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """A question with a short answer in large letters; `state`: ok, bad or nothing."""

    question: str
    big: str
    state: str = ""
    texts: Sequence[Line] = ()
    items: Sequence[Line] = ()
    terms: Sequence[Line] = ()
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards as a grid."""

    cards: Sequence[Card]


@dataclass(frozen=True, slots=True)
class Layers:
    """The table of layers, with expandable rows and sortable columns; the template knows the keys of a row."""

    label: str
    columns: Sequence[tuple[str, str]]
    rows: Sequence[Mapping[str, Any]]


Block = Heading | Text | Items | Table | Details | Columns | Key | Drawing | Zoom | Cards | Layers


def middle(name: str, limit: int) -> str:
    """A name shortened to at most `limit` characters, keeping its start and end, which say most."""
    if len(name) <= limit:
        return name
    if limit < 5:
        return ""
    end = (limit - 1) // 2
    return f"{name[: limit - 1 - end]}…{name[-end:]}"


def number(value: object) -> str:
    """A value as text: thousands grouped, `-` for None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
