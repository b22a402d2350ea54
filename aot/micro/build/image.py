"""Flash and RAM of a model, and checks for things that it must not contain, from linked images.

Two images are linked: one to run (with start-up code and harness), and the model's own with everything reachable from its
interface.  The second is what the model costs in a product; sizes and checks refer to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from aot.errors import Problem, TargetError, ToolchainError, VerificationError
from aot.executor.artifact import Artifact
from aot.micro.board import Board, board_names, load_board
from aot.micro.build.project import Project, compiler, copied_to, prepare
from aot.micro.build.toolchain import find_tool, run_tool
from aot.support.dataclass import dataclass

HEAP = re.compile(r"^_*(malloc|calloc|realloc|free|sbrk|memalign)(_r)?$")
POOLED = ".constants_"
"""prefix of the sections of constant pools in the linker script"""

_WORKSPACES = (".bss.aot_workspace", ".bss.aot_pool_")
"""prefixes of the input sections of the workspace and of pools in the generated C"""

_INPUT = re.compile(r"^ (\.[\w.*$-]+)(?:\s+|\n\s+)0x([0-9a-f]+)\s+0x([0-9a-f]+) (\S+)$", re.MULTILINE)
_MEMBER = re.compile(r"([^/\\]+\.a)\(([^)]+)\)$")
_FLOAT_BOUNDARY = frozenset({"QUANTIZE", "DEQUANTIZE"})
_LIBM = '#include "aot/libm.h"'


@dataclass(frozen=True, slots=True)
class Piece:
    """One input section as the linker placed it, and the object or library member that it comes from."""

    name: str
    address: int
    size: int
    origin: str


@dataclass(frozen=True, slots=True)
class ImageReport:
    """Bytes of the model's own image, and of the whole one.

    `code` = kernels + main + runtime + padding (.text and unwind tables); `constants` = .rodata; `copied`: constants that the
    start-up code copies to RAM, by region; `workspace` includes pools; `ram` = data + bss + workspace + copied;
    `flash` = code + constants + data.
    `harness_code`: what start-up code and harness add to the image that runs.
    """

    code: int
    code_kernels: int
    code_main: int
    code_runtime: int
    constants: int
    data: int
    bss: int
    workspace: int
    copied: Mapping[str, int]
    flash: int
    ram: int
    stack_bound: int
    stack_path: tuple[str, ...]
    harness_code: int
    runtime: tuple[str, ...]
    """what the model links besides its own sources: crt files and library members"""
    problems: tuple[str, ...]


def section_sizes(elf: Path) -> dict[str, int]:
    """Size in bytes of every allocated section."""
    with elf.open("rb") as stream:
        return {s.name: int(s["sh_size"]) for s in ELFFile(stream).iter_sections() if s["sh_flags"] & 2}


def copied_constants(elf: Path, board: Board) -> dict[str, int]:
    """Bytes of constants that the start-up code copies from flash to RAM, by the region in RAM."""
    copied: dict[str, int] = {}
    with elf.open("rb") as stream:
        rows = [(s["sh_addr"], s["sh_size"]) for s in ELFFile(stream).iter_sections() if s.name.startswith(POOLED)]
    for address, size in rows:
        region = next((m.name for m in board.memory if m.origin <= address < m.origin + m.size), None)
        if region is not None and size and copied_to(board, region):
            copied[region] = copied.get(region, 0) + size
    return copied


class ElfSymbol(NamedTuple):
    """A row of an ELF's symbol table; `kind`: such as STT_FUNC, `section`: an index, or such as SHN_UNDEF."""

    name: str
    address: int
    size: int
    kind: str
    section: int | str


def elf_symbols(elf: Path) -> list[ElfSymbol]:
    """The symbol table of an ELF; empty if it has none."""
    with elf.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        rows = table.iter_symbols() if isinstance(table, SymbolTableSection) else ()
        return [ElfSymbol(s.name, s["st_value"], s["st_size"], s["st_info"]["type"], s["st_shndx"]) for s in rows]


