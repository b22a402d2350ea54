"""`aot new --kind pico`: a program for Raspberry Pi Pico boards, built with the Pico SDK."""

from __future__ import annotations

from aot.errors import Problem, UsageError
from aot.micro.new.registry import ProjectFiles, Spec, Text, common_values, project_kind, project_name, render
from aot.micro.new.source_tree import source_tree

PICO_BOARDS = {"cortex-m0plus": "pico", "cortex-m0": "pico", "cortex-m33": "pico2"}
"""Core -> the SDK's board: RP2040 and RP2350."""


@project_kind("pico", board="rpi-pico")
def pico_project(spec: Spec) -> ProjectFiles:
    """CMakeLists.txt and src/main.c are the user's; aot/project.cmake names the sources.

    Raises UsageError E5400 for a board with another core than RP2040's or RP2350's.
    """
    if spec.board.cpu not in PICO_BOARDS:
        message = f"the Pico SDK has boards with {', '.join(PICO_BOARDS)}; {spec.board.name} has a {spec.board.cpu}"
        raise UsageError(Problem("E5400", f"--kind pico: {message}"))
    tree = source_tree(spec)
    values = {
        **common_values(spec), "project": project_name(spec.title), "pico_board": PICO_BOARDS[spec.board.cpu],
        "cpu": spec.parts[0].artifact.metadata["target"]["cpu"], "fast": tree.fast, "small": tree.small,
    }  # fmt: skip
    files = dict(tree.files)
    files["aot/project.cmake"] = render("pico/project.cmake.j2", **values)
    files["README.md"] = render("pico/README.md.j2", **values)
    once: dict[str, Text] = {"CMakeLists.txt": render("pico/CMakeLists.txt.j2", **values)}
    return ProjectFiles(files, {**once, "src/main.c": render("pico/main.c.j2", **values)})
