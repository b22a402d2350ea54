"""Kernels as C under AddressSanitizer and UndefinedBehaviorSanitizer: many calls, recorded here, are played back by one program.

Every buffer is memory of its own of exactly the size that the kernel may use, so an access outside is seen.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from aot.ir.module import IRModule
from aot.relay.expr import Function
from aot.relay.transform import pipeline
from aot.support.dtype import is_float
from aot.target.codegen_c import emit_func, headers
from aot.tir.interpreter import run
from aot.topi.strategy import Lowered
from tests.op._differential import CRT, GCC, HOST, lower_all, run_fused

Array = np.ndarray[Any, Any]
FLAGS = ["-std=c99", "-O1", "-g", "-w", "-fsanitize=address,undefined,float-cast-overflow", "-fno-sanitize-recover=all"]
MAIN = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static FILE *data;

static void *get(size_t n) {
    void *p = malloc(n);
    if (n && fread(p, 1, n, data) != n)
        exit(3);
    return p;
}

static void same(const void *found, size_t n, const char *name) {
    void *wanted = get(n);
    if (memcmp(found, wanted, n)) {
        printf("%s: another result\n", name);
        exit(4);
    }
    free(wanted);
}
"""


@dataclass
class Playback:
    """Kernels with the buffers of each call, before and after."""

    kernels: list[tuple[str, Lowered]] = field(default_factory=list)
    calls: list[tuple[int, Mapping[str, bytes], bytes]] = field(default_factory=list)

    def add(self, name: str, func: Function, sets: Sequence[Sequence[Array]]) -> None:
        """Record how the fused graph of `func` runs on `sets`; the results to be found are those of the TIR interpreter."""
        fused = pipeline()(IRModule({"main": func}))["main"]
        assert isinstance(fused, Function)
        lowered = lower_all(fused, HOST)
        numbers = {key: len(self.kernels) + i for i, key in enumerate(lowered)}
        self.kernels += [(f"{name}, k{i}", found) for i, found in enumerate(lowered.values())]

        def record(key: int, found: Lowered, buffers: Mapping[str, Array]) -> None:
            before = {n: a.tobytes() for n, a in buffers.items()}
            run(found.func, buffers)
            out = found.func.outputs[0]
            exact = not is_float(out.dtype)  # bits of a NaN are the processor's
            self.calls.append((numbers[key], before, buffers[out.name].tobytes() if exact else b""))

        for inputs in sets:
            run_fused(fused, inputs, lowered, record)

    def run(self, folder: Path) -> str:
        """Play all calls; "" where nothing was found, else the sanitizers' report."""
        (folder / "play.c").write_text(self._program(), encoding="utf-8")
        (folder / "data").write_bytes(b"".join(b"".join(before.values()) + after for _, before, after in self.calls))
        command = [str(GCC), *FLAGS, f"-I{CRT}", "play.c", "-o", "play", "-lm"]
        subprocess.run(command, cwd=folder, check=True, timeout=600)
        done = subprocess.run(["./play", "data"], cwd=folder, capture_output=True, text=True, timeout=600, check=False)
        last = done.stdout.splitlines()[-1:] if done.returncode else []
        return "" if done.returncode == 0 else "\n".join([f"exit {done.returncode} in", *last, done.stderr[:3000]])

    def _program(self) -> str:
        text = [f'#include "{h}"' for h in sorted({h for _, k in self.kernels for h in headers(k.func)})]
        for i, (name, lowered) in enumerate(self.kernels):
            text.append(f"/* {name} */\n" + emit_func(lowered.func, name=f"k{i}", target=HOST, linkage="static"))
        text.append(MAIN)
        for i, (number, before, after) in enumerate(self.calls):
            name, lowered = self.kernels[number]
            places = list(before)
            body = [f'puts("{name}");', *(f"void *b{j} = get({len(before[n])}u);" for j, n in enumerate(places))]
            arguments = ", ".join(f"b{places.index(b.name)}" for b in lowered.func.buffers)
            body.append(f"k{number}({arguments});")
            out = places.index(lowered.func.outputs[0].name)
            body += [f'same(b{out}, {len(after)}u, "{name}");', *(f"free(b{j});" for j in range(len(places)))]
            text.append(f"static void call{i}(void) {{\n    " + "\n    ".join(body) + "\n}")
        calls = "".join(f"    call{i}();\n" for i in range(len(self.calls)))
        text.append(f'int main(int n, char **a) {{\n    data = fopen(a[1], "rb");\n{calls}    (void)n;\n    return 0;\n}}')
        return "\n".join(text)
