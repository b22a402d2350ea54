"""The elements of a report as data: headings, texts, tables, cards, drawings; as one HTML file, or as Markdown.

Nothing in a block is escaped: the renderers do that, whatever a model's names contain.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from aot.report.render.drawings import middle
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


def number(value: object) -> str:
    """A value as text: thousands grouped, `-` for None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# ---- HTML: one self-contained file, no network, one small script of its own, drawings as inline SVG
# The templates are page/*.j2; everything is escaped except our own style, script and drawings.


_FOLDER = Path(__file__).parent / "page"


def page(
    title: str, blocks: Sequence[Block], *, skip: str = "", notes: Sequence[str] = (), links: Sequence[tuple[str, str]] = ()
) -> str:
    """A whole document; `notes` follow the title, `links` (mark, text) lead to headings, and the first link to `skip`.

    Whatever a model's names contain, its policy forbids the browser all requests and all scripts except ours, by hash.
    """
    style, script = (Markup((_FOLDER / name).read_text(encoding="utf-8").strip()) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    template = _templates().get_template("page.html.j2")
    values = {"title": title, "blocks": blocks, "skip": skip, "notes": notes, "links": links}
    return template.render(values, style=style, script=script, policy=Markup(policy))


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER), undefined=jinja2.StrictUndefined, autoescape=True, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters.update(shorten=_shorten, number=number)
    environment.tests["named"] = lambda block, name: type(block).__name__ == name
    return environment


def _shorten(content: str, limit: int) -> Markup:
    """A text, shortened in the middle if it is long, with the full text as a tool tip."""
    if len(content) <= limit:
        return escape(content)
    return Markup('<span title="{}">{}</span>').format(content, middle(content, limit))


# ---- Markdown


def cell(value: object) -> str:
    """A value for a text or a table: thousands grouped, `-` for None, without characters that end a cell or start markup."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return number(value)
    text = re.sub(r"([\\|`*\[\]])", r"\\\1", " ".join(str(value).split()))
    text = text.replace("&", "&amp;").replace("<", "&lt;")
    # names come from the model: they must not notify anyone, refer to an issue, or become a link
    return re.sub(r"(?<!\w)@|#(?=\d)|(?i:\bGH-|\bwww\.|:(?=//))", lambda match: f"{match[0]}\u200b", text)


def markdown_table(headers: Sequence[str], rows: Sequence[Sequence[object]], *, left: int = 1) -> list[str]:
    """A Markdown table; all columns after the first `left` are right-aligned."""
    rule = [":--" if i < left else "--:" for i in range(len(headers))]
    return [f"| {' | '.join(r)} |" for r in (headers, rule, *([cell(c) for c in row] for row in rows))]


def lines_of(blocks: Sequence[Block]) -> list[str]:
    """Blocks with an empty line between them."""
    lines: list[str] = []
    for i, block in enumerate(blocks):
        lines += ["", *_lines(block)] if i else _lines(block)
    return lines


def _lines(block: Block) -> list[str]:
    match block:
        case Heading(text=text, level=level):
            return [f"{'#' * level} {cell(text)}"]
        case Text(text=text):
            return [cell(text)]
        case Items(rows=rows):
            return [f"- **{cell(word)}**: {cell(text)}" if word else f"- {cell(text)}" for word, text in rows]
        case Table(headers=headers, rows=cells, left=left):
            return markdown_table(headers, cells, left=left) if cells else []
        case Details(summary=summary, blocks=inner):
            return ["<details>", f"<summary>{cell(summary)}</summary>", "", *lines_of(inner), "", "</details>"]
    raise ValueError(f"a comment has no {type(block).__name__}")
