"""Elementary functions of float32: our C = our numpy = the C library of the reference, and the same on every board."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot.driver.build import build
from aot.ir.op import Array
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.build.toolchain import have_tool
from aot.micro.run.runner import run
from aot.numerics.elementary import IN_FLOAT32, MATH, atan2f, powf
from aot.relay.interpreter import evaluate
from aot.testing import ModelBuilder
from tests.c_tools import compile_all, shared_library
from tests.op._differential import main_of
from tests.op._one_op import Spec, one_op

LIBM = ("exp", "log", "sin", "cos", "expm1", "tanh")
"""Those that are the GNU C library's, from 2.28 up to 2.40."""
TWO = {"pow": powf, "atan2": atan2f}
EIGEN = ("eigen_erfc", "eigen_scalar_erfc", "eigen_tanh", "eigen_logistic", "eigen_scalar_logistic")
OPERATORS = ("EXP", "LOG", "SIN", "COS", "TANH", "LOGISTIC", "ELU", "GELU")
STEP = 1 if os.environ.get("AOT_FULL") == "1" else 2003
"""Every float, or one in so many."""

HEAD = """#include "aot/math_float.h"

#include <math.h>
"""
MAP = """
void map_{0}(const float *x, float *y, int32_t n);
void map_{0}(const float *x, float *y, int32_t n) {{
  for (int32_t i = 0; i < n; ++i) {{
    y[i] = aot_{0}f(x[i]);
  }}
}}
"""
COUNT = """
uint32_t count_{0}(uint32_t first, uint32_t step, uint32_t *example);
uint32_t count_{0}(uint32_t first, uint32_t step, uint32_t *example) {{
  uint32_t count = 0;
  for (uint64_t bits = first; bits < (UINT64_C(1) << 32); bits += step) {{
    const float x = aot_f32_of_bits((uint32_t)bits), ours = aot_{0}f(x), theirs = {0}f(x);
    if (aot_f32_bits(ours) != aot_f32_bits(theirs) && (ours == ours || theirs == theirs)) {{
      ++count;
      *example = (uint32_t)bits;
    }}
  }}
  return count;
}}
"""


PAIRS = """
void map_{0}(const float *x, const float *y, float *z, float *libm, int32_t n);
void map_{0}(const float *x, const float *y, float *z, float *libm, int32_t n) {{
  for (int32_t i = 0; i < n; ++i) {{
    z[i] = aot_{0}f(x[i], y[i]);
    libm[i] = {0}f(x[i], y[i]);
  }}
}}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("math") / "driver.c"
    path.write_text(
        HEAD
        + "".join(MAP.format(n) for n in (*LIBM, *EIGEN))
        + "".join(COUNT.format(n) for n in LIBM)
        + "".join(PAIRS.format(n) for n in TWO)
    )
    return path


@pytest.fixture(scope="module")
def library(source: Path) -> Any:
    return ctypes.CDLL(str(shared_library([source], source.with_suffix(".so"))))


def floats(count: int, seed: int = 5) -> Array:
    """All kinds of floats: any bits, numbers of everyday size, and edges."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, count, np.uint32)
    edges = [0.0, np.inf, np.nan, 1.0, 88.722, 88.723, 103.97, 103.98, 2.0**-126, 2.0**-149, 22, 18.7, 119.99, 120, 0.75, 28, 11]
    usual = np.concatenate([rng.uniform(-20, 20, count), rng.uniform(-1, 1, count), edges, np.negative(edges)])
    return np.concatenate([bits.view(np.float32), usual.astype(np.float32)])


def same_bits(a: Array, b: Array) -> Array:
    """Equal, or NaN both."""
    same: Array = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    return same


@pytest.mark.parametrize("name", [*LIBM, *EIGEN])
def test_c_is_what_evaluate_says(name: str, library: Any) -> None:
    x = floats(3000)
    found = np.empty_like(x)
    getattr(library, f"map_{name}")(
        x.ctypes.data_as(ctypes.c_void_p), found.ctypes.data_as(ctypes.c_void_p), ctypes.c_int32(x.size)
    )
    wrong = ~same_bits(found, IN_FLOAT32[name](x))
    assert not wrong.any(), [float(v).hex() for v in x[wrong][:5]]
    assert MATH[name].c == f"aot_{name}f({{0}})"


def pairs(count: int) -> tuple[Array, Array]:
    """Any two, all pairs of edges, bases and powers of everyday size, and whole powers of negative bases."""
    rng, x = np.random.default_rng(9), floats(count)
    edges = np.array([0, 1, 2, 3, 0.5, np.inf, np.nan, 1e-45, 3e38, 1e-20, 2**24 + 2, 2**24 - 1, 2**23 + 1], np.float32)
    edges = np.concatenate([edges, -edges])
    whole = rng.integers(-9, 9, count).astype(np.float32)
    first = [x, np.repeat(edges, edges.size), rng.uniform(0, 9, count), rng.uniform(-9, 9, count)]
    second = [rng.permutation(x), np.tile(edges, edges.size), rng.uniform(-50, 50, count), whole]
    with np.errstate(invalid="ignore"):  # NaNs that signal
        return np.concatenate(first).astype(np.float32), np.concatenate(second).astype(np.float32)


def run_pairs(library: Any, name: str, count: int) -> tuple[Array, Array, Array, Array]:
    """Two arguments, our C's results and the C library's."""
    x, y = pairs(count)
    arrays = x, y, np.empty_like(x), np.empty_like(x)
    getattr(library, f"map_{name}")(*(a.ctypes.data_as(ctypes.c_void_p) for a in arrays), ctypes.c_int32(x.size))
    return arrays


