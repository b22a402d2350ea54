"""What a linker script or a devicetree tells of a board."""

from __future__ import annotations

import re

from aot.micro.board import Memory
from aot.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Found:
    """`memory` without overlaps; `cpu` as --target has it, "" where it is not said; `code`, `data`: chosen regions."""

    memory: tuple[Memory, ...]
    cpu: str = ""
    code: str = ""
    data: str = ""


def region_name(text: str) -> str:
    """A name that board files accept: ASCII letters, digits and _."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_").upper()
    return name if name[:1].isalpha() else f"MEMORY_{name}".rstrip("_")


def without_overlaps(regions: list[Memory]) -> tuple[Memory, ...]:
    """In the given order, less those of no size, outside 32 bits, with the name of an earlier one, or over an earlier one."""
    kept: list[Memory] = []
    for m in regions:
        end = m.origin + m.size
        clash = any(o.name == m.name or (o.origin < end and m.origin < o.origin + o.size) for o in kept)
        if m.size > 0 and m.origin >= 0 and end <= 1 << 32 and not clash:
            kept.append(m)
    return tuple(kept)
