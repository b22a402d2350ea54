"""The memory regions of a GNU linker script."""

from __future__ import annotations

import re

from aot.micro.board import Memory
from aot.micro.draft.found import Found, region_name, without_overlaps
from aot.micro.draft.numbers import value_of

_REGION = re.compile(
    r"([\w.$-]+)\s*(?:\(([^)]*)\))?\s*:\s*(?:ORIGIN|org|o)\s*=\s*([^,]+?),\s*(?:LENGTH|len|l)\s*=\s*([^\n;}]+?)\s*(?=$|\n|;|})"
)
_ASSIGNMENT = re.compile(r"^\s*([A-Za-z_.$][\w.$]*)\s*=\s*([^;{}]+);", re.MULTILINE)
_NOT_MEMORY = ("IDT_LIST",)
"""Regions by which Zephyr passes tables to itself at build time."""


def read_linker_script(text: str) -> Found:
    """The regions of its MEMORY command, named and sized as there; none where there is no such command."""
    plain = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    known: dict[str, int] = {}
    for name, expression in _ASSIGNMENT.findall(plain):
        value = value_of(expression, known)
        if value is not None:
            known.setdefault(name, value)
    regions = []
    for block in re.findall(r"\bMEMORY\b\s*\{([^}]*)\}", plain):
        for name, attributes, origin, length in _REGION.findall(block):
            start, size = value_of(origin, known), value_of(length.rstrip(","), known)
            if start is None or size is None or name in _NOT_MEMORY:
                continue
            known |= {f"ORIGIN_{name}": start, f"LENGTH_{name}": size}
            regions.append(Memory(region_name(name), _access(name, attributes), start, size))
    return Found(without_overlaps(regions))


def _access(name: str, attributes: str) -> str:
    """By the attributes, what follows ! apart; by the name where there are none."""
    flags = attributes.lower().partition("!")[0]
    if flags.strip():
        return "rw" if "w" in flags else "rx"
    return "rw" if re.search(r"ram|tcm|ccm", name, re.IGNORECASE) and "itcm" not in name.lower() else "rx"
