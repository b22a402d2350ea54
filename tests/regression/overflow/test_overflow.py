"""Sums with extreme biases wrap as the reference's do, without the signed overflow that C leaves undefined."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.ir.module import IRModule
from aot.relay.expr import Function
from aot.relay.interpreter import evaluate
from aot.relay.transform import pipeline
from aot.target.codegen_c import emit_func, headers
from aot.testing import Quant
from tests.op._differential import CRT, GCC, HOST, lower_all, main_of, run_fused, same
from tests.op._one_op import Spec, const, one_op

FLAGS = ["-O1", "-shared", "-fPIC", "-fsanitize=signed-integer-overflow", "-fsanitize-undefined-trap-on-error"]
BIASES = [(1 << 31) - 1, -(1 << 31), (1 << 31) - 1000, 0]


def transposed(dtype: str) -> bytes:
    rng = np.random.default_rng(1)
    weights = rng.integers(-127, 128, (4, 2, 2, 8)).astype(np.int8)
    bias = Spec((4,), "int32", Quant(0.25, 0), np.array(BIASES, np.int32))
    x, w = Spec((1, 3, 3, 8), dtype, Quant(0.5, 0)), Spec(weights.shape, "int8", Quant(0.5, 0), weights)
    y = Spec((1, 6, 6, 4), dtype, Quant(1000.0 if dtype == "int8" else 1e5, 0))
    steps = {"stride_h": 2, "stride_w": 2, "padding": "SAME", "quantized_bias_type": "INT32"}
    return one_op("TRANSPOSE_CONV", [const((1, 6, 6, 4)), w, x, bias], [y], version=3, **steps)


def matmul(dtype: str) -> bytes:
    """int8 sums of 70,000 products of the largest codes leave 32 bits."""
    depth = 70_000
    x, y = Spec((1, 1, depth), dtype, Quant(0.5, 127)), Spec((1, depth, 1), dtype, Quant(0.5, 127))
    return one_op("BATCH_MATMUL", [x, y], [Spec((1, 1, 1), dtype, Quant(1e7, 0))])


@pytest.mark.slow
@pytest.mark.skipif(GCC is None, reason="gcc is not installed")
@pytest.mark.parametrize(("model", "value"), [(transposed("int8"), 127), (transposed("int16"), 32767), (matmul("int8"), -128)])
def test_no_undefined_overflow(model: bytes, value: int, tmp_path: Path) -> None:
    func = main_of(model)
    inputs = [np.full(v.type.shape, value, v.type.dtype) for v in func.params]
    main = pipeline()(IRModule({"main": func}))["main"]
    assert isinstance(main, Function)
    kernels = lower_all(main, HOST)
    text = [f'#include "{h}"' for h in sorted({h for k in kernels.values() for h in headers(k.func)})]
    for i, lowered in enumerate(kernels.values()):
        text.append(emit_func(lowered.func, name=f"k{i}", target=HOST, linkage="extern"))
    (tmp_path / "k.c").write_text("\n".join(text), encoding="utf-8")
    subprocess.run([str(GCC), *FLAGS, f"-I{CRT}", "k.c", "-o", "k.so"], cwd=tmp_path, check=True, timeout=600)
    library = ctypes.CDLL(str(tmp_path / "k.so"))

    def run_c(key: int, lowered: Any, buffers: Any) -> None:
        arrays = [buffers[b.name] for b in lowered.func.buffers]
        getattr(library, f"k{list(kernels).index(key)}")(*(a.ctypes.data_as(ctypes.c_void_p) for a in arrays))

    child = os.fork()
    if child == 0:  # an overflow ends it with a signal
        found = run_fused(main, inputs, kernels, run_c)
        np.save(tmp_path / "found.npy", found[0])
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0, f"ended by signal {os.WTERMSIG(status)}: a signed sum overflows"
    same([np.load(tmp_path / "found.npy")], evaluate(func, inputs), "the compiled kernels differ from evaluate")
