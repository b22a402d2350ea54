"""`aot new --kind make`, `cmake` and `mlperf-tiny`: bare-metal firmware, built with GNU make or CMake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.micro.board import Board
from aot.micro.build import project as build
from aot.micro.build.project import named_register_flags, pool_regions
from aot.micro.new.registry import (
    Part,
    ProjectFiles,
    Spec,
    Text,
    common_values,
    integer_only,
    model_files,
    places_of,
    project_files,
    project_kind,
    project_name,
    render,
    runtime_headers,
    runtime_source,
)

_BOARD_SOURCES = ("counter.c", "memory.c", "semihosting.c", "stack_guard.c", "startup.c")
_HOST_SOURCES = ("hosted.c",)
_RUNTIME = "aot/src/"
_PROFILER = f"{_RUNTIME}layer_profile.c"


@project_kind("make")
def make_project(spec: Spec) -> ProjectFiles:
    """Makefile and src/ are the user's; aot/project.mk lists sources and flags."""
    return _bare_project(spec, {"aot/project.mk": "project.mk"}, once=("Makefile",))


@project_kind("cmake")
def cmake_project(spec: Spec) -> ProjectFiles:
    """CMakeLists.txt, CMakePresets.json and src/ are the user's; aot/*.cmake define sources, flags and the compiler."""
    generated = {f"aot/{n}": n for n in ("project.cmake", *([] if spec.board.is_host else ["toolchain.cmake"]))}
    return _bare_project(spec, generated, once=("CMakeLists.txt", "CMakePresets.json"))


def _bare_project(spec: Spec, generated: Mapping[str, str], *, once: Sequence[str]) -> ProjectFiles:
    files = bare_files(spec)
    values = bare_values(spec, files)  # without the profiler's sources
    mine = ["main.c"] if spec.board.is_host else ["main.c", "console.c", "profile.c", "profile.h"]
    return project_files(
        {**files, **profiler_files(spec)}, values, generated={**generated, "README.md": "README.bare.md"},
        once={**{name: name for name in once}, **{f"src/{name}": name for name in mine}},
    )  # fmt: skip


def profiler_files(spec: Spec) -> dict[str, Text]:
    """The per-layer profiler's files, compiled only on request; none for the host, which has no counter."""
    if spec.board.is_host:
        return {}
    header = runtime_headers({}, more=("layer_profile.h",))
    return {_PROFILER: runtime_source("layer_profile.c"), **{f"aot/include/{name}": text for name, text in header.items()}}


def bare_files(spec: Spec) -> dict[str, Text]:
    """Models, runtime and linker script below aot/."""
    files = model_files(spec, sources="aot/models/", headers="aot/models/")
    for name in _HOST_SOURCES if spec.board.is_host else (*_BOARD_SOURCES, counter_source(spec.board)):
        files[_RUNTIME + name] = runtime_source(name)
    for name, text in runtime_headers(files, more=("systick.h", "semihosting.h")).items():
        files[f"aot/include/{name}"] = text
    if not spec.board.is_host:
        rows = [row for part in spec.parts for row in pool_regions(spec.board, part.artifact.metadata)]
        pools = list({row["name"]: row for row in rows}.values())
        files["aot/board.ld"] = build.linker_script(spec.board, places_of(spec), pools)
    return files


def bare_values(spec: Spec, files: dict[str, Text]) -> dict[str, Any]:
    """The values for templates of bare-metal projects, including the common ones."""
    sources = sorted(n for n in files if n.endswith(".c"))
    fast = [n for n in sources if n.endswith("_kernels.c") or n == _RUNTIME + "memory.c"]
    return {
        **common_values(spec),
        "project": project_name(spec.title),
        "small": [n for n in sources if n not in fast],
        "fast": fast,
        "includes": ["aot/include", "aot/models"],
        "own_sources": ["src/main.c"],
        "console": not spec.board.is_host,
        "profiler": "" if spec.board.is_host else _PROFILER,
        "profile_commands": [_profile_command(spec, part) for part in spec.parts],
        "flags": [*spec.board.flags, *named_register_flags(spec.board.flags)],
        "warnings": [w for w in build.WARNINGS if w != "-Werror"],
        "defines": _defines(spec.board),
        "libraries": _libraries(spec),
        "qemu": qemu_arguments(spec.board, SEMIHOSTING),
        "qemu_uart": qemu_arguments(spec.board, SERIAL) if spec.board.uart else [],
        "flash": flash_command(spec.board),
    }


def counter_source(board: Board) -> str:
    """The file of crt/src that counts: dwt.c for the core's cycle counter, or systick.c."""
    return "dwt.c" if board.gdb is not None and board.gdb.counter == "dwt" else "systick.c"


def flash_command(board: Board) -> list[str]:
    """The command that writes image FILE to the board, with the tool of the server in board.toml; empty for unknown tools."""
    server = list(board.gdb.server) if board.gdb is not None else []
    tool = server[0].rpartition("/")[2] if server else ""
    if tool == "openocd":
        words = [
            w
            for i, w in enumerate(server)
            if "{port}" not in w and not (w == "-c" and "{port}" in "".join(server[i + 1 : i + 2]))
        ]
        return [*words, "-c", "program FILE verify reset exit"]
    if tool == "pyocd" and "--target" in server:
        return [server[0], "load", "--target", server[server.index("--target") + 1], "FILE"]
    return []


