"""Runs a model in a Zephyr application, built by Zephyr's own CMake, on an emulated or a connected board.

ZEPHYR_BASE names Zephyr's source tree; its other requirements (ZEPHYR_TOOLCHAIN_VARIANT, Python packages) are the same as for any
application.  Without a west workspace, ZEPHYR_MODULES lists the modules, as for Zephyr itself.
"""

from __future__ import annotations

import hashlib
import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from aot.errors import Problem, TargetError, ToolchainError, UsageError, VerificationError
from aot.executor.artifact import Artifact
from aot.micro.board import MAX_TIMEOUT
from aot.micro.draft import chosen_sizes
from aot.micro.new.registry import model_values, render
from aot.micro.run.runner import decode_outputs, encode_inputs
from aot.micro.run.serial import SerialLink, opened, parse_port, whole_seconds
from aot.support.dataclass import dataclass
from aot.support.text import printable
from aot.system.files import data_folder
from aot.system.process import run_program
from aot.target.cpu import CORES

Array = np.ndarray[Any, Any]

PREFIX = "zephyr:"
"""`--board zephyr:qemu_cortex_m3`"""
DEFAULT_TIMEOUT = 120.0
_PIECE = 1 << 16
_CHATTER = 1 << 22
"""Maximum output of a console besides the model's outputs, in bytes."""
NOTE = "Written by aot verify."
HELIUM = """\
# Zephyr disables the FPU by default, and thus the vector registers, which are the same: enable it if the core has Helium.
config AOT_VERIFY
	def_bool y
	imply FPU if ARMV8_1_M_MVEI

source "Kconfig.zephyr"
"""
"""Kconfig of our applications."""
_BOARD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,127}")


@dataclass(frozen=True, slots=True)
class ZephyrRun:
    """`outputs[set][i]` as in aot.micro.run.runner; `artifact` was compiled for the board's core; `tool` is Zephyr's version."""

    artifact: Artifact
    outputs: list[list[Array]]
    tool: str


def zephyr_base() -> Path:
    """Zephyr's source tree (ToolchainError E3020)."""
    text = os.environ.get("ZEPHYR_BASE", "")
    if not text:
        raise ToolchainError(Problem("E3020", "ZEPHYR_BASE is not set; --board zephyr:... needs Zephyr's source tree"))
    base = Path(text)
    if not (base / "VERSION").is_file():
        raise ToolchainError(Problem("E3020", f"ZEPHYR_BASE={text} is not a Zephyr tree (it has no file VERSION)"))
    for program in ("cmake", "ninja"):
        if shutil.which(program) is None:
            raise ToolchainError(Problem("E3020", f"Zephyr needs {program}, which is not installed"))
    return base


def zephyr_version(base: Path) -> tuple[int, int, int]:
    """The version of a tree: major, minor, patch level."""
    values = dict(re.findall(r"^(\w+) *= *(\d+)", (base / "VERSION").read_text(encoding="utf-8", errors="replace"), re.MULTILINE))
    try:
        return int(values["VERSION_MAJOR"]), int(values["VERSION_MINOR"]), int(values["PATCHLEVEL"])
    except KeyError as error:
        raise ToolchainError(Problem("E3020", f"{base / 'VERSION'} is not Zephyr's: it has no {error.args[0]}")) from None


def cpu_of(config: str) -> str:
    """The aot name of the core in a Zephyr configuration (.config), as in zephyr/cmake/aot.cmake.

    aot must not use what Zephyr does not enable: there are no floating point and no vector registers without CONFIG_FPU, and an
    Armv8-M core may lack the DSP instructions.  Raises ToolchainError E3022 for other cores.
    """
    on = set(re.findall(r"^CONFIG_(\w+)=y$", config, re.MULTILINE))
    older = [c.name for c in CORES.values() if c.architecture.startswith(("Armv6", "Armv7"))]
    name = next((n for n in older if f"CPU_{n.upper().replace('-', '_')}" in on), "")
    if {"ARMV8_1_M_MVEI", "FPU"} <= on:
        name = "cortex-m55"
    elif "ARMV8_M_MAINLINE" in on:
        name = "cortex-m33" if "ARMV8_M_DSP" in on else "cortex-m3"
    elif "ARMV8_M_BASELINE" in on:
        name = "cortex-m0plus"
    if not name:
        raise ToolchainError(Problem("E3022", "aot does not support this board's core (aot targets lists the supported cores)"))
    return f"{name}+nofpu" if "FPU" not in on and "vfp" in CORES[name].features else name


