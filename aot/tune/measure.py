"""The measure runner: many kernels in one image, each as a layer, counted on a board and compared with their meaning.

An image's main calls every kernel once, kernels of one task on the same operands, and returns all their results.
So one run counts all kernels, and shows whether any of them is wrong.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from aot.errors import TargetError, ToolchainError, VerificationError, internal
from aot.executor.artifact import Artifact
from aot.executor.candidates import CandidateModule, FusedModule, LoweringCache, all_candidates
from aot.executor.config import SelectionConfig
from aot.executor.emit import emit
from aot.executor.lower_te import copying, lower_te
from aot.executor.lowered import KernelCall, LoweredModule
from aot.executor.metadata import BuildInfo
from aot.executor.pipeline import lower_main, optimize_functions
from aot.executor.select_kernels import choose_kernels
from aot.executor.storage_map import Planned, make_layout
from aot.ir.module import in_phase, of_phase
from aot.ir.op import Array
from aot.ir.type import TensorType, TupleType
from aot.micro.board import Board
from aot.micro.build.project import prepare
from aot.micro.run.runner import RunResult, run
from aot.relay.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from aot.relay.interpreter import evaluate
from aot.support.dataclass import dataclass
from aot.support.dtype import int_range, is_int, numpy_dtype
from aot.target.target import Target

NAME = "tuning"
"""Name of the images' model."""

TOO_SLOW = "E3010"
"""The error code of an image that did not end within the board's time."""


@dataclass(frozen=True, slots=True)
class MeasureInput:
    """A task's function, and its kernels to measure."""

    workload: str
    func: Function
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeasureResult:
    """The result for one kernel: its cost in the board's unit, or why there is none.

    `wrong`: how its output differs from its meaning.  `problem`: why it could not be measured (code and message).
    """

    workload: str
    kernel: str
    count: int | None = None
    wrong: str = ""
    problem: str = ""


def measure(inputs: Sequence[MeasureInput], board: Board, target: Target) -> list[MeasureResult]:
    """Count every kernel, in the order of the inputs; in several images if one does not fit the board.

    Raises ToolchainError if the tools fail, and the errors of the board; a kernel that cannot be built alone is a result.
    """
    pairs = [(task, kernel) for task in inputs for kernel in task.kernels]
    return _measured(pairs, board, target) if pairs else []


Pairs = Sequence[tuple[MeasureInput, str]]


def _measured(pairs: Pairs, board: Board, target: Target) -> list[MeasureResult]:
    try:
        return _one_image(pairs, board, target)
    except (TargetError, VerificationError, ToolchainError) as error:
        problem = error.problems[0]
        if isinstance(error, ToolchainError) and problem.code != TOO_SLOW:
            raise
        if len(pairs) == 1:
            ((given, kernel),) = pairs
            result = MeasureResult(given.workload, kernel)
            faulty = isinstance(error, VerificationError)
            return [replace(result, wrong=str(problem)) if faulty else replace(result, problem=str(problem))]
    half = len(pairs) // 2
    return [*_measured(pairs[:half], board, target), *_measured(pairs[half:], board, target)]


def _one_image(pairs: Pairs, board: Board, target: Target) -> list[MeasureResult]:
    """Build and run one image of all these kernels."""
    warm_up = MeasureInput("", copying(4, "int8"), ("",))  # the first layer's count includes entering main
    pairs = [(warm_up, ""), *pairs]
    main, operands = _main([task.func for task, _ in pairs])
    artifact = _artifact(main, [kernel for _, kernel in pairs], target)
    with tempfile.TemporaryDirectory(prefix="aot-tune-") as folder:
        result = run(prepare(artifact, board, folder=Path(folder)), [operands], mode="profile")
    counts = _counts(result, board)
    expected = evaluate_once(pairs, main, operands)
    results, at = [], 0
    for (task, kernel), count in zip(pairs, counts, strict=True):
        outputs = expected[id(task.func)]
        computed = result.outputs[0][at : at + len(outputs)]
        at += len(outputs)
        results.append(MeasureResult(task.workload, kernel, count, wrong=_difference(outputs, computed)))
    return results[1:]


def _counts(result: RunResult, board: Board) -> list[int]:
    counts = [layer.cycles if board.counts_cycles else layer.instructions for layer in result.layers]
    if any(n is None for n in counts):
        raise internal("the board did not count every layer", where=board.name)
    return [n for n in counts if n is not None]


def evaluate_once(pairs: Pairs, main: Function, operands: Sequence[Array]) -> dict[int, list[Array]]:
    """The results of each function, by its id."""
    values = {id(v): a for v, a in zip(main.params, operands, strict=True)}
    assert isinstance(main.body, Tuple)
    results: dict[int, list[Array]] = {}
    for call in _calls(main):
        assert isinstance(call.op, Function)
        if id(call.op) not in results:
            results[id(call.op)] = evaluate(call.op, [values[id(a)] for a in call.args])
    return results


