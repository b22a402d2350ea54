"""Pages of the site that are generated from the program itself, and links that lead out of it (hooks of MkDocs, see mkdocs.yml).

Generated: the options of every verb, the error codes, the Python names, the architecture, the notebook with its outputs.  A
link to a file outside docs/, such as a source, becomes its text, so that the site is self-contained.
"""

from __future__ import annotations

import importlib
import inspect
import json
import posixpath
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
_PLACE = re.compile(r"<([a-z]\w*[^>\n]*)>")
_API = ("aot", "aot.te", "aot.target", "aot.runtime", "aot.tir.schedule")


def options_page() -> str:
    """Each verb with its arguments and options, as `--help` has them."""
    import typer.main

    from aot.cli.app import make_app

    program: Any = typer.main.get_command(make_app())
    lines = ["# All options of the command line", "", "As `aot VERB --help` says; [the command line](../cli.md) explains them."]
    for name, verb in sorted(program.commands.items()):
        lines += ["", f"## aot {name}", "", _text(verb.help or ""), "", "| option | what it does | default |", "|---|---|---|"]
        for p in verb.params:
            if getattr(p, "hidden", False):
                continue
            option = p.param_type_name == "option"
            words = ", ".join(f"`{o}`" for o in (*p.opts, *p.secondary_opts)) if option else f"`{p.metavar or p.name}`"
            has_default = not (p.required or callable(p.default) or p.default in (None, False, (), ...))
            default = f"`{_plain(p.default)}`" if has_default else ""
            lines.append(f"| {words} | {_text(getattr(p, 'help', '') or '')} | {default} |")
    return "\n".join(lines) + "\n"


def _plain(value: object) -> str:
    return str(value).replace("|", "\\|")


def _text(text: str) -> str:
    """One line of a table's cell."""
    return _PLACE.sub(r"&lt;\1&gt;", " ".join(text.split())).replace("|", "\\|")


def errors_page() -> str:
    """Every code with its page, in the order of the codes; a heading of a page goes down by one."""
    lines = ["# Error codes", "", "`aot explain CODE` prints one of them."]
    for path in sorted((ROOT / "aot" / "errors" / "codes").glob("E*.md")):
        parts = _FENCE.split(path.read_text(encoding="utf-8"))
        for i in range(0, len(parts), 2):
            parts[i] = re.sub(r"^#(?=#* )", "##", parts[i], flags=re.MULTILINE)
            parts[i] = re.sub(r"^### (Fails|Works)\b.*$", r"**\1**", parts[i], flags=re.MULTILINE)
        lines += ["", "".join(parts).strip()]
    return "\n".join(lines) + "\n"


def api_page() -> str:
    """All public names, each by mkdocstrings."""
    lines = ["# Python names", "", "[Python](../python.md) shows them at work."]
    for module in _API:
        imported = importlib.import_module(module)
        lines += ["", f"## {module}"]
        for name in getattr(imported, "__all__", ()):
            value = getattr(imported, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                lines += ["", f"::: {value.__module__}.{value.__qualname__}"]
    lines += ["", "::: aot.report.calls.report"]
    return "\n".join(lines) + "\n"


def notebook_page(text: str) -> str:
    """A notebook's cells in their order: prose as it is, code, and below it what was printed and the result."""
    lines: list[str] = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines += [source, ""]
            continue
        lines += ["```python", source, "```", ""]
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "text/html" in data:
                lines += ["".join(data["text/html"]), ""]
            else:
                lines += ["```text", "".join(data.get("text/plain", output.get("text", ""))).rstrip("\n"), "```", ""]
    return "\n".join(lines)


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    generated = {
        "reference/options.md": options_page(),
        "reference/errors.md": errors_page(),
        "reference/api.md": api_page(),
        "reference/notebook.md": notebook_page((ROOT / "docs" / "notebook.ipynb").read_text(encoding="utf-8")),
        "explanation/architecture.md": (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").replace("](docs/", "](../"),
    }
    for name, content in generated.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Links out of docs/ become their text."""
    here = posixpath.dirname(page.file.src_uri)

    def kept(match: re.Match[str]) -> str:
        target = match[2].partition("#")[0]
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        there = posixpath.normpath(posixpath.join(here, target))
        return match[0] if files.get_file_from_path(there) is not None else match[1]

    parts = _FENCE.split(markdown)
    return "".join(p if i % 2 else _LINK.sub(kept, p) for i, p in enumerate(parts))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """A column without a name gets no heading cell, which screen readers would announce as empty."""
    return re.sub(r"<th( [^>]*)?></th>", "<td></td>", html)


def requests(site: Path) -> Iterator[str]:
    """What the pages of a site would load from elsewhere."""
    for path in site.rglob("*.html"):
        for tag, address in re.findall(
            r"<(script|img|iframe|link)\b[^>]*?\b(?:src|href)=[\"']?([^\"'\s>]+)", path.read_text("utf-8")
        ):
            if address.startswith(("http:", "https:", "//")) and not (tag == "link" and "canonical" in address):
                yield f"{path.relative_to(site)}: {tag} {address}"
