"""Tasks: the workloads of a model of which there is something to choose."""

from __future__ import annotations

from collections.abc import Iterator

from aot.driver.build import fused_module
from aot.driver.front import front
from aot.driver.options import Options
from aot.driver.plugins import load_installed
from aot.executor.candidates import Known, all_candidates
from aot.ir.op import Op
from aot.relay.analysis import cost, workload_key, workload_text
from aot.relay.expr import Call, Function, all_functions, post_order
from aot.support.dataclass import dataclass
from aot.target.target import Target

MOST_SLOWER = 3.0
"""Kernels that are estimated to take more than so many times the fewest instructions are not measured: no estimate of a kernel is
that far from what is counted.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """A kernel that takes a task: its name, what it is estimated to take, and the bytes of its constants, code and scratch."""

    kernel: str
    estimate: int
    constants: int
    code: int
    scratch: int


@dataclass(frozen=True, slots=True)
class Task:
    """A workload: one fused function that has it, in how many layers of the model it occurs, and its kernels, best first."""

    workload: str
    text: str
    func: Function
    target: Target
    macs: int
    layers: int
    choices: tuple[Choice, ...]


def extract_tasks(
    data: bytes, target: Target, *, name: str, options: Options, most_slower: float = MOST_SLOWER
) -> tuple[Task, ...]:
    """The tasks of a model whose shapes are known, in order of execution: workloads that more than one kernel takes.

    Raises the errors of the compiler.
    """
    load_installed()
    found = front(data, target, name=name, options=options)
    main = fused_module(found.main, target, name=name, options=options, slides=found.slides).main
    return tasks_of(main, target, most_slower=most_slower)


def tasks_of(main: Function, target: Target, *, most_slower: float = MOST_SLOWER) -> tuple[Task, ...]:
    """The tasks of a fused main function; `most_slower` as MOST_SLOWER."""
    groups: dict[str, list[Function]] = {}
    for func in _groups(main):
        key = workload_key(func)
        if key is not None:
            groups.setdefault(key, []).append(func)
    known, found = Known(), []
    for key, funcs in groups.items():
        choices = choices_of(funcs[0], target, known, most_slower=most_slower)
        if len(choices) > 1:
            macs = cost(funcs[0]).macs
            found.append(Task(key, workload_text(funcs[0]), funcs[0], target, macs, len(funcs), choices))
    return tuple(found)


def choices_of(func: Function, target: Target, known: Known, *, most_slower: float = MOST_SLOWER) -> tuple[Choice, ...]:
    """The kernels that are worth measuring, those of the fewest estimated instructions first, those without estimates last."""
    found = all_candidates(func, target, "layer", known)
    told = [c.instructions for c in found if c.instructions > 0]
    limit = most_slower * min(told, default=0)
    chosen: dict[str, Choice] = {}
    for c in sorted(found, key=lambda c: (c.instructions or 1 << 62, c.kernel)):
        if c.instructions <= limit and (c.instructions > 0 or not told):
            chosen.setdefault(c.kernel, Choice(c.kernel, c.instructions, c.constants, c.code, c.scratch))
    return tuple(chosen.values())


def _groups(main: Function) -> Iterator[Function]:
    """The fused functions in order of execution, branches and loops included; those for external code generators are left out."""
    for func in all_functions(main):
        for expr in post_order(func.body):
            if isinstance(expr, Call) and not isinstance(expr.op, Op) and "Compiler" not in expr.op.attrs:
                yield expr.op
