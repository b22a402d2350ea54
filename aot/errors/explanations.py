"""The explanation of each error code: what it means and how to fix it.  There is one Markdown file per code in `codes/`.

A page begins with `# CODE: title`, followed by the explanation, and the examples `## Fails` and `## Works`.  The tests run both:
the first must fail with this code, the second must succeed.  The last block of an example is run: `python`, `sh` (in a folder
with a valid model.tflite), or `tflite`, a model for `aot.testing.text_model`, which is compiled.  Blocks before it have a file
name after the language (```toml board.toml) and are the files that the example needs.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from aot.support.dataclass import dataclass

FOLDER = Path(__file__).parent / "codes"
_TITLE = re.compile(r"# (E\d{4}): (\S.*)")
_BLOCK = re.compile(r"^```(\w+)(?: ([\w./-]+))?\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """Code to run, and the files that it needs (name, text); `language` is "python", "sh" or "tflite"."""

    language: str
    code: str
    files: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """The page that `aot explain CODE` prints; `fails` and `works` are None if there is no example."""

    code: str
    title: str
    text: str
    fails: Example | None = None
    works: Example | None = None


def codes() -> tuple[str, ...]:
    """All codes that have a page, sorted."""
    return tuple(sorted(p.stem for p in FOLDER.glob("E*.md")))


@cache
def explanation(code: str) -> Explanation | None:
    """The page of a code; None if there is none."""
    path = FOLDER / f"{code}.md"
    return parse(path.read_text(encoding="utf-8")) if re.fullmatch(r"E\d{4}", code) and path.is_file() else None


def parse(page: str) -> Explanation:
    """The explanation in a page; ValueError for a page without a title, or with an example without a block."""
    head, *sections = re.split(r"^## ", page, flags=re.MULTILINE)
    title, _, text = head.partition("\n")
    match = _TITLE.fullmatch(title)
    if match is None or not text.strip():
        raise ValueError(f"a page begins with '# CODE: title' and a text, not with '{title}'")
    examples = dict(map(_example, sections))
    return Explanation(match[1], match[2], text.strip("\n"), examples.get("Fails"), examples.get("Works"))


def _example(section: str) -> tuple[str, Example]:
    name, _, body = section.partition("\n")
    blocks = _BLOCK.findall(body)
    if name not in ("Fails", "Works") or [bool(file) for _, file, _ in blocks] != [True] * (len(blocks) - 1) + [False]:
        raise ValueError(f"a section is 'Fails' or 'Works' with the blocks of its files and then one block to run, not '{name}'")
    language, _, code = blocks[-1]
    return name, Example(language, code, tuple((file, text) for _, file, text in blocks[:-1]))
