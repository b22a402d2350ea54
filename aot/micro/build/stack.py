"""The worst-case stack in the header of a model.

The compiler does not know it; it takes GCC's call-graph data and the linked image (aot.micro.build.callgraph).
"""

from __future__ import annotations

from dataclasses import replace

from aot.executor.artifact import Artifact
from aot.micro.board import Board, board_names, load_board
from aot.micro.build.image import check_image
from aot.micro.build.project import compiler, prepare

UNKNOWN = "   stack       the worst case is stated with --stack-bound, and by aot build and aot report\n"
"""The line of the header that gives way to the figure."""


def with_stack_bound(header: str, *, name: str, bound: int, tool: str) -> str:
    """The text of `<name>.h` with the bound, in bytes below the caller of `<name>_run`, in its first comment and as a macro."""
    layers = f"#define {name.upper()}_LAYERS "
    before, found, after = header.replace(UNKNOWN, f"   stack       {bound} bytes at most ({tool})\n").partition(layers)
    macro = f"#define {name.upper()}_STACK_BOUND {bound}u /* bytes below the caller of {name}_run */\n"
    return f"{before}{macro}{found}{after}" if found else header


def board_of(cpu: str) -> Board | None:
    """The first board with such a core; None where there is none to link for."""
    boards = (load_board(name) for name in board_names())
    return next((b for b in boards if b.cpu == cpu and not b.is_host), None)


def state_stack_bound(artifact: Artifact, board: Board) -> Artifact:
    """The artifact with its stack bound in the header: compiles and links it, in the cache.

    Raises VerificationError E4030 where there is no bound (recursion, calls through pointers, frames of variable size), and as
    `aot.micro.build.project` does.
    """
    report = check_image(prepare(artifact, board))
    header = f"{artifact.name}.h"
    text = with_stack_bound(artifact.files[header], name=artifact.name, bound=report.stack_bound, tool=compiler(board).name)
    return replace(artifact, files={**artifact.files, header: text})
