"""Drafts of board files from a linker script or a devicetree."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field

from aot.errors import Problem, UsageError
from aot.micro.board import Memory, parse_board
from aot.support.dataclass import dataclass
from aot.target.cpu import CORES, find_core


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip as a file describes it: `memory` without overlaps; `cpu` as for --target, or ""; the regions `code` and `data`."""

    memory: tuple[Memory, ...]
    cpu: str = ""
    code: str = ""
    data: str = ""


def region_name(text: str) -> str:
    """A name that board files accept: ASCII letters, digits and _."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", text).strip("_").upper()
    return name if name[:1].isalpha() else f"MEMORY_{name}".rstrip("_")


def without_overlaps(regions: list[Memory]) -> tuple[Memory, ...]:
    """The regions in order, without any that are empty, outside 32 bits, or overlap or share the name of an earlier one."""
    kept: list[Memory] = []
    for m in regions:
        end = m.origin + m.size
        clash = any(o.name == m.name or (o.origin < end and m.origin < o.origin + o.size) for o in kept)
        if m.size > 0 and m.origin >= 0 and end <= 1 << 32 and not clash:
            kept.append(m)
    return tuple(kept)


# ---- numbers in both formats: 0x20000000, 128K, 4 * (1 << 20), ORIGIN(RAM) + 4


_MOST = 2000
"""Maximum length of an expression in characters."""
_UNITS = {"K": 1 << 10, "M": 1 << 20}
_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_, ast.BitOr: operator.or_,
}  # fmt: skip


def value_of(text: str, symbols: Mapping[str, int]) -> int | None:
    """The value of an expression with `symbols`, where `ORIGIN(NAME)` is the symbol `ORIGIN_NAME`; None if it is not valid."""
    if len(text) > _MOST:
        return None
    plain = re.sub(r"\b(ORIGIN|LENGTH|DT_SIZE_K|DT_SIZE_M)\s*\(\s*([\w.$]+)\s*\)", _call, text)
    plain = re.sub(r"\b(0[xX][0-9a-fA-F]+|[0-9]+)([kKmM])?(?:[uU]?[lL]{0,2}|[uU])\b", _number, plain).replace("/", "//")
    try:
        return _evaluate(ast.parse(plain.strip(), mode="eval").body, symbols)
    except (SyntaxError, ValueError, RecursionError, ZeroDivisionError, MemoryError):
        return None


def _call(match: re.Match[str]) -> str:
    name, argument = match[1], match[2]
    if name.startswith("DT_SIZE_"):
        return f"({argument}{name[-1]})"
    return f"{name}_{argument}"


def _number(match: re.Match[str]) -> str:
    return str(int(match[1], 16 if match[1][:2] in ("0x", "0X") else 10) * _UNITS.get((match[2] or "").upper(), 1))


def _evaluate(node: ast.expr, symbols: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.Name(id=name) if name in symbols:
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand, symbols)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATIONS:
            a, b = _evaluate(left, symbols), _evaluate(right, symbols)
            if isinstance(op, ast.LShift) and not 0 <= b <= 32:
                raise ValueError
            return _OPERATIONS[type(op)](a, b)
    raise ValueError


# ---- linker scripts of GNU ld


_REGION = re.compile(
    r"([\w.$-]+)\s*(?:\(([^)]*)\))?\s*:\s*(?:ORIGIN|org|o)\s*=\s*([^,]+?),\s*(?:LENGTH|len|l)\s*=\s*([^\n;}]+?)\s*(?=$|\n|;|})"
)
_ASSIGNMENT = re.compile(r"^\s*([A-Za-z_.$][\w.$]*)\s*=\s*([^;{}]+);", re.MULTILINE)
_NOT_MEMORY = ("IDT_LIST",)
"""Regions that Zephyr uses for tables at build time."""


def read_linker_script(text: str) -> Chip:
    """The regions of its MEMORY command; no regions if there is no such command."""
    plain = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    symbols: dict[str, int] = {}
    for name, expression in _ASSIGNMENT.findall(plain):
        value = value_of(expression, symbols)
        if value is not None:
            symbols.setdefault(name, value)
    regions = []
    for block in re.findall(r"\bMEMORY\b\s*\{([^}]*)\}", plain):
        for name, attributes, origin, length in _REGION.findall(block):
            start, size = value_of(origin, symbols), value_of(length.rstrip(","), symbols)
            if start is None or size is None or name in _NOT_MEMORY:
                continue
            symbols |= {f"ORIGIN_{name}": start, f"LENGTH_{name}": size}
            regions.append(Memory(region_name(name), _region_access(name, attributes), start, size))
    return Chip(without_overlaps(regions))


def _region_access(name: str, attributes: str) -> str:
    """rw or rx, from the attributes before any !; without attributes, from the name."""
    flags = attributes.lower().partition("!")[0]
    if flags.strip():
        return "rw" if "w" in flags else "rx"
    return "rw" if re.search(r"ram|tcm|ccm", name, re.IGNORECASE) and "itcm" not in name.lower() else "rx"


# ---- devicetrees: Zephyr's build/zephyr/zephyr.dts, or a source that needs no includes


_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{};]|[^"{};]+')
_DEEPEST = 64
_FLASH = ("soc-nv-flash",)
_CODE = ("arm,itcm", "nxp,imx-itcm")
_DATA = ("mmio-sram", "arm,dtcm", "nxp,imx-dtcm", "st,stm32-ccm", "zephyr,memory-region")


@dataclass(slots=True)
class Node:
    """A devicetree node; `properties`: name -> text after =, or ""; other nodes refer to it by its `labels`."""

    name: str
    labels: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    parent: Node | None = None

    def everything(self) -> Iterator[Node]:
        """This node and all of its descendants."""
        yield self
        for child in self.children:
            yield from child.everything()

    def strings(self, name: str) -> list[str]:
        return re.findall(r'"((?:\\.|[^"\\])*)"', self.properties.get(name, ""))

    def cells(self, name: str) -> list[int]:
        """The numbers in < >, up to the first that cannot be evaluated."""
        cells: list[int] = []
        for group in re.findall(r"<([^>]*)>", self.properties.get(name, "").replace("<<", " LSHIFT ").replace(">>", " RSHIFT ")):
            for word in re.findall(r"\([^()]*(?:\([^()]*\)[^()]*)*\)|DT_SIZE_[KM]\s*\([^)]*\)|\S+", group):
                value = value_of(word.replace("LSHIFT", "<<").replace("RSHIFT", ">>"), {})
                if value is None:
                    return cells
                cells.append(value)
        return cells


def read_devicetree(text: str) -> Chip:
    """The memories, named by their labels, the core of the first processor, and `chosen`'s regions for code and data."""
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
    return Chip(memory, _core(nodes), code, data)


