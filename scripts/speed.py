#!/usr/bin/env python3
"""The compiler's own speed: seconds of processor time, compared with their limits.

    python scripts/speed.py                      every figure (some minutes)
    python scripts/speed.py help compile check   these

A figure is the best of three runs, divided by how much slower this machine runs Python now than the machine for which the limits
were set.  The exit code is 1 if a figure exceeds its limit.  Neither tests nor CI use it: a machine's load says nothing about a
change.  Tests count work instead (tests/work.py), and `scripts/scaling.py` measures how the cost grows with the network.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
MODELS = ROOT / "tests" / "models"
SHARED = ROOT.parent / "shared" / "models"
KWS = MODELS / "net_kws_dscnn.tflite"
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
SECONDS = 0.039
"""Processor time of `_work` on the machine for which the limits were set."""

Timed = Iterator[tuple[str, Callable[[], object]]]


@dataclass(frozen=True)
class Case:
    """`parts` are (name, what to measure), measured separately; the slowest counts, in units of `unit` seconds."""

    what: str
    bar: float
    parts: Callable[[], Timed]
    unit: float = 1.0


def slowness() -> float:
    """How many times slower Python is now than where the limits were set; at least 1."""
    return max(1.0, min(seconds_of(_work) for _ in range(3)) / SECONDS)


def _work() -> None:
    """Work similar to a compiler's: building, looking up and storing keys, and calls."""
    seen: dict[tuple[int, str], list[int]] = {}
    for i in range(100_000):
        seen.setdefault((i % 4999, str(i & 31)), []).append(i)


def seconds_of(run: Callable[[], object]) -> float:
    """Processor time of `run()` and of the processes that it starts and waits for, with the garbage collector off."""
    gc.collect()
    gc.disable()
    try:
        start = _spent()
        run()
        return _spent() - start
    finally:
        gc.enable()


def _spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure(case: Case, *, times: int = 3) -> tuple[str, float]:
    """(the slowest part, its figure): the best of `times` runs; far below the limit only one run is made."""
    worst = ("nothing to measure", 0.0)
    for name, run in case.parts():
        best = seconds_of(run) / slowness() / case.unit
        for _ in range(times - 1):
            if best > 0.6 * case.bar:
                best = min(best, seconds_of(run) / slowness() / case.unit)
        worst = max(worst, (name, best), key=lambda found: found[1])
    return worst


# What is measured.


def _one(name: str, run: Callable[[], object]) -> Timed:
    yield name, run


def _cli(*arguments: object) -> None:
    """Run a verb in this process, without cached results, in a temporary folder."""
    from aot.cli.__main__ import run

    with tempfile.TemporaryDirectory() as folder:
        words = [str(a).replace("FOLDER", folder) for a in arguments]
        code = run(words)
        if code:
            raise SystemExit(f"aot {' '.join(words)} ends with {code}")


def _help() -> None:
    subprocess.run([sys.executable, "-m", "aot", "--help"], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)


def _networks(*, below: int) -> list[Path]:
    """The networks next to the repository with fewer bytes; if there are none, our own."""
    networks = [p for folder in ("nets", "derived") for p in sorted((SHARED / folder).glob("*.tflite"))]
    return [p for p in networks or sorted(MODELS.glob("net_*.tflite")) if p.stat().st_size < below]


def _checks() -> Timed:
    """`aot check` without a board and with empty caches."""
    from aot.driver.front import outline
    from aot.driver.options import Options
    from aot.errors import AotError
    from aot.frontend.tflite import convert, unary, view
    from aot.frontend.tflite.specialize import specialize
    from aot.system.gc_tuning import rare_collections

    convert.load_all()

    def check(path: Path) -> None:
        for known in (specialize, view._sound, unary.float_table):
            known.cache_clear()
        with suppress(AotError), rare_collections():
            outline(specialize(path.read_bytes()), target="cortex-m4", name="m", options=Options())

    yield from ((p.stem, lambda p=p: check(p)) for p in _networks(below=5_000_000))


