"""`NAME_run_step` in C: a switch over the steps of the main function (aot compile --in-steps)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aot.executor.codegen.lower_main import TURN
from aot.executor.codegen.main_text import MainPrinter, copies_in, probe, reset_call
from aot.executor.codegen.program import Program
from aot.executor.codegen.steps import Decision, Step, make_steps
from aot.support.dataclass import dataclass
from aot.target.codegen_calls import print_calls
from aot.target.target import Target
from aot.tir.expr import BinOp, Expr
from aot.tir.functor import walk
from aot.tir.stmt import CallPrim, Let, Region, Stmt

UNKNOWN = 40
"""Instructions for each element of the largest tensor of a layer whose kernel does not estimate them."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """The main function in steps.  `begin`: what comes before the first; `lets`: what each of them needs.

    `work` are the estimated instructions of each, the first number for no step at all; `rows`: the first step is one of the
    rows of a fed input, and comes again until that many are in; 0 where there are none.
    """

    begin: tuple[Stmt, ...]
    lets: tuple[Let, ...]
    steps: tuple[Step | Decision, ...]
    work: tuple[int, ...]
    rows: int = 0

    @property
    def count(self) -> int:
        """How many different steps there are."""
        return len(self.work) - 1


def plan_steps(program: Program) -> StepPlan:
    """The steps of a program, which begin with number 1."""
    feeding = program.main.feeding
    func = program.main.run if feeding is None else feeding.end
    lets = tuple(s for s in func.body if isinstance(s, Let))
    before = len(lets) + (copies_in(program) if feeding is None else 0)
    begin: tuple[Stmt, ...] = tuple(s for s in func.body[:before] if not isinstance(s, Let))
    begin = ((*lets, *begin) if any(_moves_on(s) for s in begin) else begin) if begin else ()
    first = 1 if feeding is None else 2
    steps = make_steps(func.body[before:], first=first) or (Step(first, (), first + 1),)
    work = [_work(program, s.layer if isinstance(s, Step) else -1) for s in steps]
    rows = 0
    if feeding is not None:
        rows = max(feeding.last + 1, feeding.rows)
        work.insert(0, max(1, _work(program, 0) // (rows - feeding.first)))
    return StepPlan(begin, lets, steps, (0, *work), rows)


def _moves_on(stmt: Stmt) -> bool:
    """Whether a copy's place depends on how far the windows of the state have moved on."""
    return isinstance(stmt, CallPrim) and any(isinstance(o, Region) and _uses_turn(o.index) for o in stmt.operands)


def _uses_turn(index: Expr) -> bool:
    return index is TURN or (isinstance(index, BinOp) and (_uses_turn(index.a) or _uses_turn(index.b)))


def _work(program: Program, layer: int) -> int:
    """Instructions of a step, at least one: the kernel's estimate, or one of our own where it has none (softmax)."""
    if layer < 0:
        return 1
    found = program.layers[layer]
    largest = max(t.type.size for t in (*found.call.inputs, *found.call.outputs))
    return found.call.estimate or max(found.func.attrs.macs, UNKNOWN * largest, 1)


def step_values(program: Program, target: Target) -> dict[str, Any]:
    """What the templates say of the steps."""
    plan = plan_steps(program)
    feeding = program.main.feeding
    func = program.main.run if feeding is None else feeding.end
    text_of = print_calls(func, target=target, addresses=program)
    printer = MainPrinter(program, text_of)
    lets = [line for let in plan.lets for line in text_of(let).splitlines()]
    cases = [_case(step, printer, program) for step in plan.steps]
    user_state = program.layout.io == "user" and bool(program.lowered.states)
    writes_out = any(o.buffer in program.main.buffers.outputs for o in _regions(plan))
    return {
        "count": plan.count,
        "rows": plan.rows,
        "end": plan.count + 1,
        "most": max(plan.work),
        "begin": [line for stmt in plan.begin for line in text_of(stmt).splitlines()],
        "lets": lets,
        "cases": cases,
        "work": ", ".join(map(str, plan.work)),
        "counters": sum(isinstance(s, Decision) and s.counter >= 0 for s in plan.steps),
        "reads_in": any(o.buffer in program.main.buffers.inputs for o in _regions(plan)),
        "writes_out": writes_out,
        "keeps_out": writes_out or user_state,
        "probe": probe(program, 0) if feeding is not None else "",
    }


def _regions(plan: StepPlan) -> list[Region]:
    """The memory that the steps pass to what they call; that of decisions is in the workspace."""
    calls = (s for step in plan.steps if isinstance(step, Step) for s in walk(step.body) if isinstance(s, CallPrim))
    return [o for call in calls for o in call.operands if isinstance(o, Region)]


def _case(step: Step | Decision, printer: MainPrinter, program: Program) -> dict[str, Any]:
    """A number and the lines of its case."""
    if isinstance(step, Decision):
        return {"number": step.number, "lines": _decision(step, printer.text_of(step.of.cond), program)}
    lines = [line for stmt in step.body for line in printer.statement(stmt)]
    lines = lines[1:] if lines[:1] == [""] else lines
    return {"number": step.number, "lines": [*lines, f"at = {step.following}u;"]}


def _decision(step: Decision, held: str, program: Program) -> Sequence[str]:
    if step.counter < 0:
        return [f"at = {held} != 0u ? {step.then}u : {step.orelse}u;"]
    turn, limit = f"turns[{step.counter}]", getattr(step.of, "limit", 0)
    return [
        f"if ({held} == 0u) {{",
        f"  {turn} = 0u;",
        f"  at = {step.orelse}u;",
        f"}} else if ({turn} == {limit}u) {{",
        f"  {reset_call(program) or 'leave();'}",
        "  return AOT_ERROR_ITERATIONS;",
        "} else {",
        f"  ++{turn};",
        f"  at = {step.then}u;",
        "}",
    ]
