"""What a model takes in flash and RAM, and what it must not contain, both read from linked images.

Two images are linked: the one that runs (with start-up and harness) and the model's own, made of what is reachable from its
interface.  The second is what the model costs a product; sizes and checks refer to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from aot.errors import Problem, VerificationError
from aot.executor.artifact import Artifact
from aot.micro.board import Board
from aot.micro.build.callgraph import StackBound, stack_bound
from aot.micro.build.pools import copied_to
from aot.micro.build.project import Project
from aot.support.dataclass import dataclass

HEAP = re.compile(r"^_*(malloc|calloc|realloc|free|sbrk|memalign)(_r)?$")
POOLED = ".constants_"
"""how the sections of pools of constants begin in the linker script"""

_WORKSPACES = (".bss.aot_workspace", ".bss.aot_pool_")
"""how the input sections of the workspace, and of all that lies in pools, begin in the generated C"""

_INPUT = re.compile(r"^ (\.[\w.*$-]+)(?:\s+|\n\s+)0x([0-9a-f]+)\s+0x([0-9a-f]+) (\S+)$", re.MULTILINE)
_MEMBER = re.compile(r"([^/\\]+\.a)\(([^)]+)\)$")
_FLOAT_BOUNDARY = frozenset({"QUANTIZE", "DEQUANTIZE"})
_LIBM = '#include "aot/libm.h"'


@dataclass(frozen=True, slots=True)
class Section:
    """One input section of the image: which object (or library member) gave how many bytes."""

    name: str
    size: int
    origin: str


@dataclass(frozen=True, slots=True)
class ImageReport:
    """Bytes of the model's own image, and of the whole one.

    `code` = kernels + main + runtime + padding (.text and unwind tables); `constants` = .rodata; `copied` are those of them that
    start-up copies to RAM, by region; `workspace` with all that lies in pools; `ram` = data + bss + workspace + copied;
    `flash` = code + constants + data.
    `harness_code` is what start-up and measuring add in the image that runs.
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
    """what the model pulls in besides its own sources: crt files and library members"""
    problems: tuple[str, ...]


def section_sizes(elf: Path) -> dict[str, int]:
    """Size in bytes of every allocated section."""
    with elf.open("rb") as stream:
        return {s.name: int(s["sh_size"]) for s in ELFFile(stream).iter_sections() if s["sh_flags"] & 2}


def copied_constants(elf: Path, board: Board) -> dict[str, int]:
    """Bytes of constants that the start-up code copies from flash to RAM, by the region they are read from."""
    found: dict[str, int] = {}
    with elf.open("rb") as stream:
        rows = [(s["sh_addr"], s["sh_size"]) for s in ELFFile(stream).iter_sections() if s.name.startswith(POOLED)]
    for address, size in rows:
        region = next((m.name for m in board.memory if m.origin <= address < m.origin + m.size), None)
        if region is not None and size and copied_to(board, region):
            found[region] = found.get(region, 0) + size
    return found


def defined_symbols(elf: Path) -> set[str]:
    """Names of all functions and objects in the image."""
    with elf.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        if not isinstance(table, SymbolTableSection):
            return set()
        return {s.name for s in table.iter_symbols() if s["st_info"]["type"] in ("STT_FUNC", "STT_OBJECT", "STT_NOTYPE")}


def input_sections(map_file: Path) -> list[Section]:
    """The input sections that were kept, from the linker's map; `origin` is an object's path or `libgcc.a(_divdi3.o)`."""
    text = map_file.read_text(encoding="utf-8", errors="replace").partition("Linker script and memory map")[2]
    sections = []
    for name, _, size, origin in _INPUT.findall(text):
        member = _MEMBER.search(origin)
        sections.append(Section(name, int(size, 16), f"{member.group(1)}({member.group(2)})" if member else origin))
    return [s for s in sections if s.size]


def is_integer_model(artifact: Artifact) -> bool:
    """Whether all arithmetic is on integers; conversions from and to float at the edges do not count.

    Neither is a model one whose operators of integers are defined by functions of floats, as SQRT of int16 is: its kernels
    declare them.
    """
    floats = any(
        layer["output"]["dtype"].startswith("float") and layer["op"] not in _FLOAT_BOUNDARY
        for layer in artifact.metadata["layers"]
    )
    return not floats and not any(_LIBM in text for text in artifact.files.values())


def inspect_image(project: Project) -> ImageReport:
    """Link the model's own image and report on it; `problems` is empty for a clean one (boards only)."""
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
        problems=_problems(project, defined_symbols(elf), used, bound),
    )  # fmt: skip


def _problems(project: Project, symbols: set[str], used: list[str], bound: StackBound) -> tuple[str, ...]:
    found = [f"heap: {s}" for s in sorted(symbols) if HEAP.match(s)]
    found += bound.problems
    libraries = [u for u in used if u.endswith(")") and not u.startswith("libgcc.a(")]
    if is_integer_model(project.artifact):
        found += [f"integer model links {u}" for u in libraries]
    else:
        found += [f"links {u}" for u in libraries if not u.startswith(("libm.a(", "libc_nano.a("))]
    return tuple(found)


def check_image(project: Project) -> ImageReport:
    """inspect_image, and VerificationError E4030 with every problem when the image is not clean."""
    report = inspect_image(project)
    if report.problems:
        raise VerificationError(*(Problem("E4030", text) for text in report.problems))
    return report