@pytest.mark.parametrize(("name", "meaning"), TWO.items())
def test_two_arguments(name: str, meaning: Callable[[Array, Array], Array], library: Any) -> None:
    x, y, found, libm = run_pairs(library, name, 2000)
    wrong = ~same_bits(found, meaning(x, y))
    assert not wrong.any(), [(float(a), float(b)) for a, b in zip(x[wrong][:5], y[wrong][:5], strict=True)]
    skip_other_libraries(name)
    wrong = ~same_bits(found, libm)
    assert not wrong.any(), [(float(a), float(b)) for a, b in zip(x[wrong][:5], y[wrong][:5], strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("name", TWO)
def test_two_arguments_often(name: str, library: Any) -> None:
    skip_other_libraries(name)
    _, _, found, libm = run_pairs(library, name, 2_000_000)
    assert same_bits(found, libm).all()


def differing(library: Any, name: str, *, step: int) -> tuple[int, str]:
    """How many of the floats with the bits 0, step, 2 step, ... differ from this machine's C library, and one of them."""
    example, count = ctypes.c_uint32(0), getattr(library, f"count_{name}")
    count.argtypes, count.restype = [ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p], ctypes.c_uint32
    return count(step // 2, step, ctypes.byref(example)), f"{example.value:08x}"


def skip_other_libraries(name: str) -> None:
    libc, version = platform.libc_ver()
    number = tuple(map(int, version.split("."))) if libc == "glibc" else (0,)
    if not (2, 28) <= number < ((2, 41) if name in ("expm1", "tanh", "atan2") else (3,)):
        pytest.skip(f"{libc} {version} has another {name}f")


@pytest.mark.parametrize("name", LIBM)
def test_the_bits_are_those_of_the_c_library(name: str, library: Any) -> None:
    skip_other_libraries(name)
    assert differing(library, name, step=80021) == (0, "00000000")


@pytest.mark.slow
@pytest.mark.parametrize("name", LIBM)
def test_every_float(name: str, library: Any) -> None:
    skip_other_libraries(name)
    assert differing(library, name, step=STEP) == (0, "00000000")


def test_hard_cases() -> None:
    """Where exp lies nearest to the middle between two floats, and where a product of cos is fused or not."""
    for name, bits, wanted in (("exp", 0x3E73ADE2, 0x3FA263BC), ("cos", 0xC18A3ADE, 0xB784F770)):
        x = np.array([bits], np.uint32).view(np.float32)
        assert hex(IN_FLOAT32[name](x).view(np.uint32)[0]) == hex(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-m4", "arm-m0"])
def test_compiles_without_warnings(compiler: str, source: Path) -> None:
    compile_all(compiler, [source])


def every_function(count: int) -> bytes:
    """A model with one operator of each kind on the same floats, and two of two operands."""
    b = ModelBuilder()
    x, other = (b.tensor(name, (1, count), "float32") for name in ("x", "other"))
    results = [b.tensor(name, (1, count), "float32") for name in ("power", "angle")]
    for name, result in zip(("POW", "ATAN2"), results, strict=True):
        b.op(name, [x, other], [result], version=1)
    for i, name in enumerate((*OPERATORS, "GELU")):
        options = {"approximate": i == len(OPERATORS)} if name == "GELU" else {}
        results.append(b.tensor(f"y{i}", (1, count), "float32"))
        b.op(name, [x], [results[-1]], version=1, **options)
    return b.build([x, other], results)


BOARDS = ("mps2-an385", "mps2-an386", "mps2-an500")
"""Without a floating-point unit, with one for single precision, with one for double precision."""


@pytest.mark.qemu
@pytest.mark.skipif(not have_tool("arm-none-eabi-gcc"), reason="the cross compiler is not installed")
@pytest.mark.skipif(not have_tool("qemu-system-arm"), reason="QEMU is not installed")
@pytest.mark.parametrize("board", BOARDS)
def test_boards(board: str, tmp_path: Path) -> None:
    x = floats(1500)[None]
    inputs = [x, np.random.default_rng(3).permutation(x[0])[None]]
    model = every_function(x.size)
    wanted = evaluate(main_of(model), inputs)
    project = prepare(build(model, target=load_board(board).cpu, name="every"), load_board(board), folder=tmp_path)
    found = run(project, [inputs]).outputs[0]
    for name, f, w in zip(("POW", "ATAN2", *OPERATORS, "GELU by tanh"), found, wanted, strict=True):
        wrong = ~same_bits(f.reshape(-1), w.reshape(-1))
        assert not wrong.any(), (name, [float(v).hex() for v in x[0][wrong][:5]])


@pytest.mark.qemu
@pytest.mark.skipif(not have_tool("arm-none-eabi-gcc"), reason="the cross compiler is not installed")
@pytest.mark.skipif(not have_tool("qemu-system-arm"), reason="QEMU is not installed")
@pytest.mark.parametrize("board", BOARDS)
def test_boards_where_no_vector_is_full(board: str, tmp_path: Path) -> None:
    """GELU of three floats, many times: the erfc of single elements."""
    x = floats(200)
    sets = [[row[None]] for row in x[: x.size // 3 * 3].reshape(-1, 3)]
    model = one_op("GELU", [Spec((1, 3), "float32")], [Spec((1, 3), "float32")], approximate=False)
    project = prepare(build(model, target=load_board(board).cpu, name="three"), load_board(board), folder=tmp_path)
    for inputs, (found,) in zip(sets, run(project, sets).outputs, strict=True):
        (wanted,) = evaluate(main_of(model), inputs)
        assert same_bits(found.reshape(-1), wanted.reshape(-1)).all(), [float(v).hex() for v in inputs[0][0]]
