"""The worst-case stack in the header of a model.

The compiler of the C does not know it; it takes GCC's call-graph data and the linked image (aot.micro.build.callgraph).  It
depends on the flags: `NAME_STACK_BOUND` is that of our own, which stand beside it, `NAME_STACK_BOUND_O0` and so on those of
models compiled at one level throughout.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import product

from aot.errors import TargetError
from aot.executor.artifact import Artifact
from aot.micro.board import Board, board_names, load_board
from aot.micro.build.callgraph import stack_bound
from aot.micro.build.image import check_image
from aot.micro.build.project import Project, compiler, prepare
from aot.support.dataclass import dataclass

UNKNOWN = "   stack       not computed (aot compile --stack-bound)\n"
"""The line of the header that gives way to the figure."""

LEVELS = ("-O0", "-Og", "-O1", "-O2", "-Os", "-O3")
FRAMES = ("-fomit-frame-pointer", "-fno-omit-frame-pointer")


@dataclass(frozen=True, slots=True)
class StatedStack:
    """Bytes below the caller of `<name>_run`, and the compiler and flags that they hold for.

    `by_level`: the bound of each -O level that was tried, of the larger one with and without a frame pointer.
    """

    bytes: int
    built_by: str
    by_level: Mapping[str, int] = field(default_factory=dict)


def with_stack_bound(header: str, *, name: str, stack: StatedStack) -> str:
    """The text of `<name>.h` with the bound in its first comment, and with macros of it and of those by level."""
    lines = [f"   stack       {stack.bytes} bytes at most, by {stack.built_by}\n"]
    levels = ", ".join(f"{level} {bound}" for level, bound in stack.by_level.items())
    lines += [f"               all of it at one level: {levels}\n"] if levels else []
    before, found, after = header.replace(UNKNOWN, "".join(lines)).partition(f"#define {name.upper()}_LAYERS ")
    macro = f"#define {name.upper()}_STACK_BOUND"
    text = f"/* Bytes below the caller of {name}_run, compiled by\n   {stack.built_by} */\n{macro} {stack.bytes}u\n"
    if stack.by_level:
        text += "/* With all of the model compiled at one level, with or without a frame pointer, and the worst of them. */\n"
        text += "".join(f"{macro}_{level[1:].upper()} {bound}u\n" for level, bound in stack.by_level.items())
        text += f"{macro}_WORST {max(stack.bytes, *stack.by_level.values())}u\n"
    return f"{before}{text}{found}{after}" if found else header


def built_by(project: Project) -> str:
    """The compiler and those of its flags that the stack depends on."""
    tool = compiler(project.board)
    version = re.search(r"\d+\.\d+\.\d+", tool.version)
    core = " ".join(f for f in project.board.flags if f.startswith("-m"))
    return f"{tool.name} {version.group() if version else ''} with -O2 for kernels, -Os for the rest, {core}".replace("  ", " ")


def bounds_by_level(project: Project) -> dict[str, int]:
    """The bound of the model for each level; one at which the board's flash is too small for it is left out."""
    found: dict[str, int] = {}
    for level, frame in product(LEVELS, FRAMES):
        flagged = replace(project, extra_flags=(*project.extra_flags, level, frame))
        try:
            elf = flagged.model_image()
        except TargetError:
            continue
        calls = [project.folder / path.with_suffix(".ci") for path in flagged.objects("measure").values()]
        bound = stack_bound(elf, [p for p in calls if p.is_file()], f"{project.artifact.name}_run").bytes
        found[level] = max(bound, found.get(level, 0))
    return found


def board_of(cpu: str) -> Board | None:
    """The first emulated board with such a core; None if there is none to link for."""
    boards = (load_board(name) for name in board_names())
    return next((b for b in boards if b.cpu == cpu and b.kind == "qemu"), None)


def state_stack_bound(artifact: Artifact, board: Board) -> Artifact:
    """The artifact with its stack bounds in the header: compiles and links it at all levels, in the cache.

    Raises VerificationError E4030 if there is no bound (recursion, calls through pointers, frames of variable size), and as
    `aot.micro.build.project` does.
    """
    project = prepare(artifact, board)
    stack = StatedStack(check_image(project).stack_bound, built_by(project), bounds_by_level(project))
    header = f"{artifact.name}.h"
    text = with_stack_bound(artifact.files[header], name=artifact.name, stack=stack)
    return replace(artifact, files={**artifact.files, header: text})
