"""Blocks as one HTML file that needs nothing else: no network, one small script of its own, drawings as inline SVG.

The templates are page/*.j2; everything is escaped but our own style, script and drawings.
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

    Its policy forbids the browser every request and every script but ours, by its hash, whatever a model's names may contain.
    """
    style, script = (Markup((_FOLDER / name).read_text(encoding="utf-8").strip()) for name in ("page.css", "page.js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    template = _templates().get_template("page.html.j2")
    values = {"title": title, "blocks": blocks, "skip": skip, "notes": notes, "links": links}
    return template.render(values, style=style, script=script, policy=Markup(policy))


def fragment(blocks: Sequence[Block]) -> str:
    """Blocks without a page around them."""
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
    """A text; a long one is shortened in the middle, with all of it as a tool tip."""
    if len(content) <= limit:
        return escape(content)
    return Markup('<span title="{}">{}</span>').format(content, middle(content, limit))
