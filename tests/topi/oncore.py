"""Run one PrimFunc as C on a board, beside what the interpreter makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from aot.executor.artifact import Artifact
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import RunResult
from aot.micro.run.runner import run as run_board
from aot.support.dtype import ctype, numpy_dtype
from aot.target.codegen_c import emit_func, emit_prototype, headers
from aot.target.target import find_target
from aot.tir.buffer import Buffer
from aot.tir.function import PrimFunc
from aot.tir.interpreter import run

Arrays = Mapping[str, np.ndarray[Any, Any]]


def interpret(func: PrimFunc, inputs: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs by name, each filled with 0x55 before."""
    outputs = {}
    for b in func.outputs:
        outputs[b.name] = np.full(b.nbytes, 0x55, np.uint8).view(numpy_dtype(b.dtype)).reshape(b.shape)
    run(func, {**inputs, **outputs})
    return outputs


def run_on(
    func: PrimFunc, inputs: Arrays, *, board: str, folder: Path, extra_flags: tuple[str, ...] = ()
) -> tuple[dict[str, np.ndarray[Any, Any]], RunResult]:
    """The outputs by name, from C compiled for `board` (the host one with ASan and UBSan)."""
    kind = load_board(board)
    target = find_target("host" if kind.is_host else "cortex-m4")
    project = prepare(artifact_of(func, target.name), kind, folder=folder, sanitize=kind.is_host, extra_flags=extra_flags)
    result = run_board(project, [[inputs[b.name] for b in func.inputs]])
    return {b.name: array for b, array in zip(func.outputs, result.outputs[0], strict=True)}, result


def artifact_of(func: PrimFunc, target_name: str) -> Artifact:
    """A model whose one layer is `func` (inputs and outputs only), its tensors one after another in the workspace."""
    target = find_target(target_name)
    offsets: dict[str, int] = {}
    end = 0
    for b in func.buffers:
        offsets[b.name] = end
        end += -(-b.nbytes // 16) * 16
    tensors = {"input": func.inputs, "output": func.outputs}
    accessors, accessor_bodies = [], []
    for kind, buffers in tensors.items():
        for i, b in enumerate(buffers):
            head = f"{ctype(b.dtype)} *unit_{kind}_{i}(void)"
            accessors.append(f"{head};")
            accessor_bodies.append(f"{head} {{ return ({ctype(b.dtype)} *)(void *)&unit_workspace[{offsets[b.name]}]; }}")
    header = "\n".join([
        "#ifndef UNIT_H", "#define UNIT_H", "#include <stdint.h>",
        f"struct unit_inputs {{ {' '.join(f'const {ctype(b.dtype)} *{b.name};' for b in func.inputs)} }};",
        f"struct unit_outputs {{ {' '.join(f'{ctype(b.dtype)} *{b.name};' for b in func.outputs)} }};",
        "int32_t unit_run(const struct unit_inputs *in, const struct unit_outputs *out);",
        *accessors, f"extern uint8_t unit_workspace[{end}];", "#endif", "",
    ])  # fmt: skip
    args = [f"unit_{kind}_{i}()" for kind, buffers in tensors.items() for i in range(len(buffers))]
    prototype = emit_prototype(func, name="unit_kernel", target=target)
    main = "\n".join([
        '#include "unit.h"', '#include "aot/hooks.h"', prototype,
        f'uint8_t unit_workspace[{end}] __attribute__((aligned(16), section(".bss.aot_workspace")));', *accessor_bodies,
        "int32_t unit_run(const struct unit_inputs *in, const struct unit_outputs *out) {", "  (void)in;", "  (void)out;",
        f"  unit_kernel({', '.join(args)});", "  return 0;", "}", "",
    ])  # fmt: skip
    kernel = emit_func(func, name="unit_kernel", target=target, linkage="extern")
    metadata = {
        "schema": "aot-metadata/1", "name": "unit", "io": "arena", "layers": [],
        "inputs": [_tensor(i, b) for i, b in enumerate(func.inputs)],
        "outputs": [_tensor(i, b) for i, b in enumerate(func.outputs)],
        "workspace": {"size": end, "align": 16}, "constants": {"size": 0},
    }  # fmt: skip
    files = {
        "unit.h": header,
        "unit.c": main,
        "unit_kernels.c": "".join(f'#include "{h}"\n' for h in headers(func)) + prototype + kernel,
        "unit_params.c": "#include <stdint.h>\ntypedef int32_t unit_no_parameters;\n",
    }
    return Artifact("unit", files, metadata)


def _tensor(index: int, b: Buffer) -> dict[str, Any]:
    return {
        "index": index, "name": b.name, "c_name": b.name, "shape": list(b.shape), "dtype": b.dtype,
        "ctype": ctype(b.dtype), "size": b.nbytes,
    }  # fmt: skip