def run_on_zephyr(
    board: str,
    input_sets: Sequence[Sequence[Array]],
    *,
    metadata: Mapping[str, Any],
    compile_for: Callable[[str], Artifact],
    folder: Path,
    timeout: float | None = None,
) -> ZephyrRun:
    """Build an application for Zephyr's `board` in `folder` (empty), run it in QEMU, and read the outputs from its console.

    The board's configuration names the core, which is passed to `compile_for`; `metadata` is the model's for any core, and gives
    names and tensors.  Raises ToolchainError E3020 (no Zephyr), E3021 (it does not build), E3022 (no emulator, or an unknown
    core), E3010, E3011; TargetError E2010, E2011, E2012 (it does not fit); VerificationError E4022 (the model returned a status).
    """
    base = zephyr_base()
    check_name(board)
    _write_application(folder, metadata, input_sets)
    artifact = configure(board, folder, compile_for, data=sum(a.nbytes for arrays in input_sets for a in arrays))
    build = folder / "build"
    build_step(["ninja", "-C", str(build)], folder)
    size = sum(int(o["size"]) for o in metadata["outputs"]) * len(input_sets)
    data = _outputs(_console(build, board, timeout or DEFAULT_TIMEOUT, most=_CHATTER + 4 * size), f"{PREFIX}{board}")
    version = ".".join(map(str, zephyr_version(base)))
    return ZephyrRun(artifact, decode_outputs(metadata["outputs"], data, len(input_sets)), f"Zephyr {version}")


def _outputs(lines: Sequence[str], where: str) -> bytes:
    """The bytes of all outputs, from the application's output (E4022, E3011)."""
    status = next((line for line in lines if line.startswith("aot-status")), "")
    if status:
        raise VerificationError(Problem("E4022", f"the model returned {printable(status.partition(' ')[2])} on {where}"))
    try:
        return bytes.fromhex("".join(line.partition(" ")[2] for line in lines if line.startswith("aot-out ")))
    except ValueError:
        raise ToolchainError(Problem("E3011", f"{where} printed garbled outputs")) from None


def check_name(board: str) -> None:
    """Raise E3022 for an impossible board name, before anything is written or started."""
    if not _BOARD.fullmatch(board):
        raise ToolchainError(Problem("E3022", f"{printable(board)!r} is not the name of a Zephyr board"))


def configure(board: str, folder: Path, compile_for: Callable[[str], Artifact], *, data: int = 0) -> Artifact:
    """Configure the application in `folder` for `board` (a checked name), and add the model, compiled for its core.

    `data`: bytes of test data in flash.  E3021 (it cannot be configured), E3022 (an unknown core); TargetError E2010, E2011 if
    the model does not fit the board described by the devicetree.
    """
    build = folder / "build"
    build_step(["cmake", "-S", str(folder), "-B", str(build), "-GNinja", f"-DBOARD={board}", *_modules()], folder)
    artifact = compile_for(cpu_of((build / "zephyr" / ".config").read_text(encoding="utf-8")))
    check_room(f"{PREFIX}{board}", build, artifact.metadata, data=data)
    for name, text in artifact.files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return artifact


def _modules() -> list[str]:
    modules = os.environ.get("ZEPHYR_MODULES", "")
    return [f"-DZEPHYR_MODULES={modules}"] if modules else []