def chosen_sizes(text: str) -> tuple[int | None, int | None]:
    """Sizes of the memories that Zephyr links code and data into, from `chosen` (None: not there); E5385 as in `parse`."""
    flash, ram, slot = map(_size, _chosen(parse(text)))
    return flash if slot is None else slot, ram


def _size(node: Node | None) -> int | None:
    cells = [] if node is None else node.cells("reg")
    return cells[1] if len(cells) >= 2 else None


def _chosen(root: Node) -> tuple[Node | None, Node | None, Node | None]:
    """The nodes that `chosen` names as flash, RAM and code partition."""
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
    """The tree; nodes with the same path, and `&label` nodes, are merged.  UsageError E5385 if brackets do not match."""
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
    """The node that `words {` opens: an existing one with that name or label, or a new one.  `&label` does not move a node."""
    *labels, name = [part.strip() for part in words.split(":")]
    if name.startswith("&"):
        labelled = next((n for n in root.everything() if name[1:].strip("{}") in n.labels), None)
        name = labelled.name if labelled is not None else name
        node = Node(name, parent=at)
        if labelled is not None:
            node.labels, node.properties, node.children = labelled.labels, labelled.properties, labelled.children
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
    """The target for "arm,cortex-m4f" and the like; a Cortex-M4 or M33 without f has no FPU."""
    for node in nodes:
        for kind in node.strings("compatible"):
            match = re.fullmatch(r"arm,cortex-(m[0-9]+)(\+?)(f?)", kind)
            if match is not None:
                plain = match[1] in ("m4", "m33") and not match[3]
                return f"cortex-{match[1]}{'plus' if match[2] else ''}{'+nofpu' if plain else ''}"
    return ""


