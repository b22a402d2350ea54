"""The host's side of the MLPerf Tiny protocol, over the serial port of an emulated board."""

from __future__ import annotations

import contextlib
import os
import re
import select
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

_CHUNK = 96
"""bytes of input in one command"""


@dataclass(frozen=True, slots=True)
class Inference:
    results: list[float]
    microseconds: int


class Runner:
    """Starts `make run` in a project of kind mlperf-tiny; a context manager that ends it."""

    def __init__(self, project: Path) -> None:
        self.process = subprocess.Popen(
            ["make", "-s", "run"], cwd=project, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self.greeting = self._until_ready()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 15)
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _until_ready(self, timeout: float = 60.0) -> list[str]:
        """The lines before m-ready."""
        assert self.process.stdout is not None
        data, end = b"", time.monotonic() + timeout
        while not data.endswith(b"m-ready\r\n"):
            readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
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
        for at in range(0, len(data), _CHUNK):
            answers += self.command(f"db {data[at : at + _CHUNK].hex()}")
        assert answers == ["m-load-done"]

    def infer(self, count: int = 1, warm: int = 0) -> Inference:
        """Run the model on what was loaded; time is that of all `count` inferences."""
        lines = self.command(f"infer {count} {warm}")
        assert lines[:3] == [f"m-warmup-start-{warm}", "m-warmup-done", f"m-infer-start-{count}"], lines
        first, second = (int(line.removeprefix("m-lap-us-")) for line in lines[3:5])
        assert lines[5] == "m-infer-done"
        found = re.fullmatch(r"m-results-\[([-0-9.,]+)\]", lines[6])
        assert found, lines
        return Inference([float(v) for v in found.group(1).split(",")], second - first)

    def accuracy(self, samples: list[bytes], labels: list[int]) -> int:
        """How many samples come out as their label."""
        right = 0
        for data, label in zip(samples, labels, strict=True):
            self.load(data)
            right += int(np.argmax(self.infer().results)) == label
        return right
