"""The pieces of the page: the frame with its style and script, tables, regions that scroll, shortened names."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path

LONG = 44
"""Characters of a table's cell; converters make names of hundreds."""


@cache
def _text(name: str) -> str:
    return (Path(__file__).parent / "page" / name).read_text(encoding="utf-8").strip()


def page(title: str, body: Sequence[str]) -> str:
    """A whole document that needs nothing else.

    Its policy forbids the browser every request and every script but ours, by its hash, whatever a model's names may contain.
    """
    script = _text("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    head = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<link rel="icon" href="data:,">',
        f"<title>{escape(title)}</title>\n<style>\n{_text('page.css')}\n</style>\n</head>\n<body>",
    ]
    return "\n".join([*head, *(b for b in body if b), f"<script>{script}</script>\n</body>\n</html>\n"])


def scroll(label: str, content: str, css: str = "") -> str:
    """A region that scrolls by itself where it is wider than the page; with the keyboard too, and named for screen readers."""
    return f'<div class="scroll {css}" role="group" tabindex="0" aria-label="{escape(label)}">{content}</div>'


def html_table(
    headers: Sequence[str], rows: Sequence[Sequence[object]], *, label: str, left: int = 1, cut: int = LONG, css: str = ""
) -> str:
    """A table; all columns but the first `left` are to the right, and cells of more than `cut` characters are cut."""

    def line(tag: str, row: Sequence[object]) -> str:
        right = ' class="n"'
        cells = []
        for i, c in enumerate(row):
            kind = tag if c != "" else "td"  # a heading that says nothing is none
            cells.append(f"<{kind}{'' if i < left else right}>{short_html(cell(c), cut)}</{kind}>")
        return f"<tr>{''.join(cells)}</tr>"

    body = "".join(line("td", r) for r in rows)
    head = f"<thead>{line('th', headers)}</thead>" if any(headers) else ""
    return scroll(label, f"<table>{head}<tbody>{body}</tbody></table>", f"{css} tall" if len(rows) > 14 else css)


def cell(value: object) -> str:
    """A value as text: thousands grouped, `-` for None."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def middle(name: str, limit: int) -> str:
    """A name of at most `limit` characters: what it begins and ends with tells most."""
    if len(name) <= limit:
        return name
    if limit < 5:
        return ""
    end = (limit - 1) // 2
    return f"{name[: limit - 1 - end]}…{name[-end:]}"


def short_html(content: str, limit: int) -> str:
    """Text of a cell as HTML; a long one is shortened in the middle, with all of it as a tool tip."""
    if len(content) <= limit:
        return escape(content)
    return f'<span title="{escape(content)}">{escape(middle(content, limit))}</span>'


def track(share: float, css: str = "c1") -> str:
    """A bar that is filled by a share from 0 to 1; the number stands beside it as text."""
    width = 100 * min(1.0, max(0.0, share))
    return f'<span class="track" aria-hidden="true"><i class="{css}" style="width:{width:.1f}%"></i></span>'
