"""Worst-case stack of a linked image, from its disassembly and from what GCC knows of each function (-fcallgraph-info=su,da).

Both sources are needed: the disassembly covers libgcc and sees every push (GCC's figure misses registers that a Thumb-1 prologue
pushes only to make room); GCC knows frames that are made by adding a register to sp, and which calls go through pointers.
A frame is the sum of everything that a function pushes on any path, so the bound may be too high, never too low.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from pathlib import Path

from aot.errors import Problem, ToolchainError
from aot.micro.build.toolchain import find_tool, run_tool
from aot.support.dataclass import dataclass

_FUNCTION = re.compile(r"^([0-9a-f]{8}) <([^>]+)>:$")
_INSTRUCTION = re.compile(r"^ *([0-9a-f]+):\t[0-9a-f ]+\t(\S+)(?:\t(.*))?$")
_TARGET = re.compile(r"\b([0-9a-f]+) <[^>]+>")
_NODE = re.compile(r'^node: \{ title: "([^"]+)" label: "[^"]*?\\n(\d+) bytes \(([^)]*)\)')
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"')
_LIST = re.compile(r"\{([^}]*)\}")
_BRANCH = re.compile(r"^(bl|b|b(eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)|cbn?z)(\.[nw])?$")


@dataclass(slots=True)
class Function:
    """One function of the image; `frame` in bytes."""

    name: str
    address: int
    frame: int = 0
    calls: set[int] = field(default_factory=set)
    sp_by_register: bool = False
    indirect: bool = False


@dataclass(frozen=True, slots=True)
class CompilerFrame:
    """What GCC says of one function: `kind` is static, dynamic or dynamic,bounded."""

    bytes: int
    kind: str


def _registers(operands: str) -> int:
    """Bytes of a register list such as {r4-r7, lr} or {d8-d11}."""
    found = _LIST.search(operands)
    total = 0
    for item in found.group(1).split(",") if found else []:
        names = item.strip().split("-")
        count = int(names[-1][1:]) - int(names[0][1:]) + 1 if len(names) == 2 else 1
        total += count * (8 if names[0].startswith("d") else 4)
    return total


def _pushed(mnemonic: str, operands: str) -> int:
    """Bytes by which an instruction lowers sp by a constant."""
    base = mnemonic.split(".")[0]
    if base in ("push", "vpush") or (base in ("stmdb", "vstmdb") and operands.startswith("sp!")):
        return _registers(operands)
    found = re.search(r"\[sp, #-(\d+)\]!", operands)
    if found:
        return int(found.group(1))
    found = re.match(r"sp,(?: sp,)? #(-?\d+)", operands)
    if found and base in ("sub", "subw"):
        return int(found.group(1))
    return max(0, -int(found.group(1))) if found and base in ("add", "addw") else 0


def disassemble(elf: Path) -> dict[int, Function]:
    """All functions of the image by address, with their pushes and the targets of their branches."""
    done = run_tool([find_tool("arm-none-eabi-objdump").path, "-d", elf.name], elf.parent)
    if done.code != 0:
        raise ToolchainError(Problem("E3003", f"objdump failed on {elf.name}: {done.err.strip()[:200]}"))
    functions: dict[int, Function] = {}
    current: Function | None = None
    for line in done.out.splitlines():
        start = _FUNCTION.match(line)
        if start:
            current = functions.setdefault(int(start.group(1), 16), Function(start.group(2), int(start.group(1), 16)))
            continue
        found = _INSTRUCTION.match(line)
        if found and current is not None:
            _note(current, found.group(2), found.group(3) or "")
    _resolve(functions)
    return functions


def _note(function: Function, mnemonic: str, operands: str) -> None:
    function.frame += _pushed(mnemonic, operands)
    base = mnemonic.split(".")[0]
    if base in ("sub", "add") and re.match(r"sp,(?: sp,)? [ri]\d*\b", operands):
        function.sp_by_register = True
    if _BRANCH.match(mnemonic):
        target = _TARGET.search(operands)
        if target:
            function.calls.add(int(target.group(1), 16))
    elif base == "blx" or (base == "bx" and operands.strip() != "lr"):
        function.indirect = True


def _resolve(functions: Mapping[int, Function]) -> None:
    """Branch targets become function addresses; branches within a function go."""
    starts = sorted(functions)
    for function in functions.values():
        owners = {max((s for s in starts if s <= t), default=function.address) for t in function.calls}
        if function.address not in function.calls:  # a branch back to the very start may be a loop or a recursion
            owners.discard(function.address)
        function.calls = owners


def read_compiler_frames(files: Iterable[Path]) -> tuple[dict[str, CompilerFrame], set[str], set[str]]:
    """From .ci files: frame by function name, functions that call through a pointer, functions that call themselves."""
    frames: dict[str, CompilerFrame] = {}
    indirect: set[str] = set()
    recursive: set[str] = set()
    for path in files:
        for line in path.read_text(encoding="utf-8").splitlines():
            node, edge = _NODE.match(line), _EDGE.match(line)
            if node:
                name = node.group(1).rsplit(":", 1)[-1]
                frame = CompilerFrame(int(node.group(2)), node.group(3))
                if name not in frames or frame.bytes > frames[name].bytes:
                    frames[name] = frame
            elif edge:
                source, target = (edge.group(i).rsplit(":", 1)[-1] for i in (1, 2))
                if target == "__indirect_call":
                    indirect.add(source)
                if source == target:
                    recursive.add(source)
    return frames, indirect, recursive


@dataclass(frozen=True, slots=True)
class StackBound:
    """Worst-case bytes below the caller of the root, the deepest path, and everything that makes a bound impossible."""

    bytes: int
    path: tuple[str, ...]
    problems: tuple[str, ...]


def stack_bound(elf: Path, compiler_files: Iterable[Path], root: str) -> StackBound:
    """The bound for `root` and all it can reach in `elf`.

    Problems are recursion, calls through pointers, and frames of variable size (alloca, VLA) among the reachable functions.
    """
    functions = disassemble(elf)
    frames, indirect, recursive = read_compiler_frames(compiler_files)
    start = next((f for f in functions.values() if f.name == root), None)
    if start is None:
        raise ToolchainError(Problem("E3003", f"{root} is not in {elf.name}"))
    problems: list[str] = []
    for function in functions.values():
        known = frames.get(function.name)
        if known is not None:
            function.indirect = function.name in indirect
            function.frame = known.bytes + function.frame if function.sp_by_register else max(known.bytes, function.frame)
    best: dict[int, tuple[int, tuple[str, ...]]] = {}

    def visit(function: Function, active: tuple[int, ...]) -> tuple[int, tuple[str, ...]]:
        if function.address in best:
            return best[function.address]
        known = frames.get(function.name)
        if function.indirect:
            problems.append(f"{function.name} calls through a pointer")
        if known is None and function.sp_by_register:
            problems.append(f"{function.name} has a frame of unknown size")
        if known is not None and known.kind.startswith("dynamic") and "bounded" not in known.kind:
            problems.append(f"{function.name} has a frame of variable size (alloca or VLA)")
        if function.name in recursive:
            problems.append(f"{function.name} calls itself")
        deepest: tuple[int, tuple[str, ...]] = (0, ())
        for address in sorted(function.calls):
            if address in active or address == function.address:
                if address != function.address:
                    problems.append(f"recursion: {function.name} reaches {functions[address].name} again")
                continue
            deepest = max(deepest, visit(functions[address], (*active, function.address)), key=lambda b: b[0])
        best[function.address] = (function.frame + deepest[0], (function.name, *deepest[1]))
        return best[function.address]

    depth, path = visit(start, ())
    return StackBound(depth, path, tuple(dict.fromkeys(problems)))