def symbol_addresses(elf: Path) -> dict[str, int]:
    """Addresses by name."""
    return {s.name: s.address for s in elf_symbols(elf)}


def input_sections(map_file: Path) -> list[Piece]:
    """The linked input sections, from the linker's map; `origin` is an object's path or `libgcc.a(_divdi3.o)`."""
    text = map_file.read_text(encoding="utf-8", errors="replace").partition("Linker script and memory map")[2]
    pieces = []
    for name, address, size, origin in _INPUT.findall(text):
        member = _MEMBER.search(origin)
        where = f"{member.group(1)}({member.group(2)})" if member else origin
        pieces.append(Piece(name, int(address, 16), int(size, 16), where))
    return [p for p in pieces if p.size]


def is_integer_model(artifact: Artifact) -> bool:
    """Whether all arithmetic is on integers; conversions from and to float at the edges are allowed.

    A model is not an integer model if an integer operator is defined by float functions, such as SQRT of int16: its kernels
    include aot/libm.h.
    """
    floats = any(
        layer["output"]["dtype"].startswith("float") and layer["op"] not in _FLOAT_BOUNDARY
        for layer in artifact.metadata["layers"]
    )
    return not floats and not any(_LIBM in text for text in artifact.files.values())


def inspect_image(project: Project) -> ImageReport:
    """Link the model's own image and report on it; `problems` is empty for a clean image (boards only)."""
    elf = project.model_image()
    whole = section_sizes(project.image("measure"))
    sizes = section_sizes(elf)
    objects = project.objects("measure")
    sources = {str(path): source for source, path in objects.items()}
    sections = input_sections(elf.with_suffix(".map"))
    text = [s for s in sections if s.name.startswith((".text", ".ARM.exidx"))]
    name = project.artifact.name
    kernels = sum(s.size for s in text if sources.get(s.origin) == f"{name}_kernels.c")
    main = sum(s.size for s in text if sources.get(s.origin, "crt/").startswith("crt/") is False) - kernels
    used = sorted({sources.get(s.origin, s.origin) for s in sections if sources.get(s.origin, "crt/").startswith("crt/")})
    compiler_files = [project.folder / path.with_suffix(".ci") for path in objects.values()]
    bound = stack_bound(elf, [p for p in compiler_files if p.is_file()], f"{name}_run")
    code = sizes.get(".text", 0) + sizes.get(".ARM.exidx", 0)
    constants, data, bss = sizes.get(".rodata", 0), sizes.get(".data", 0), sizes.get(".bss", 0)
    constants += sum(n for name, n in sizes.items() if name.startswith(POOLED))
    workspace = sum(s.size for s in sections if s.name.startswith(_WORKSPACES))
    copied = copied_constants(elf, project.board)
    return ImageReport(
        code=code, code_kernels=kernels, code_main=main, code_runtime=code - kernels - main, constants=constants, data=data,
        bss=bss, workspace=workspace, copied=copied, flash=code + constants + data,
        ram=data + bss + workspace + sum(copied.values()), stack_bound=bound.bytes, stack_path=bound.path,
        harness_code=whole.get(".text", 0) + whole.get(".ARM.exidx", 0) - code, runtime=tuple(used),
        problems=_problems(project, elf, used, bound),
    )  # fmt: skip


