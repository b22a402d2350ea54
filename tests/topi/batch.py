"""Many kernels in one program: one input (data and constants of all), one output, run on a board at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aot.executor.artifact import Artifact
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
Bytes = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class _Placed:
    """A kernel with the offset of each of its buffers in the input, the output or the scratch memory."""

    func: PrimFunc
    places: dict[Buffer, tuple[str, int]]


class Batch:
    """Cases laid out one after another; `run` gives those whose output differs."""

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
        self._sizes[kind] += _room(buffer)
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
                raw = np.frombuffer(value.tobytes(), np.uint8)
                offset = placed.places[buffer][1]
                data[offset : offset + raw.size] = raw
        return data

    def run(self, board: str, folder: Path) -> list[str]:
        """What is wrong: the text of each case of which a result differs from the expected one."""
        return self.wrong(self.project(board, folder))

    def project(self, board: str, folder: Path) -> Project:
        """The program's build folder."""
        kind = load_board(board)
        return prepare(self._artifact(find_target("host" if kind.is_host else kind.cpu)), kind, folder=folder)

    def wrong(self, project: Project) -> list[str]:
        """Run the program: the text of each case of which a result differs from the expected one."""
        result = run_board(project, [[self.input()]])
        found = np.frombuffer(result.outputs[0][0].tobytes(), np.uint8)
        wrong = []
        for case, placed in zip(self._cases, self._placed, strict=True):
            places = [(placed.places[out][1], out.nbytes) for out in placed.func.outputs]
            results = [found[offset : offset + size].tobytes() for offset, size in places]
            if results != [e.tobytes() for e in case.expected]:
                wrong.append(case.text)
        return wrong

    def _artifact(self, target: Target) -> Artifact:
        sizes = (self._sizes["in"], self._sizes["out"], self._scratch)
        starts = dict(zip(("in", "out", "scratch"), (0, sizes[0], sizes[0] + sizes[1]), strict=True))
        includes = sorted({h for p in self._placed for h in headers(p.func)})
        prototypes, bodies, calls = [], [], []
        for i, placed in enumerate(self._placed):
            prototypes.append(emit_prototype(placed.func, name=f"unit_k{i}", target=target))
            bodies.append(emit_func(placed.func, name=f"unit_k{i}", target=target, linkage="extern"))
            calls.append(f"  unit_k{i}({', '.join(_argument(placed, b, starts) for b in placed.func.buffers)});")
        head = "\n".join([
            "#ifndef UNIT_H", "#define UNIT_H", "#include <stdint.h>",
            "struct unit_inputs { const uint8_t *x; };", "struct unit_outputs { uint8_t *y; };",
            "int32_t unit_run(const struct unit_inputs *in, const struct unit_outputs *out);",
            "uint8_t *unit_input_0(void);", "uint8_t *unit_output_0(void);",
            f"extern uint8_t unit_workspace[{sum(sizes)}];", "#endif", "",
        ])  # fmt: skip
        main = "\n".join([
            '#include "unit.h"', "#include <stdbool.h>", '#include "aot/hooks.h"', *prototypes,
            f'uint8_t unit_workspace[{sum(sizes)}] __attribute__((aligned(16), section(".bss.aot_workspace")));',
            "uint8_t *unit_input_0(void) { return unit_workspace; }",
            f"uint8_t *unit_output_0(void) {{ return &unit_workspace[{starts['out']}]; }}",
            "int32_t unit_run(const struct unit_inputs *in, const struct unit_outputs *out) {", "  (void)in;", "  (void)out;",
            *calls, "  return 0;", "}", "",
        ])  # fmt: skip
        metadata = {
            "schema": "aot-metadata/1", "name": "unit", "io": "arena", "layers": [],
            "inputs": [_tensor("x", sizes[0])], "outputs": [_tensor("y", sizes[1])],
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


def _argument(placed: _Placed, buffer: Buffer, starts: dict[str, int]) -> str:
    kind, offset = placed.places[buffer]
    return f"({ctype(buffer.dtype)} *)(void *)&unit_workspace[{starts[kind] + offset}]"


def _tensor(name: str, size: int) -> dict[str, Any]:
    return {"index": 0, "name": name, "c_name": name, "shape": [size], "dtype": "uint8", "ctype": "uint8_t", "size": size}
