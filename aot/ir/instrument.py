"""Instruments: they watch passes as they run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from aot.errors import InternalError, Problem, UsageError, call_place
from aot.errors.tvm_names import missing_in
from aot.ir.module import BaseFunc, Dialect, IRModule, dialect_of
from aot.ir.op import Array
from aot.ir.transform import Pass, PassInstrument, get_pass
from aot.ir.type import TensorType
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_float, numpy_dtype


@dataclass(frozen=True, slots=True)
class PassTime:
    """Wall-clock seconds of one run of a pass."""

    name: str
    seconds: float


K = TypeVar("K", bound=type)


def pass_instrument(kind: K) -> K:
    """A class decorator: turn `kind` into a PassInstrument with whichever of its methods it defines; `kind` needs no base class.

    UsageError E5037 if `kind` is not a class, or if a method has its former name.
    """
    if not isinstance(kind, type):
        raise UsageError(Problem("E5037", f"pass_instrument decorates a class, not {kind!r}", call_place()))
    if issubclass(kind, PassInstrument):
        return kind
    members = {k: v for k, v in vars(kind).items() if k not in ("__dict__", "__weakref__", "__slots__")}
    metaclass: Any = type(kind)
    made: Any = metaclass(kind.__name__, (*(b for b in kind.__bases__ if b is not object), PassInstrument), members)
    return made  # type: ignore[no-any-return]


class PassTimingInstrument(PassInstrument):
    """Collects `rows`, one per run of a pass; `render()` returns them as a table."""

    def __init__(self) -> None:
        self.rows: list[PassTime] = []
        self._started: list[float] = []

    def run_before_pass(self, module: IRModule, info: Pass) -> None:
        """Start the clock.

        `module`: the input of the pass; `info`: the pass.
        """
        self._started.append(perf_counter())

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        """Stop the clock.

        `module`: the result of the pass; `info`: the pass.
        """
        self.rows.append(PassTime(info.name, perf_counter() - self._started.pop()))

    def render(self) -> str:
        """One line per pass, in the order of the first runs: total milliseconds, number of runs, name."""
        rows: dict[str, list[float]] = {}
        for row in self.rows:
            rows.setdefault(row.name, []).append(row.seconds)
        lines = (f"{1000 * sum(times):10.3f} ms  {len(times):4d}x  {name}" for name, times in rows.items())
        return "".join(f"{line}\n" for line in lines)

    def exit_pass_ctx(self) -> None:
        """Forget the clocks of passes that failed."""
        self._started.clear()


class DumpIR(PassInstrument):
    """Writes the module into `folder` before the first pass (`00_input.relay`) and after each (`03_fuse_ops.relay`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: list[Path] = []
        self._number = 0

    def run_before_pass(self, module: IRModule, info: Pass) -> None:
        """Write the input, once."""
        if not self._number:
            self._write(module, "input")

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        """Write the result."""
        self._write(module, info.name)

    def _write(self, module: IRModule, title: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        texts: dict[str, list[str]] = {}
        for name, func in module.functions.items():
            kind = dialect_of(func)
            texts.setdefault(kind.name, []).append(kind.to_text(func, name))
        for suffix, parts in texts.items():
            path = self.folder / f"{self._number:02d}_{title}.{suffix}"
            path.write_text("\n".join(parts), encoding="utf-8", newline="\n")
            self.files.append(path)
        self._number += 1


class Stopped(Exception):  # noqa: N818 - a requested stop, not an error
    """Raised by StopAfter."""


class StopAfter(PassInstrument):
    """Ends the compilation after the first run of a pass: raises Stopped; UsageError E5030 for an unknown pass."""

    def __init__(self, name: str) -> None:
        self._name = get_pass(name).name

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        """Stop if this is the pass."""
        if info.name == self._name:
            raise Stopped


class VerifyIR(PassInstrument):
    """Runs the verifier of each function's IR after every pass; an InternalError (E9003) names the pass in its notes."""

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        """Verify all functions."""
        for name, func in module.functions.items():
            try:
                dialect_of(func).verify(func, name)
            except InternalError as error:
                error.add_note(f"after pass {info.name}")
                raise


Results = dict[str, tuple[list[tuple[tuple[int, ...], str]], list[Array]]]
"""Per function: shapes and element types of the drawn operands, and the results."""


class CheckSemantics(PassInstrument):
    """Runs the module on random inputs before and after every pass, and compares the results bit by bit (E9004).

    A pass that changes the operands of functions must satisfy its own law (`Pass.law`), if it has one.  Functions that cannot run
    on random operands are not compared, nor are functions that a pass adds or removes.  `compared` counts the comparisons.
    """

    def __init__(self, *, seed: int = 0, sets: int = 1) -> None:
        self._seed = seed
        self._sets = sets
        self._cached: tuple[IRModule, Results] | None = None
        self._expected: list[tuple[IRModule, Results]] = []
        self.compared = 0

    def run_before_pass(self, module: IRModule, info: Pass) -> None:
        """Run the module, unless its results are known from the pass before."""
        cached = self._cached is not None and self._cached[0] is module
        results = self._cached[1] if cached and self._cached is not None else self._results(module)
        self._expected.append((module, results))

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        """Run the module again; InternalError if a result differs."""
        results, (before, expected) = self._results(module), self._expected.pop()
        self._cached = (module, results)
        for name in sorted(module.functions.keys() & before.functions.keys()):
            was, now = before.functions[name], module.functions[name]
            if info.law is not None and was is not now and dialect_of(was) is dialect_of(now):
                fault = info.law(was, now, self._seed)
            elif name in results and name in expected and expected[name][0] == results[name][0]:
                fault = difference(expected[name][1], results[name][1])
            else:
                continue
            self.compared += 1
            if fault:
                error = InternalError(Problem("E9004", f"the pass {info.name} changes the result of {name}: {fault}"))
                error.add_note(dialect_of(now).to_text(now, name))
                raise error

    def exit_pass_ctx(self) -> None:
        """Forget everything."""
        self._cached = None
        self._expected.clear()

    def _results(self, module: IRModule) -> Results:
        table: Results = {}
        for name, func in module.functions.items():
            kind = dialect_of(func)
            if kind.evaluate is not None and kind.input_types is not None:
                types = kind.input_types(func)
                table[name] = [(t.shape, t.dtype) for t in types], self._run(func, kind, types)
            elif kind.run is not None:
                sets = [kind.run(module, name, self._seed + i) for i in range(self._sets)]
                if None not in sets:
                    table[name] = [], [array for one in sets if one is not None for array in one]
        return table

    def _run(self, func: BaseFunc, kind: Dialect, types: Sequence[TensorType]) -> list[Array]:
        assert kind.evaluate is not None
        results: list[Array] = []
        for i in range(self._sets):
            results += kind.evaluate(func, random_inputs(types, seed=self._seed + i))
        return results


def random_inputs(types: Sequence[TensorType], *, seed: int = 0) -> list[Array]:
    """One array per type, the same for the same `seed`: integers over their whole range, floats standard normal."""
    rng = np.random.default_rng(seed)
    return [drawn(rng, t.shape, t.dtype) for t in types]


def drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, *, span: int | None = None) -> Array:
    """Random values: integers over their whole range, or from 0 to `span`; floats standard normal."""
    stored = numpy_dtype(dtype)
    if dtype == "complex64":
        return rng.standard_normal((*shape, 2)).astype(np.float32).view(stored).reshape(shape)
    if is_float(dtype):
        return rng.standard_normal(shape).astype(stored)
    low, high = int_range(dtype)
    if span is not None:
        low, high = max(low, 0), min(high, span)
    wide = np.uint64 if dtype == "uint64" else np.int64
    return rng.integers(low, high, shape, dtype=wide, endpoint=True).astype(stored)


def difference(expected: list[Array], results: list[Array]) -> str:
    """The first difference, empty if there is none.  Bits count, so NaN equals itself and 0.0 is not -0.0."""
    if len(expected) != len(results):
        return f"{len(results)} outputs instead of {len(expected)}"
    for i, (a, b) in enumerate(zip(expected, results, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {i} is {b.dtype}{list(b.shape)} instead of {a.dtype}{list(a.shape)}"
        if a.tobytes() != b.tobytes():
            return f"output {i} differs in {int((a != b).sum())} of {a.size} elements"
    return ""


__getattr__ = missing_in("instrument")