def _channels() -> Timed:
    """Removal of channels and of taps, in networks after the usual passes."""
    from aot.errors import AotError
    from aot.frontend.tflite import from_tflite
    from aot.relay.transform import (
        canonicalize,
        dead_code,
        eliminate_common_subexpr,
        fold_constant,
        fold_zero_taps,
        remove_constant_channels,
    )

    for path in _networks(below=5_000_000):
        with suppress(AotError):
            module = from_tflite(path.read_bytes())
            for step in (fold_constant, canonicalize, eliminate_common_subexpr, dead_code):
                module = step(module)
            yield path.stem, lambda module=module: fold_zero_taps(remove_constant_channels(module))  # type: ignore[misc]


def _interpreter() -> Timed:
    from aot.tir.interpreter import compiled, run
    from tests.tir.kernels import conv, random_buffers

    func = conv(8, 8, channels=8, out=16)
    buffers = random_buffers(func)
    compiled(func)

    def ten_times() -> None:
        for _ in range(10):
            run(func, buffers)

    yield "conv2d 8x8x8x16", ten_times


def _printing() -> Timed:
    import numpy as np

    from aot.target.source_module import Param, print_array

    array = Param("a", "int8", np.random.default_rng(0).integers(-128, 128, 1 << 20).astype(np.int8), 4)
    yield "int8", lambda: print_array(array)


def _hostile() -> Timed:
    """A file of a megabyte that describes 2.5 billion tensors."""
    from aot.frontend.tflite.check import check_structure
    from tests.frontend.tflite.test_flatbuffer import shared_model

    w, slots = shared_model(50_000, 50_000)
    end = w.vector(b"", 0)
    for slot in (0, 3, 100):
        w.point(slots[slot], end)
    yield "quadratic", lambda: check_structure(bytes(w.data))


def _plans() -> Timed:
    from aot.memory.plan import BufferInfo, Conflict
    from aot.memory.planner import plan

    rng = random.Random(1)
    apart = [BufferInfo(f"b{i}", rng.randint(1, 400), 1, i, i + rng.randint(1, 30)) for i in range(120)]
    pairs = [
        Conflict(a.name, b.name, rng.choice([None, None, None, 0, rng.randint(-40, 200)]))
        for a, b in itertools.combinations(apart, 2)
        if a.first <= b.last and b.first <= a.last
    ]
    yield "120 buffers without a proof", lambda: plan(apart, pairs)
    rng = random.Random(1)
    many = [BufferInfo(f"b{i}", rng.randint(1, 5000), 4, max(0, i - rng.randint(1, 6)), i) for i in range(300)]
    yield "300 buffers", lambda: plan(many)


CASES = {
    "help": Case("aot --help, s", 0.5, lambda: _one("", _help)),
    "compile": Case("aot compile of keyword spotting, s", 1.0, lambda: _one(KWS.stem, lambda: _cli(
        "compile", KWS, "-q", "-o", "FOLDER/c"))),
    "new": Case("aot new, s", 1.5, lambda: _one("digits, CMake", lambda: _cli(
        "new", "FOLDER/p", DIGITS, "--kind", "cmake", "-q"))),
    "check": Case("aot check of the slowest network below 5 MB, s", 1.0, _checks),
    "channels": Case("removal of channels, the slowest network, s", 3.0, _channels),
    "plan": Case("a plan of many buffers, s", 5.0, _plans),
    "hostile": Case("refusal of a hostile file, s", 5.0, _hostile),
    "print": Case("a megabyte of constants as C, s", 1.0, _printing),
    "interpreter": Case("a multiply-accumulate in the interpreter, us", 5.0, _interpreter, 10 * 64 * 16 * 72 * 1e-6),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line per case; 1 if one exceeds its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.cases if name not in CASES]
    if unknown:
        parser.error(f"no such case: {', '.join(unknown)}")
    os.environ["AOT_NO_CACHE"] = "1"
    slow = 0
    for name in chosen.cases or CASES:
        case = CASES[name]
        part, figure = measure(case)
        slow += figure > case.bar
        verdict = "above its bar" if figure > case.bar else ""
        print(f"{name:12} {figure:7.2f} of at most {case.bar:4.1f}  {case.what}  {part}  {verdict}".rstrip(), flush=True)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
