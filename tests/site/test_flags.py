"""Every option that the documentation names exists: with the verb that it stands beside, else with some verb."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import typer.main

from aot.cli.app import make_app
from tests.site.pages import SHELL, blocks, name_of, pages, prose, text_of

_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_FLAG = re.compile(r"(?<![\w-])(--[a-z][\w-]*|-[a-zA-Z](?=\s|$))")
_OURS = re.compile(r"(?<![\w./-])aot ([a-z]+)\b([^\n|;&]*)")
_EVERYWHERE = {"--help", "-h", "--version"}


@cache
def verbs() -> dict[str, frozenset[str]]:
    """The options of each verb, those of the verbs below it with them (`aot boards new`)."""
    program: Any = typer.main.get_command(make_app())

    def options(command: Any) -> set[str]:
        own = {o for p in command.params for o in (*p.opts, *p.secondary_opts) if o.startswith("-")}
        return own.union(*(options(c) for c in getattr(command, "commands", {}).values()))

    return {name: frozenset(options(command) | _EVERYWHERE) for name, command in program.commands.items()}


def lines(page: str) -> Iterator[str]:
    """Each line of the shell blocks, and each code span."""
    for block in blocks(page):
        if block.language in SHELL:
            yield from (line.removeprefix("$ ").partition(" # ")[0] for line in block.text.splitlines())
    text = prose(page)
    if page.startswith("docs/from-"):  # the first column has the words of the tool that the reader comes from
        text = re.sub(r"^\|[^\n]*?(?<!\\)\|", "|", text, flags=re.MULTILINE)
    for match in _SPAN.finditer(text):
        yield match[2].replace("\\|", "|")


def faults(line: str) -> Iterator[str]:
    """What a line names that there is not."""
    if line.startswith("--"):
        known = frozenset[str]().union(*verbs().values())
        yield from (f"no verb has {f}" for f in _FLAG.findall(line) if f not in known)
        return
    for verb, rest in _OURS.findall(line):
        if verb not in verbs():
            yield f"there is no aot {verb}"
            continue
        yield from (f"aot {verb} has no {f}" for f in _FLAG.findall(rest) if f not in verbs()[verb])


@pytest.mark.parametrize("page", [name_of(p) for p in pages()])
def test_every_option_of_a_page_exists(page: str) -> None:
    assert [f"{line}: {fault}" for line in lines(page) for fault in faults(line)] == []


def test_there_are_options_to_look_at() -> None:
    found = {f for page in pages() for line in lines(name_of(page)) for f in _FLAG.findall(line)}
    assert len(found & frozenset().union(*verbs().values())) > 60


def test_what_there_is_not_is_found() -> None:
    assert list(faults("aot compile kws.tflite --fast")) == ["aot compile has no --fast"]
    assert list(faults("aot compute kws.tflite")) == ["there is no aot compute"]
    assert list(faults("--opt ram --no-such")) == ["no verb has --no-such"]
    assert list(faults("aot boards new --from x.ld --cpu cortex-m4 -o y")) == []


def test_verbs_of_lists_exist() -> None:
    """The table of verbs on the page of the command line has them all."""
    first = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \| ", text_of("docs/cli.md"), re.MULTILINE)
    named = {shlex.split(span)[0] for cell in first for span in re.findall(r"`([^`]+)`", cell)}
    assert set(verbs()) - named == set()