def _write_application(folder: Path, metadata: Mapping[str, Any], sets: Sequence[Sequence[Array]]) -> None:
    """Write everything but the model; its sources stay empty until the core is known, as CMake needs them to exist."""
    write_frame(folder, metadata, sources=("sets.c",))
    model = model_values(Artifact(str(metadata["name"]), {}, dict(metadata)))
    (folder / "main.c").write_text(render("zephyr/verify_main.c.j2", m=model, note=NOTE), encoding="utf-8")
    data = [encode_inputs(metadata["inputs"], arrays, number) for number, arrays in enumerate(sets)]
    declared, defined = [f"#define AOT_SETS {len(sets)}u"], ['#include "sets.h"']
    for i, info in enumerate(metadata["inputs"]):
        shape = f"const uint8_t aot_inputs_{i}[AOT_SETS][{info['size']}] __attribute__((aligned(16)))"
        declared.append(f"extern {shape};")
        rows = [", ".join(map(str, arrays[i])) for arrays in data]
        defined.append(f"{shape} = {{\n" + "".join(f"  {{{row}}},\n" for row in rows) + "};")
    (folder / "sets.h").write_text("#include <stdint.h>\n" + "\n".join(declared) + "\n", encoding="utf-8")
    (folder / "sets.c").write_text("\n".join(defined) + "\n", encoding="utf-8")


def write_frame(folder: Path, metadata: Mapping[str, Any], *, sources: Sequence[str] = (), settings: str = "") -> None:
    """Write CMakeLists.txt, prj.conf with further `settings`, and empty files for the model's sources."""
    name = str(metadata["name"])
    model = model_values(Artifact(name, {}, dict(metadata)))
    include = (data_folder("crt") / "include").as_posix()
    text = render("zephyr/verify_CMakeLists.txt.j2", m=model, note=NOTE, include=include, sources=sources)
    (folder / "CMakeLists.txt").write_text(text, encoding="utf-8")
    (folder / "Kconfig").write_text(HELIUM, encoding="utf-8")
    (folder / "prj.conf").write_text(f"CONFIG_MAIN_STACK_SIZE={STACK}\n{settings}", encoding="utf-8")
    for source in ("main.c", f"{name}.c", f"{name}_kernels.c", f"{name}_params.c"):
        (folder / source).write_text("", encoding="utf-8")