def _cut(memory: tuple[Memory, ...], name: str, cells: list[int]) -> tuple[Memory, ...]:
    """The memories with the code region cut to the partition; before and after it are a boot loader and storage."""
    offset, size = cells[:2]
    return tuple(
        Memory(m.name, m.access, m.origin + offset, size) if m.name == name and offset + size <= m.size else m for m in memory
    )


# ---- QEMU machines whose memory maps contain those of boards, so that the boards' images run there too


_KI = 1 << 10
_MI = 1 << 20


@dataclass(frozen=True, slots=True)
class LikeMachine:
    """A machine of QEMU 7.2; `memory`: (first address, bytes); `tick` as in [systick] of a board.toml."""

    name: str
    cores: tuple[str, ...]
    memory: tuple[tuple[int, int], ...]
    tick: tuple[int, int]

    def holds(self, region: Memory) -> bool:
        return any(start <= region.origin and region.origin + region.size <= start + size for start, size in self.memory)


MACHINES = (
    LikeMachine("netduinoplus2", ("cortex-m4",), ((0x08000000, _MI), (0x20000000, 128 * _KI)), (125, 21)),
    LikeMachine("netduino2", ("cortex-m3",), ((0x08000000, _MI), (0x20000000, 128 * _KI)), (25, 3)),
    LikeMachine("microbit", ("cortex-m0",), ((0, 256 * _KI), (0x20000000, 16 * _KI)), (125, 2)),
    LikeMachine("mps2-an385", ("cortex-m3", "cortex-m0", "cortex-m0plus"), ((0, 4 * _MI), (0x20000000, 4 * _MI)), (40, 1)),
    LikeMachine("mps2-an386", ("cortex-m4",), ((0, 4 * _MI), (0x20000000, 4 * _MI)), (40, 1)),
    LikeMachine("mps2-an500", ("cortex-m7",), ((0, 4 * _MI), (0x20000000, 4 * _MI)), (40, 1)),
    LikeMachine("mps3-an547", ("cortex-m55",), ((0, 512 * _KI), (0x20000000, 512 * _KI)), (125, 4)),
)
"""Clocks and maps from QEMU's sources; each run checks the tick (E5024)."""


def like_machine(cpu: str, memory: Sequence[Memory], needed: Collection[str]) -> LikeMachine | None:
    """The first machine with this core whose memory contains the regions named in `needed`; None if there is none."""
    core = cpu.partition("+")[0]
    regions = [m for m in memory if m.name in needed]
    return next((m for m in MACHINES if core in m.cores and all(m.holds(r) for r in regions)), None)


def qemu_core(cpu: str, machine: LikeMachine) -> str:
    """The value of QEMU's -cpu: QEMU has no Cortex-M0+, but the machine's own core runs its code."""
    core = cpu.partition("+")[0]
    return machine.cores[0] if core == "cortex-m0plus" else core


# ---- the text of board.toml


_MOST_STACK, _STACK_SHARE = 8192, 16
_ALIGN = 128
"""Alignment of the vector table in bytes, for up to 16 interrupts; ours has none."""

_SERVERS = """\
# A server that is already running. Or replace `connect` by a server that aot starts and stops:
#   OpenOCD  server = ["openocd", "-f", "board/st_nucleo_f4.cfg", "-c", "gdb_port {port}"]
#   pyOCD    server = ["pyocd", "gdbserver", "--target", "nrf52840", "--no-wait", "--port", "{port}"]
#   J-Link   server = ["JLinkGDBServerCLExe", "-device", "STM32F446RE", "-if", "SWD", "-port", "{port}"], reset = ["reset"]
[gdb]
connect = "127.0.0.1:3333"
reset = ["reset halt"]
"""


