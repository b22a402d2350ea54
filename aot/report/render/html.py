"""Blocks as one self-contained HTML file: no network, one small script of its own, drawings as inline SVG.

The templates are page/*.j2; everything is escaped except our own style, script and drawings.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from aot.report.render.blocks import Block, middle, number

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


def fragment(blocks: Sequence[Block]) -> str:
    """Blocks without a surrounding page."""
    return str(_templates().get_template("blocks.html.j2").module.show(blocks))  # type: ignore[attr-defined]


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