def _problems(project: Project, elf: Path, used: list[str], bound: StackBound) -> tuple[str, ...]:
    named = {s.name for s in elf_symbols(elf) if s.kind in ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE")}
    problems = [f"heap: {s}" for s in sorted(named) if HEAP.match(s)]
    problems += bound.problems
    libraries = [u for u in used if u.endswith(")") and not u.startswith("libgcc.a(")]
    if is_integer_model(project.artifact):
        problems += [f"integer model links {u}" for u in libraries]
    else:
        problems += [f"links {u}" for u in libraries if not u.startswith(("libm.a(", "libc_nano.a("))]
    return tuple(problems)


def check_image(project: Project) -> ImageReport:
    """Like inspect_image; raises VerificationError E4030 with every problem if the image is not clean."""
    report = inspect_image(project)
    if report.problems:
        raise VerificationError(*(Problem("E4030", text) for text in report.problems))
    return report


# ---- worst-case stack, from the disassembly and from GCC's data about each function (-fcallgraph-info=su,da)
# Both are needed: the disassembly covers libgcc and sees every push (GCC's figure misses registers that a Thumb-1 prologue pushes
# only to make room); GCC knows frames that are allocated by adding a register to sp, and which calls go through pointers.
# A frame is the sum of everything that a function pushes on any path, so the bound may be too high, but never too low.


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
    """GCC's data about one function: `kind` is static, dynamic or dynamic,bounded."""

    bytes: int
    kind: str


def _registers(operands: str) -> int:
    """Bytes of a register list such as {r4-r7, lr} or {d8-d11}."""
    match = _LIST.search(operands)
    total = 0
    for item in match.group(1).split(",") if match else []:
        names = item.strip().split("-")
        count = int(names[-1][1:]) - int(names[0][1:]) + 1 if len(names) == 2 else 1
        total += count * (8 if names[0].startswith("d") else 4)
    return total


def _pushed(mnemonic: str, operands: str) -> int:
    """Bytes by which an instruction lowers sp by a constant."""
    base = mnemonic.split(".")[0]
    if base in ("push", "vpush") or (base in ("stmdb", "vstmdb") and operands.startswith("sp!")):
        return _registers(operands)
    match = re.search(r"\[sp, #-(\d+)\]!", operands)
    if match:
        return int(match.group(1))
    match = re.match(r"sp,(?: sp,)? #(-?\d+)", operands)
    if match and base in ("sub", "subw"):
        return int(match.group(1))
    return max(0, -int(match.group(1))) if match and base in ("add", "addw") else 0


def disassemble(elf: Path) -> dict[int, Function]:
    """Address -> function, for all functions of the image, with their pushes and branch targets."""
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
        match = _INSTRUCTION.match(line)
        if match and current is not None:
            _note(current, match.group(2), match.group(3) or "")
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
    """Replace branch targets by the addresses of their functions; drop branches within a function."""
    starts = sorted(functions)
    for function in functions.values():
        owners = {max((s for s in starts if s <= t), default=function.address) for t in function.calls}
        if function.address not in function.calls:  # a branch back to the very start may be a loop or a recursion
            owners.discard(function.address)
        function.calls = owners


def read_compiler_frames(files: Iterable[Path]) -> tuple[dict[str, CompilerFrame], set[str], set[str]]:
    """From .ci files: function name -> frame, functions that call through a pointer, functions that call themselves."""
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
    """Worst-case bytes below the root's caller, the deepest path, and the problems that make a bound impossible."""

    bytes: int
    path: tuple[str, ...]
    problems: tuple[str, ...]


def stack_bound(elf: Path, compiler_files: Iterable[Path], root: str) -> StackBound:
    """The bound for `root` and everything that it can reach in `elf`.

    Problems are recursion, calls through pointers, and frames of variable size (alloca, VLA) among the reachable functions.
    """
    functions = disassemble(elf)
    frames, indirect, recursive = read_compiler_frames(compiler_files)
    start = next((f for f in functions.values() if f.name == root), None)
    if start is None:
        raise ToolchainError(Problem("E3003", f"{root} is not in {elf.name}"))
    problems: list[str] = []
    for function in functions.values():
        compiled = frames.get(function.name)
        if compiled is not None:
            function.indirect = function.name in indirect
            pushed = function.frame
            function.frame = compiled.bytes + pushed if function.sp_by_register else max(compiled.bytes, pushed)
    best: dict[int, tuple[int, tuple[str, ...]]] = {}

    def visit(function: Function, active: tuple[int, ...]) -> tuple[int, tuple[str, ...]]:
        if function.address in best:
            return best[function.address]
        compiled = frames.get(function.name)
        if function.indirect:
            problems.append(f"{function.name} calls through a pointer")
        if compiled is None and function.sp_by_register:
            problems.append(f"{function.name} has a frame of unknown size")
        if compiled is not None and compiled.kind.startswith("dynamic") and "bounded" not in compiled.kind:
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


# ---- the worst-case stack in the header of a model
# It depends on the flags: `NAME_STACK_BOUND` is for aot's flags, which are printed beside it; `NAME_STACK_BOUND_O0` and so on are
# for a model compiled entirely at one level.


UNKNOWN = "   stack       not computed (aot compile --stack-bound)\n"
"""The line of the header that is replaced by the figure."""

LEVELS = ("-O0", "-Og", "-O1", "-O2", "-Os", "-O3")
FRAMES = ("-fomit-frame-pointer", "-fno-omit-frame-pointer")


@dataclass(frozen=True, slots=True)
class StatedStack:
    """Bytes below the caller of `<name>_run`, and the compiler and flags that this bound is valid for.

    `by_level`: the bound of each -O level that was tried, the larger of the ones with and without a frame pointer.
    """

    bytes: int
    built_by: str
    by_level: Mapping[str, int] = field(default_factory=dict)


def with_stack_bound(header: str, *, name: str, stack: StatedStack) -> str:
    """The text of `<name>.h` with the bounds in its first comment and as macros."""
    lines = [f"   stack       {stack.bytes} bytes at most, by {stack.built_by}\n"]
    levels = ", ".join(f"{level} {bound}" for level, bound in stack.by_level.items())
    lines += [f"               all of it at one level: {levels}\n"] if levels else []
    before, anchor, after = header.replace(UNKNOWN, "".join(lines)).partition(f"#define {name.upper()}_LAYERS ")
    macro = f"#define {name.upper()}_STACK_BOUND"
    text = f"/* Bytes below the caller of {name}_run, compiled by\n   {stack.built_by} */\n{macro} {stack.bytes}u\n"
    if stack.by_level:
        text += "/* With all of the model compiled at one level, with or without a frame pointer, and the worst of them. */\n"
        text += "".join(f"{macro}_{level[1:].upper()} {bound}u\n" for level, bound in stack.by_level.items())
        text += f"{macro}_WORST {max(stack.bytes, *stack.by_level.values())}u\n"
    return f"{before}{text}{anchor}{after}" if anchor else header


def built_by(project: Project) -> str:
    """The compiler, and its flags that the stack depends on."""
    tool = compiler(project.board)
    version = re.search(r"\d+\.\d+\.\d+", tool.version)
    core = " ".join(f for f in project.board.flags if f.startswith("-m"))
    return f"{tool.name} {version.group() if version else ''} with -O2 for kernels, -Os for the rest, {core}".replace("  ", " ")


def bounds_by_level(project: Project) -> dict[str, int]:
    """Level -> bound of the model, without levels at which the model does not fit the board's flash."""
    bounds: dict[str, int] = {}
    for level, frame in product(LEVELS, FRAMES):
        flagged = replace(project, extra_flags=(*project.extra_flags, level, frame))
        try:
            elf = flagged.model_image()
        except TargetError:
            continue
        calls = [project.folder / path.with_suffix(".ci") for path in flagged.objects("measure").values()]
        bound = stack_bound(elf, [p for p in calls if p.is_file()], f"{project.artifact.name}_run").bytes
        bounds[level] = max(bound, bounds.get(level, 0))
    return bounds


def board_of(cpu: str) -> Board | None:
    """The first emulated board with this core; None if there is none."""
    boards = (load_board(name) for name in board_names())
    return next((b for b in boards if b.cpu == cpu and b.kind == "qemu"), None)


def state_stack_bound(artifact: Artifact, board: Board) -> Artifact:
    """The artifact with its stack bounds in the header, after compiling and linking it at all levels (cached).

    Raises VerificationError E4030 if there is no bound (recursion, calls through pointers, frames of variable size), and the
    errors of `aot.micro.build.project`.
    """
    project = prepare(artifact, board)
    stack = StatedStack(check_image(project).stack_bound, built_by(project), bounds_by_level(project))
    header = f"{artifact.name}.h"
    text = with_stack_bound(artifact.files[header], name=artifact.name, stack=stack)
    return replace(artifact, files={**artifact.files, header: text})