def _calls(main: Function) -> list[Call]:
    """The calls in order of use."""
    assert isinstance(main.body, Tuple)
    return list(dict.fromkeys(map(_call_of, main.body.fields)))


def _call_of(field: Expr) -> Call:
    """The call behind a field of main's result."""
    call = field.value if isinstance(field, TupleGetItem) else field
    assert isinstance(call, Call)
    return call


def _difference(expected: Sequence[Array], computed: Sequence[Array]) -> str:
    """The first difference of the bytes, in words; empty if there is none.  All NaNs are equal."""
    for number, (want, have) in enumerate(zip(expected, computed, strict=True)):
        want, have = want.ravel(), have.ravel()
        same = (
            want == have if is_int(str(want.dtype)) or want.dtype == bool else (want == have) | ((want != want) & (have != have))
        )
        if not np.all(same):
            wrong = np.flatnonzero(~same)
            i = int(wrong[0])
            return f"{wrong.size} of {want.size} values of output {number}: value {i} is {have[i]}, its meaning {want[i]}"
    return ""


def _main(funcs: Sequence[Function]) -> tuple[Function, list[Array]]:
    """A function that calls each of these on its own parameters, shared if equal; and values for the parameters."""
    params: dict[int, tuple[Var, ...]] = {}
    operands: list[Array] = []
    fields_: list[Call | TupleGetItem] = []
    for func in funcs:
        if id(func) not in params:
            first = len(operands)
            params[id(func)] = tuple(Var(f"x{first + i}", p.type) for i, p in enumerate(func.params))
            operands += [drawn(p.type, seed=first + i) for i, p in enumerate(func.params)]
        call = Call(func, params[id(func)], None, func.body.type)
        if isinstance(call.type, TupleType):
            fields_ += [TupleGetItem(call, i, t) for i, t in enumerate(call.type.fields)]
        else:
            fields_.append(call)
    types = [f.type for f in fields_]
    assert all(isinstance(t, TensorType) for t in types)
    body = Tuple(tuple(fields_), TupleType(tuple(t for t in types if isinstance(t, TensorType))))
    return Function(tuple(v for vs in params.values() for v in vs), body), operands


def drawn(type_: TensorType, *, seed: int) -> Array:
    """Values of a type, always the same: integers of 8 and 16 bits over their whole range, others small, floats normal."""
    rng = np.random.default_rng([zlib.crc32(str(type_).encode()), seed])
    if type_.dtype == "bool":
        return rng.integers(0, 2, type_.shape).astype(bool)
    if is_int(type_.dtype):
        low, high = int_range(type_.dtype)
        low, high = (low, high) if numpy_dtype(type_.dtype).itemsize <= 2 else (0, 1)
        return rng.integers(low, high, type_.shape, endpoint=True).astype(numpy_dtype(type_.dtype))
    return rng.standard_normal(type_.shape).astype(numpy_dtype(type_.dtype))


def _artifact(main: Function, kernels: Sequence[str], target: Target) -> Artifact:
    """The C of a main function whose layer i is its call number i, with `kernels[i]`; "": with any kernel."""
    fused = FusedModule({"main": main}, NAME, target=target, config=SelectionConfig(opt="speed"))
    draft = of_phase(lower_te(fused), CandidateModule, "the measure runner")
    assert isinstance(main.body, Tuple)
    numbers = {id(call): i for i, call in enumerate(_calls(main))}
    by_output = {draft.outputs[i]: numbers[id(_call_of(f))] for i, f in enumerate(main.body.fields)}
    order = [by_output[call.outputs[0]] for call in draft.calls]
    picked = [_with_kernel(call, kernels[n], target, fused.cache) for call, n in zip(draft.calls, order, strict=True)]
    lowered = choose_kernels(replace(in_phase(draft, LoweredModule), calls=tuple(picked)))
    calls = dict(zip(order, lowered.calls, strict=True))  # independent of each other
    lowered = optimize_functions(replace(lowered, calls=tuple(calls[i] for i in range(len(calls)))), {})
    layout = make_layout(lowered)
    planned = in_phase(lowered, Planned, layout=layout)
    return emit(lower_main(planned), info=BuildInfo(opt="speed")).artifact


def _with_kernel(call: KernelCall, kernel: str, target: Target, cache: LoweringCache) -> KernelCall:
    """The call with the candidate of this name as its only one."""
    assert call.fused is not None
    found = all_candidates(call.fused, target, "layer", cache)
    chosen = next((c for c in found if kernel in (c.kernel, "")), None)
    if chosen is None:
        names = ", ".join(c.kernel for c in found)
        raise internal(f"no kernel {kernel} accepts the task; available: {names}", where=call.func)
    func = replace(chosen.lowered.func, name=call.func)
    return replace(call, candidates=(replace(chosen, source=replace(chosen.lowered, func=func)),))
