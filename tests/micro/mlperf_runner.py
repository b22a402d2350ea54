"""The host's side of the MLPerf Tiny protocol, over the serial port of an emulated board."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

_CHUNK = 96
"""bytes of input in one command; the official runner sends 31, and 26 in energy mode"""
_PIN = re.compile(r"gpio\w*: unimplemented device write \(size 4, offset 0x404, value 0x0000000([01])\)")
"""Our pin in QEMU's log: the emulated boards have no GPIO port, and note what is written where it would be."""


@dataclass(frozen=True, slots=True)
class Inference:
    """`microseconds` is None in energy mode, where `edges` (falling ones of the pin) stand for the two times."""

    results: list[float]
    microseconds: int | None
    edges: int


class Runner:
    """Starts `make run` in a project of kind mlperf-tiny; a context manager that ends it.

    Where the test itself is killed, the kernel ends make (util-linux' setpriv), and make ends QEMU.
    """

    def __init__(self, project: Path, *, chunk: int = _CHUNK) -> None:
        self.chunk = chunk
        self.log = project / "pins.log"
        self.log.touch()
        known = re.search(r"^AOT_RUN := qemu-system-arm (.*)$", (project / "aot" / "project.mk").read_text(), re.MULTILINE)
        assert known is not None
        emulator = f"AOT_RUN=qemu-system-arm -d unimp -D {self.log} {known.group(1)}"
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "make", "-s", "run", emulator], cwd=project,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            self.greeting = self._until_ready()
        except BaseException:
            self.close()
            raise
        self.is_energy = self.greeting[0] == "m-timestamp-mode-energy"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End make and QEMU, which are a process group of their own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 15)
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _until_ready(self, silent: float = 120.0) -> list[str]:
        """The lines before m-ready; TimeoutError where nothing comes for so many seconds."""
        assert self.process.stdout is not None
        data = b""
        while not data.endswith(b"m-ready\r\n"):
            readable, _, _ = select.select([self.process.stdout], [], [], silent)
            more = os.read(self.process.stdout.fileno(), 65536) if readable else b""
            if not more:
                raise TimeoutError(f"the device is silent; so far: {data[-300:]!r}")
            data += more
        return data.decode().splitlines()[:-1]

    def command(self, text: str) -> list[str]:
        """Send one command; the lines of the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"%")
        self.process.stdin.flush()
        return self._until_ready()

    def load(self, data: bytes) -> None:
        """Send one input."""
        assert self.command(f"db load {len(data)}") == [f"m-[Expecting {len(data)} bytes]"]
        answers: list[str] = []
        for at in range(0, len(data), self.chunk):
            answers += self.command(f"db {data[at : at + self.chunk].hex()}")
        assert answers == ["m-load-done"]

    def levels(self) -> list[int]:
        """The levels that were written to the pin since the start."""
        return [int(level) for level in _PIN.findall(self.log.read_text())]

    def infer(self, count: int = 1, warm: int | None = 0) -> Inference:
        """Run the model on what was loaded; time is that of all `count` inferences."""
        before = len(self.levels())
        lines = self.command(f"infer {count}" if warm is None else f"infer {count} {warm}")
        pins = self.levels()[before:]
        assert pins == [0, 1] * (len(pins) // 2), pins
        assert lines[:3] == [f"m-warmup-start-{10 if warm is None else warm}", "m-warmup-done", f"m-infer-start-{count}"], lines
        elapsed = None
        if not self.is_energy:
            first, second = (int(line.removeprefix("m-lap-us-")) for line in lines[3:5])
            elapsed = second - first
        assert lines[-2] == "m-infer-done"
        assert len(lines) == (5 if self.is_energy else 7)
        found = re.fullmatch(r"m-results-\[([-0-9.,]+)\]", lines[-1])
        assert found, lines
        return Inference([float(v) for v in found.group(1).split(",")], elapsed, len(pins) // 2)

    def accuracy(self, samples: list[bytes], labels: list[int]) -> int:
        """How many samples come out as their label."""
        right = 0
        for data, label in zip(samples, labels, strict=True):
            self.load(data)
            right += int(np.argmax(self.infer().results)) == label
        return right
