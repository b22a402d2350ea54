"""Many kernels in one program: one input (data and constants of all), one output, run on a board at once.

Between any two buffers are bytes that no kernel may touch.  On this machine AddressSanitizer watches them, and all buffers of the
other kernels; on a board the output shows the inputs, the results and the gaps between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aot.errors import AotError
from aot.executor.artifact import Artifact
from aot.ir.op import Array
from aot.micro.board import load_board
from aot.micro.build.project import Project, prepare
from aot.micro.run.runner import run as run_board
from aot.support.dtype import ctype
from aot.target.codegen_c import emit_func, emit_prototype, headers
from aot.target.target import Target, find_target
from aot.tir.buffer import Buffer
from aot.tir.function import PrimFunc
from aot.tir.transform import optimize
from tests.topi.drawn import Case

ALIGN = 16
POISON = 0xA5
SANITIZE = (
    "-O0", "-g0", "-fno-sanitize=null,object-size,pointer-overflow", "-fsanitize-undefined-trap-on-error",
    "--param", "asan-instrumentation-with-call-threshold=0",
)  # fmt: skip
"""What makes a sanitized program quick to compile: checks are calls or traps, and what both sanitizers see is left to one."""
ONLY = """
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define UNIT_CLOSE() __asan_poison_memory_region(unit_workspace, sizeof(unit_workspace))
#define UNIT_OPEN(offset, size) __asan_unpoison_memory_region(&unit_workspace[offset], size)
#else
#define UNIT_CLOSE() (void)0
#define UNIT_OPEN(offset, size) (void)0
#endif
"""
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A kernel with the offset of each of its buffers in the input, the output or the scratch memory."""

    func: PrimFunc
    places: dict[Buffer, tuple[str, int]]