def _console(build: Path, board: str, timeout: float, *, most: int) -> list[str]:
    """The application's output until it is done, at most `most` bytes; QEMU does not exit on its own."""
    target = _run_target(build, board)
    process = subprocess.Popen(
        ["ninja", "-C", str(build), target], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    data, end = bytearray(), time.monotonic() + timeout
    try:
        while b"aot-done" not in data[-(_PIECE + len(b"aot-done")) :]:
            readable, _, _ = select.select([process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not readable or time.monotonic() >= end:
                raise ToolchainError(Problem("E3010", f"{PREFIX}{board} did not finish within {timeout:g} s"))
            more = os.read(process.stdout.fileno(), _PIECE)
            if not more:
                last = printable(data[-500:].decode("utf-8", "replace"), limit=500)
                raise ToolchainError(Problem("E3011", f"{PREFIX}{board} ended without a result: {last}"))
            data += more
            if len(data) > most:
                raise ToolchainError(Problem("E3011", f"{PREFIX}{board} printed more than {most:,} bytes"))
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)
        process.stdout.close()
    return data.decode("utf-8", "replace").replace("\r", "").splitlines()


def _run_target(build: Path, board: str) -> str:
    """The ninja target that runs the application in the board's own emulator, QEMU, or Arm's FVP (E3022 without any; E3020)."""
    targets = set(re.findall(r"^(run\w*):", _targets(build), re.MULTILINE))
    if not targets:
        raise ToolchainError(Problem("E3022", f"Zephyr does not run {board} in an emulator"))
    cache = (build / "CMakeCache.txt").read_text(encoding="utf-8", errors="replace")
    if "run_qemu" not in targets and re.search(r"^ARMFVP:\w+=.*NOTFOUND$", cache, re.MULTILINE):
        what = "Arm's Fixed Virtual Platform, which is not installed: set ARMFVP_BIN_PATH to its folder"
        raise ToolchainError(Problem("E3020", f"Zephyr runs {board} in {what}"))
    return next(t for t in ("run", "run_qemu", "run_armfvp", min(targets)) if t in targets)


def _targets(build: Path) -> str:
    """The names of ninja's targets, one per line, each followed by a colon."""
    return run_program(["ninja", "-C", str(build), "-t", "targets", "all"]).out


# ---- builds: whether the board has room, and why a build failed


STACK = 16384
"""Stack of the main thread in our applications, in bytes."""
_MOST_LINES = 12
_LINE = 300
_TELLING = re.compile(
    r"\berror\b|overflowed by|will not fit|undefined reference|No board named|Invalid BOARD|FATAL|No module named|not found"
    r"|^\w+(?:Error|Exception): |^warning: |valid board targets",
    re.I,
)
_NINJA = re.compile(
    r"\[\d+/\d+\]|ninja: |FAILED: |: && |(?:/\S*/)?\S*(?:gcc|g\+\+|ccache|cmake|python3?)(?:\.exe)? \S.*\s-|cd \S+ && "
)
"""Ninja's progress and whole commands: they may contain "error" in a file name or an option without being an error."""
_WRAPPED = re.compile(r"^(?:warning|error): |valid board targets", re.I)
"""Kconfig wraps its messages without an indent, and the targets of a board are a list: both end at an empty line."""
_OVERFLOW = re.compile(r"region [`'](\w+)' overflowed by (\d+) bytes")


def build_step(command: Sequence[str], folder: Path) -> None:
    """Run one step of a build; if it fails, raise E2012 if the image does not fit, else E3021 with the relevant lines."""
    done = run_program(command, cwd=folder, timeout=1800)
    if done.code == 0:
        return
    text = f"{done.err}\n{done.out}"
    over = {region: int(count) for region, count in _OVERFLOW.findall(text)}
    if over:
        raise TargetError(
            *(
                Problem("E2012", f"region {r} of the board overflows by {n:,} bytes with Zephyr's own code")
                for r, n in over.items()
            )
        )
    raise ToolchainError(Problem("E3021", f"{command[0]} failed:\n" + "\n".join(telling_lines(text))))


def telling_lines(text: str) -> list[str]:
    """The lines of a failed build that say why, with their continuation lines; without any, the last lines."""
    lines = [printable(line.rstrip(), limit=_LINE) for line in text.splitlines() if not _NINJA.match(line)]
    kept: list[str] = []
    belongs, wrapped = False, False
    for line in lines:
        if _TELLING.search(line) is not None:
            belongs, wrapped = True, _WRAPPED.search(line) is not None
        elif wrapped:
            belongs = belongs and bool(line)
        else:
            belongs = belongs and (not line or line.startswith((" ", "\t")))
        if belongs and line and line not in kept:
            kept.append(line)
    return kept[:_MOST_LINES] or [line for line in lines if line][-_MOST_LINES:]


def check_room(board: str, build: Path, metadata: Mapping[str, Any], *, data: int = 0) -> None:
    """Raise TargetError E2010 or E2011 if a configured board cannot hold the model, even without code.

    `build` contains Zephyr's devicetree and configuration; `data` is the size of the test data in flash.
    """
    flash, ram = _room(build / "zephyr")
    state = int(metadata.get("state", {}).get("size", 0))
    workspace, constants = int(metadata["workspace"]["size"]), int(metadata["constants"]["size"])
    problems = []
    if ram is not None and workspace + state + STACK > ram:
        parts = f"workspace {workspace:,}" + (f", state {state:,}" if state else "") + f", stack {STACK:,}"
        problems.append(Problem("E2010", f"{board} has {ram:,} bytes of RAM (zephyr,sram); the model needs more: {parts}"))
    if flash is not None and constants + data > flash:
        fewer = " (use fewer sets: --random 1)" if constants <= flash else ""
        parts = f"constants {constants:,}" + (f", test data {data:,}{fewer}" if data else "")
        problems.append(Problem("E2011", f"{board} has {flash:,} bytes of flash (zephyr,flash); the model needs more: {parts}"))
    if problems:
        raise TargetError(*problems)


def _room(folder: Path) -> tuple[int | None, int | None]:
    """Bytes of flash and RAM, from the devicetree, or else from the configuration; None if neither has them."""
    flash, ram = None, None
    dts, config = folder / "zephyr.dts", folder / ".config"
    if dts.is_file():
        with suppress(UsageError):  # Zephyr itself reports errors in the devicetree
            flash, ram = chosen_sizes(dts.read_text(encoding="utf-8", errors="replace"))
    text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
    kib = {k: int(v) for k, v in re.findall(r"^CONFIG_(FLASH|SRAM)_SIZE=([0-9]{1,7})$", text, re.MULTILINE)}
    flash = flash if flash is not None else 1024 * kib.get("FLASH", 0) or None
    ram = ram if ram is not None else 1024 * kib.get("SRAM", 0) or None
    return flash, ram


# ---- connected boards, flashed by west and controlled over the console
# This works for every board that west can flash and whose UART is connected to this machine.


SETTINGS = "CONFIG_SERIAL=y\nCONFIG_CONSOLE=y\nCONFIG_UART_CONSOLE=y\n"
APPEAR_SECONDS = 10.0
"""Time limit for a port that is the board's own USB device to reappear after flashing."""


def run_on_serial(
    board: str,
    input_sets: Sequence[Sequence[Array]],
    *,
    port: str,
    metadata: Mapping[str, Any],
    compile_for: Callable[[str], Artifact],
    folder: Path,
    timeout: float | None = None,
) -> ZephyrRun:
    """Build an application for Zephyr's `board` in `folder` (empty), flash it, and run the sets over the serial port `port`.

    The arguments are as for run_on_zephyr; `timeout` is for one run.  Raises the same errors, and E5410 to E5416 of
    aot.micro.run.serial.
    """
    base = zephyr_base()
    check_name(board)
    parse_port(port)
    if shutil.which("west") is None:
        raise ToolchainError(Problem("E3020", "--serial flashes the board with west, which is not installed"))
    write_frame(folder, metadata, settings=SETTINGS)
    artifact = configure(board, folder, compile_for)
    image = _write_main(folder, artifact)
    build = folder / "build"
    build_step(["ninja", "-C", str(build)], folder)
    build_step(["west", "flash", "-d", str(build)], folder)
    path, baud = parse_port(port)
    sizes, limit = [int(o["size"]) for o in metadata["outputs"]], min(timeout or DEFAULT_TIMEOUT, MAX_TIMEOUT)
    _wait_for(path)
    with opened(port) as line:
        link = SerialLink(line, f"{PREFIX}{board} at {line.name}")
        line.end = time.monotonic() + whole_seconds(
            sum(int(i["size"]) for i in metadata["inputs"]), sum(sizes), sets=len(input_sets), baud=baud, timeout=limit
        )
        link.hello(image)
        link.reset()
        data = bytearray()
        for number, arrays in enumerate(input_sets):
            data += link.run(encode_inputs(metadata["inputs"], arrays, number), sizes, timeout=limit)
    version = ".".join(map(str, zephyr_version(base)))
    return ZephyrRun(artifact, decode_outputs(metadata["outputs"], bytes(data), len(input_sets)), f"Zephyr {version}")


def _write_main(folder: Path, artifact: Artifact) -> str:
    """Write main.c with the name of the image, a hash of everything that was generated; return the name."""
    values = {"m": model_values(artifact), "note": NOTE}
    state = hashlib.sha256(render("zephyr/serial_main.c.j2", image="", **values).encode())
    for name, text in sorted(artifact.files.items()):
        state.update(f"{name}\n{text}".encode())
    image = state.hexdigest()[:16]
    (folder / "main.c").write_text(render("zephyr/serial_main.c.j2", image=image, **values), encoding="utf-8")
    return image


def _wait_for(path: str) -> None:
    end = time.monotonic() + APPEAR_SECONDS
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.1)