def _defines(board: Board) -> list[str]:
    """Macros for the caches and for instructions per tick of the timer; without a timer, the host's counter reads 0."""
    tick = board.tick
    caches = [f"AOT_CACHES={board.cache_bits}"] if board.caches else []
    if tick is None:
        return ["AOT_TICK_DEN=1u"]
    return [f"AOT_TICK_NUM={tick.numerator}u", f"AOT_TICK_DEN={tick.denominator}u", *caches]


def _profile_command(spec: Spec, part: Part) -> str:
    """The command that reads the firmware's counts, with the options that the model was compiled with."""
    words = ["--board", spec.board_argument, *spec.options]
    return f"aot profile models/{part.file} --from log.txt -o report/{part.name} {' '.join(words)}"


def _libraries(spec: Spec) -> list[str]:
    if spec.board.is_host:
        return ["-lm"]
    return ["-lgcc"] if integer_only(spec) else ["-lm", "-lc_nano", "-lgcc"]


SEMIHOSTING = (
    "-chardev", "stdio,id=console", "-semihosting-config", "enable=on,target=native,chardev=console", "-serial", "none",
)  # fmt: skip
SERIAL = ("-semihosting-config", "enable=on,target=native", "-serial", "stdio")
"""QEMU options that connect the terminal to the semihosting console, or to the board's serial port."""


def qemu_arguments(board: Board, console: Sequence[str]) -> list[str]:
    """QEMU's arguments except the image; empty for boards that QEMU does not run.  -icount shift=0: 1 ns per instruction."""
    if board.is_host or board.gdb is not None:
        return []
    machine = ["-M", board.machine, "-cpu", board.qemu_cpu, "-icount", "shift=0,sleep=off"]
    return [*machine, "-display", "none", "-monitor", "none", *console, "-kernel"]


# ---- mlperf-tiny: firmware that speaks the serial protocol of the MLPerf Tiny runner


_BENCHMARKS = {490: "kws01", 32 * 32 * 3: "ic01", 96 * 96 * 3: "vww01", 640: "ad01", 30 * 40: "sww01"}
"""Elements of the input -> the runner's name of the benchmark."""
_INTEGERS = ("int8", "int16", "uint8")


@project_kind("mlperf-tiny")
def mlperf_project(spec: Spec) -> ProjectFiles:
    """Built like a make project; src/ is the user's.

    Raises UsageError E5046 for a model with several inputs or outputs, or a board without a serial port.
    """
    _check(spec)
    models = [_model(values) for values in common_values(spec)["models"]]
    values = {**common_values(spec), "models": models, "buffer_bytes": max(m["buffer_bytes"] for m in models)}
    files = bare_files(spec)
    for name in ("mlperf.h", "mlperf.c", "mlperf_model.c", "uart.h", "pin.h"):
        files[f"aot/mlperf/{name}"] = render(f"mlperf/{name}.j2", **values)
    assert spec.board.uart is not None
    files["aot/mlperf/uart.c"] = render(f"mlperf/uart_{spec.board.uart.kind}.c.j2", **values)
    bare = bare_values(spec, files)
    values |= {
        **bare, "models": models, "includes": [*bare["includes"], "aot/mlperf", "src"],
        "own_sources": ["src/main.c", "src/pin.c"], "qemu": qemu_arguments(spec.board, SERIAL),
        "console": False,  # the port is the runner's
        "profiler": "",
    }  # fmt: skip
    return project_files(
        files, values, generated={"aot/project.mk": "project.mk", "README.md": "mlperf/README.md"},
        once={"Makefile": "Makefile", **{f"src/{n}": f"mlperf/{n}" for n in ("main.c", "submission.h", "pin.c")}},
    )  # fmt: skip


def _check(spec: Spec) -> None:
    problems = []
    for part in spec.parts:
        tensors = (len(part.inputs), len(part.outputs))
        if tensors != (1, 1):
            problems.append(f"{part.name} has {tensors[0]} inputs and {tensors[1]} outputs instead of one each")
        dtypes = {i["dtype"] for i in (*part.artifact.metadata["inputs"], *part.artifact.metadata["outputs"])}
        if not dtypes <= {*_INTEGERS, "float32"}:
            problems.append(f"{part.name} has tensors of {', '.join(sorted(dtypes))}")
        if part.artifact.metadata.get("feed"):
            problems.append(f"{part.name} is fed by rows, but the runner sends a whole input")
    if spec.board.uart is None:
        problems.append(f"{spec.board.name} has no [uart] in its board.toml")
    if problems:
        raise UsageError(*(Problem("E5046", f"--kind mlperf-tiny: {text}") for text in problems))


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    """The values of one model for the templates; `elements` counts its input's elements."""
    into, out = model["inputs"][0], model["outputs"][0]
    elements = int(np.prod(into["shape"], dtype=np.int64))
    out_elements = int(np.prod(out["shape"], dtype=np.int64))
    is_integer = into["dtype"] in _INTEGERS
    limits = np.iinfo(into["dtype"]) if is_integer else None
    scaled = is_integer and into["scale"] is not None
    return {
        **model, "elements": elements, "out_elements": out_elements, "scaled": scaled, "is_int8": into["dtype"] == "int8",
        "low": int(limits.min) if limits else 0, "high": int(limits.max) if limits else 0,
        "buffer_bytes": max(into["size"], 4 * elements if scaled else 0),
        "autoencoder": elements == out_elements,
        "benchmark": _BENCHMARKS.get(elements, model["name"]),
        "pixels": into["dtype"] == "int8" and into["zero_point"] == -128 and len(into["shape"]) == 4,
    }  # fmt: skip
