"""The core and the memories of a devicetree: Zephyr's build/zephyr/zephyr.dts, or a source without needed includes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from aot.errors import Problem, UsageError
from aot.micro.board import Memory
from aot.micro.draft.found import Found, region_name, without_overlaps
from aot.micro.draft.numbers import value_of
from aot.support.dataclass import dataclass

_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{};]|[^"{};]+')
_DEEPEST = 64
_FLASH = ("soc-nv-flash",)
_CODE = ("arm,itcm", "nxp,imx-itcm")
_DATA = ("mmio-sram", "arm,dtcm", "nxp,imx-dtcm", "st,stm32-ccm", "zephyr,memory-region")


@dataclass(slots=True)
class Node:
    """`properties` as the text after =, "" where there is none; `labels` by which others refer to it."""

    name: str
    labels: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    parent: Node | None = None

    def everything(self) -> Iterator[Node]:
        """This node and all below."""
        yield self
        for child in self.children:
            yield from child.everything()

    def strings(self, name: str) -> list[str]:
        return re.findall(r'"((?:\\.|[^"\\])*)"', self.properties.get(name, ""))

    def cells(self, name: str) -> list[int]:
        """The numbers in < >; fewer where one is no plain number."""
        found: list[int] = []
        for group in re.findall(r"<([^>]*)>", self.properties.get(name, "").replace("<<", " LSHIFT ").replace(">>", " RSHIFT ")):
            for word in re.findall(r"\([^()]*(?:\([^()]*\)[^()]*)*\)|DT_SIZE_[KM]\s*\([^)]*\)|\S+", group):
                value = value_of(word.replace("LSHIFT", "<<").replace("RSHIFT", ">>"), {})
                if value is None:
                    return found
                found.append(value)
        return found


def read_devicetree(text: str) -> Found:
    """The memories with their labels as names, the core of the first processor, and what `chosen` says of code and data."""
    root = parse(text)
    nodes = [n for n in root.everything() if n.strings("status")[:1] not in (["disabled"], ["reserved"])]
    regions = []
    for node in nodes:
        access = _access(node)
        cells = node.cells("reg")
        if access and len(cells) >= 2:
            regions.append(Memory(_name(node), access, cells[0], cells[1]))
    memory = without_overlaps(regions)
    flash, ram, slot = _chosen(root)
    if flash is not None and slot is not None and len(slot.cells("reg")) >= 2:
        memory = _cut(memory, _name(flash), slot.cells("reg"))
    names = {m.name for m in memory}
    code, data = ("" if n is None or _name(n) not in names else _name(n) for n in (flash, ram))
    return Found(memory, _core(nodes), code, data)


def chosen_sizes(text: str) -> tuple[int | None, int | None]:
    """Bytes that Zephyr links code into and data into, as `chosen` says (None: it does not); E5385 as `parse`."""
    flash, ram, slot = map(_size, _chosen(parse(text)))
    return flash if slot is None else slot, ram


def _size(node: Node | None) -> int | None:
    cells = [] if node is None else node.cells("reg")
    return cells[1] if len(cells) >= 2 else None


def _chosen(root: Node) -> tuple[Node | None, Node | None, Node | None]:
    """The nodes that `chosen` names as flash, as RAM and as the partition of the code."""
    chosen = {k: v for n in root.everything() if n.name == "chosen" for k, v in n.properties.items()}
    by_label = {label: n for n in root.everything() for label in n.labels}
    by_path = {_path(n): n for n in root.everything()}

    def target(key: str) -> Node | None:
        reference = re.search(r"&(?:\{([^}]+)\}|([\w-]+))", chosen.get(key, ""))
        if reference is None:
            return None
        return by_path.get(reference[1]) if reference[1] else by_label.get(reference[2])

    return target("zephyr,flash"), target("zephyr,sram"), target("zephyr,code-partition")


def parse(text: str) -> Node:
    """The tree; nodes of one path and `&label` are merged.  Raises UsageError E5385 where brackets do not match."""
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
    plain = re.sub(
        r"^\s*#\s*(?:include|if|ifdef|ifndef|else|endif|define|undef|error|pragma|line|[0-9]).*$", "", plain, flags=re.M
    )
    root = Node("")
    at, words, depth = root, "", 0
    for token in _TOKEN.findall(plain):
        if token == "{":
            depth += 1
            if depth > _DEEPEST:
                raise UsageError(Problem("E5385", "the devicetree is nested too deeply"))
            at, words = _enter(root, at, words.strip()), ""
        elif token == "}":
            depth -= 1
            if depth < 0 or at.parent is None:
                raise UsageError(Problem("E5385", "the devicetree closes a bracket that it did not open"))
            at, words = at.parent, ""
        elif token == ";":
            name, _, value = words.strip().partition("=")
            if name.strip() and not name.startswith("/"):
                at.properties[name.split(":")[-1].strip()] = value.strip()
            words = ""
        else:
            words += token
    if depth:
        raise UsageError(Problem("E5385", "the devicetree does not close all its brackets"))
    return root


def _enter(root: Node, at: Node, words: str) -> Node:
    """The node that `words {` opens: one of that name or label, or a new one.  A node by label hangs where it was."""
    *labels, name = [part.strip() for part in words.split(":")]
    if name.startswith("&"):
        known = next((n for n in root.everything() if name[1:].strip("{}") in n.labels), None)
        name = known.name if known is not None else name
        node = Node(name, parent=at)
        if known is not None:
            node.labels, node.properties, node.children = known.labels, known.properties, known.children
        else:
            at.children.append(node)
        return node
    name = "" if name == "/" else name
    if name == "" and at is root:
        again = Node("", labels, root.properties, root.children, root)
        return again
    same = next((n for n in at.children if n.name == name), None)
    node = same or Node(name, parent=at)
    node.labels += labels
    if same is None:
        at.children.append(node)
    return node


def _path(node: Node) -> str:
    return "" if node.parent is None or not node.name else f"{_path(node.parent)}/{node.name}"


def _access(node: Node) -> str:
    """rx or rw for a memory, "" for everything else."""
    kinds = node.strings("compatible")
    if any(k in kinds for k in (*_FLASH, *_CODE)):
        return "rx"
    return "rw" if any(k in kinds for k in _DATA) or node.strings("device_type") == ["memory"] else ""


def _name(node: Node) -> str:
    named = node.strings("zephyr,memory-region")
    return region_name(named[0] if named else node.labels[0] if node.labels else node.name.partition("@")[0])


def _core(nodes: list[Node]) -> str:
    """cortex-m4 of "arm,cortex-m4f"; a Cortex-M4 or M33 without f has no FPU."""
    for node in nodes:
        for kind in node.strings("compatible"):
            match = re.fullmatch(r"arm,cortex-(m[0-9]+)(\+?)(f?)", kind)
            if match is not None:
                plain = match[1] in ("m4", "m33") and not match[3]
                return f"cortex-{match[1]}{'plus' if match[2] else ''}{'+nofpu' if plain else ''}"
    return ""


def _cut(memory: tuple[Memory, ...], name: str, cells: list[int]) -> tuple[Memory, ...]:
    """The region of code without what lies before and behind the partition: a boot loader, storage."""
    offset, size = cells[:2]
    return tuple(
        Memory(m.name, m.access, m.origin + offset, size) if m.name == name and offset + size <= m.size else m for m in memory
    )
