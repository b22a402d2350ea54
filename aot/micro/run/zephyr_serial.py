"""Runs a model on a connected board of Zephyr's: built by Zephyr's CMake, flashed by west, and spoken to over its console.

No debug probe of ours is needed: whatever west can flash, with a UART that reaches this machine.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aot.errors import Problem, ToolchainError
from aot.executor.artifact import Artifact
from aot.micro.board import MAX_TIMEOUT
from aot.micro.new.registry import model_values, render
from aot.micro.run.runner import decode_outputs, encode_inputs
from aot.micro.run.serial_link import SerialLink, whole_seconds
from aot.micro.run.serial_port import opened, parse_port
from aot.micro.run.zephyr import (
    DEFAULT_TIMEOUT,
    NOTE,
    PREFIX,
    ZephyrRun,
    check_name,
    configure,
    write_frame,
    zephyr_base,
    zephyr_version,
)
from aot.micro.run.zephyr_build import build_step

Array = np.ndarray[Any, Any]

SETTINGS = "CONFIG_SERIAL=y\nCONFIG_CONSOLE=y\nCONFIG_UART_CONSOLE=y\n"
APPEAR_SECONDS = 10.0
"""How long a port that is the board's own USB device may take to come back after flashing."""


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

    The arguments are those of aot.micro.run.zephyr.run_on_zephyr; `timeout` is for one run.  Raises what it does, and E5410 to
    E5416 of aot.micro.run.serial_port and serial_link.
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
            given = encode_inputs(metadata["inputs"], arrays, number)
            data += link.run(given, sizes, timeout=limit)
    version = ".".join(map(str, zephyr_version(base)))
    return ZephyrRun(artifact, decode_outputs(metadata["outputs"], bytes(data), len(input_sets)), f"Zephyr {version}")


def _write_main(folder: Path, artifact: Artifact) -> str:
    """main.c with the name of the image: a hash of everything that was generated."""
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