def draft(chip: Chip, *, name: str, source: str, cpu: str = "") -> str:
    """A valid board.toml: regions, placement, the core's flags, and an emulated machine with that memory map if there is one.

    `source` is the file's name, for a comment; `cpu` overrides the core that was found.  Raises UsageError E5385 (no memory for
    code or data) and E5386 (no core, or an unknown one).
    """
    core = cpu or chip.cpu
    plain = core.partition("+")[0]
    if not CORES.get(plain, CORES["host"]).gcc_flags:
        names = ", ".join(c.name for c in CORES.values() if c.gcc_flags)
        message = f"{core!r} is not one of {names}" if core else f"{source} does not name it; give --cpu, one of {names}"
        raise UsageError(Problem("E5386", f"the board's core: {message}"))
    code, data = _largest(chip, "rx", chip.code, source), _largest(chip, "rw", chip.data, source)
    constants = [code, *_others(chip, "rx", code)]
    workspace = [data, *_others(chip, "rw", data)]
    text = f"# A draft from {source}: check the memory map, and the lines marked TODO, against the manual.\n"
    text += f'name = "{name}"\ntitle = "{name}, by {_title(source)}"\nkind = "gdb"\ncpu = "{core}"\n'
    text += f"flags = [{_quoted(_flags(core))}]  # TODO: check the FPU\n\n{_SERVERS}\n"
    text += "# [clock]\n# hz = 16000000  # TODO: the core's clock during measurements\n\n"
    text += f'[cycles]\ncounter = "{"dwt" if CORES[plain].has_trace else "systick"}"\n\n'
    text += _emulated(core, chip, (code.name, data.name), name)
    for m in chip.memory:
        text += f'[[memory]]\nname = "{m.name}"\naccess = "{m.access}"\norigin = 0x{m.origin:08x}\nsize = 0x{m.size:08x}\n\n'
    text += f'[placement]\ncode = "{code.name}"\nconstants = [{_quoted([m.name for m in constants])}]\ndata = "{data.name}"\n'
    text += f"workspace = [{_quoted([m.name for m in workspace])}]\n\n"
    stack = min(_MOST_STACK, data.size // _STACK_SHARE // 8 * 8)
    text += f"[run]\nstack = {stack}\ntimeout_seconds = 120\n"
    parse_board(text, f"{name}/board.toml")
    return text


def _flags(core: str) -> list[str]:
    """The core's flags, with a single-precision FPU, because not every Cortex-M7 has double precision."""
    return [f.replace("fpv5-d16", "fpv5-sp-d16") for f in find_core(core).gcc_flags]


def _largest(chip: Chip, access: str, chosen: str, source: str) -> Memory:
    """The chosen region, or the largest with this access; for code, aligned for a vector table."""
    fitting = [m for m in chip.memory if m.access == access and (access == "rw" or m.origin % _ALIGN == 0)]
    if not fitting:
        what = "code (rx)" if access == "rx" else "data (rw)"
        raise UsageError(Problem("E5385", f"{source} defines no memory for {what}"))
    return next((m for m in fitting if m.name == chosen), max(fitting, key=lambda m: m.size))


def _others(chip: Chip, access: str, first: Memory) -> list[Memory]:
    return sorted((m for m in chip.memory if m.access == access and m != first), key=lambda m: -m.size)


def _emulated(core: str, chip: Chip, needed: tuple[str, str], name: str) -> str:
    machine = like_machine(core, chip.memory, needed)
    if machine is None:
        return ""
    text = f"# --board qemu:PATH/TO/{name}: the same images on an emulated machine, whose memory map contains these regions.\n"
    text += f'[qemu]\nmachine = "{machine.name}"\ncpu = "{qemu_core(core, machine)}"\n\n'
    return text + f"[systick]\ninstructions_per_tick = [{machine.tick[0]}, {machine.tick[1]}]\n\n"


def _quoted(words: list[str]) -> str:
    return ", ".join(f'"{w}"' for w in words)


def _title(source: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in source)[:80]