class Batch:
    """Cases laid out one after another, alike functions once; `run` gives those that are wrong."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self._cases = cases
        self._sizes = {"in": 0, "out": 0}
        self._scratch = max([16, *(sum(_room(b) for b in c.lowered.func.scratch) for c in cases)])
        self._placed = [self._place(optimize(c.lowered.func)) for c in cases]

    def _place(self, func: PrimFunc) -> _Placed:
        places = {b: (kind, self._take(kind, b)) for kind, bs in self._kinds(func) for b in bs}
        offset = 0
        for b in func.scratch:
            places[b] = ("scratch", offset)
            offset += _room(b)
        return _Placed(func, places)

    def _take(self, kind: str, buffer: Buffer) -> int:
        offset = self._sizes[kind]
        self._sizes[kind] += _room(buffer) + ALIGN
        return offset

    @staticmethod
    def _kinds(func: PrimFunc) -> tuple[tuple[str, tuple[Buffer, ...]], ...]:
        return (("in", func.inputs + func.consts), ("out", func.outputs))

    def input(self) -> Bytes:
        """The bytes of all inputs and constants."""
        data = np.full(self._sizes["in"], POISON, np.uint8)
        for case, placed in zip(self._cases, self._placed, strict=True):
            values = dict(zip(placed.func.inputs, case.inputs, strict=True))
            values |= {b: np.asarray(case.lowered.constants[b.name]) for b in placed.func.consts}
            for buffer, value in values.items():
                _put(data, placed.places[buffer][1], value)
        return data

    def output(self) -> Bytes:
        """The bytes that all results are to be, amid those that nobody writes."""
        data = np.full(self._sizes["out"], POISON, np.uint8)
        for case, placed in zip(self._cases, self._placed, strict=True):
            for buffer, value in zip(placed.func.outputs, case.expected, strict=True):
                _put(data, placed.places[buffer][1], value)
        return data

    def run(self, board: str, folder: Path) -> list[str]:
        """The text of each case of which a result differs, that writes elsewhere, or that makes the program stop.

        Programs of one folder share what they have in common.
        """
        try:
            return self.wrong(self.project(board, folder))
        except AotError as error:
            if len(self._cases) == 1:
                return [f"{self._cases[0].text}: {error}"]
        half = len(self._cases) // 2
        return [text for part in (self._cases[:half], self._cases[half:]) for text in Batch(part).run(board, folder)]

    def project(self, board: str, folder: Path) -> Project:
        """The program's build folder; on this machine with ASan and UBSan."""
        kind = load_board(board)
        artifact = self._artifact(find_target("host" if kind.is_host else kind.cpu))
        return prepare(artifact, kind, folder=folder, sanitize=kind.is_host, extra_flags=SANITIZE if kind.is_host else ())

    def wrong(self, project: Project) -> list[str]:
        """Run the program: the text of each case of which a result differs from the expected one, or that writes elsewhere."""
        data, results = self.input(), self.output()
        result = run_board(project, [[data]])
        found = np.frombuffer(result.outputs[0][0].tobytes(), np.uint8)
        differs = {"in": found[: data.size] != data, "out": found[data.size :] != results}
        wrong = []
        for case, placed in zip(self._cases, self._placed, strict=True):
            places = [(b, *placed.places[b]) for b in placed.func.buffers if placed.places[b][0] in differs]
            if any(differs[kind][offset : offset + _room(b) + ALIGN].any() for b, kind, offset in places):
                wrong.append(case.text)
        return wrong

    def _artifact(self, target: Target) -> Artifact:
        sizes = (self._sizes["in"], self._sizes["out"], self._scratch)
        starts = dict(zip(("in", "out", "scratch"), (0, sizes[0], sizes[0] + sizes[1]), strict=True))
        includes = sorted({h for p in self._placed for h in headers(p.func)})
        names: dict[str, str] = {}  # of each function's text
        prototypes, bodies, calls = [], [], []
        for placed in self._placed:
            text = emit_func(placed.func, name="unit_kernel", target=target, linkage="extern")
            if text not in names:
                name = names[text] = f"unit_k{len(names)}"
                prototypes.append(emit_prototype(placed.func, name=name, target=target))
                bodies.append(text.replace("unit_kernel", name))
            calls.append("  UNIT_CLOSE();")
            calls += [f"  UNIT_OPEN({starts[placed.places[b][0]] + placed.places[b][1]}, {b.nbytes});" for b in placed.places]
            calls.append(f"  {names[text]}({', '.join(_argument(placed, b, starts) for b in placed.func.buffers)});")
        head = "\n".join([
            "#ifndef UNIT_H", "#define UNIT_H", "#include <stdint.h>",
            "struct unit_inputs { const uint8_t *x; };", "struct unit_outputs { uint8_t *y; };",
            "int32_t unit_run(const struct unit_inputs *in, const struct unit_outputs *out);",
            "uint8_t *unit_input_0(void);", "uint8_t *unit_output_0(void);", "#endif", "",
        ])  # fmt: skip
        main = "\n".join([
            '#include "unit.h"', "#include <stdbool.h>", '#include "aot/hooks.h"', *prototypes,
            f"extern uint8_t unit_workspace[{sum(sizes)}];",
            f'uint8_t unit_workspace[{sum(sizes)}] __attribute__((aligned(16), section(".bss.aot_workspace")));', ONLY,
            "uint8_t *unit_input_0(void) { return unit_workspace; }",
            "uint8_t *unit_output_0(void) { return unit_workspace; }",
            "int32_t unit_run(const struct unit_inputs *in, const struct unit_outputs *out) {", "  (void)in;", "  (void)out;",
            f"  for (uint32_t i = {starts['out']}; i < {sum(sizes)}; i++) unit_workspace[i] = {POISON};",
            *calls, "  UNIT_OPEN(0, sizeof(unit_workspace));", "  return 0;", "}", "",
        ])  # fmt: skip
        metadata = {
            "schema": "aot-metadata/1", "name": "unit", "io": "arena", "layers": [],
            "inputs": [_tensor("x", sizes[0])], "outputs": [_tensor("y", sizes[0] + sizes[1])],
            "workspace": {"size": sum(sizes), "align": ALIGN}, "constants": {"size": 0},
        }  # fmt: skip
        files = {
            "unit.h": head,
            "unit.c": main,
            "unit_kernels.c": "".join(f'#include "{h}"\n' for h in includes) + "".join(prototypes) + "".join(bodies),
            "unit_params.c": "#include <stdint.h>\ntypedef int32_t unit_no_parameters;\n",
        }
        return Artifact("unit", files, metadata)


def _room(buffer: Buffer) -> int:
    return -(-buffer.nbytes // ALIGN) * ALIGN


def _put(data: Bytes, offset: int, value: Array) -> None:
    raw = np.frombuffer(value.tobytes(), np.uint8)
    data[offset : offset + raw.size] = raw


def _argument(placed: _Placed, buffer: Buffer, starts: dict[str, int]) -> str:
    kind, offset = placed.places[buffer]
    return f"({ctype(buffer.dtype)} *)(void *)&unit_workspace[{starts[kind] + offset}]"


def _tensor(name: str, size: int) -> dict[str, Any]:
    return {"index": 0, "name": name, "c_name": name, "shape": [size], "dtype": "uint8", "ctype": "uint8_t", "size": size}
