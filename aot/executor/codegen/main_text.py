"""The main function as lines of C: copies, calls of layers, and the branches and loops around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aot.executor.codegen.program import Program
from aot.target.c_text import comment
from aot.target.codegen_calls import print_calls
from aot.target.target import Target
from aot.tir.expr import Expr, Load
from aot.tir.function import PrimFunc
from aot.tir.functor import walk
from aot.tir.stmt import CallPrim, If, Region, Stmt, While

RELEASE = "aot_workspace_release();"


def main_lines(program: Program, func: PrimFunc, target: Target) -> list[str]:
    """The lines of a main function: copies, and calls of layers with a comment above and a probe below."""
    lines: list[str] = []
    layers = [stmt for stmt in func.body if runs_layers(stmt)]
    begin = func.body.index(layers[0]) if layers else copies_in(program) if func is program.main.run else 0
    printer = MainPrinter(program, print_calls(func, target=target, addresses=program))
    for k, stmt in enumerate(func.body):
        if k == begin + len(layers):
            lines.append("")
        lines += [f"  {line}" if line else "" for line in printer.statement(stmt)]
    return lines if len(func.body) > begin + len(layers) else [*lines, ""]


def runs_layers(stmt: Stmt) -> bool:
    """Whether a statement is a layer, or decides which run: what moves windows of the state on is none."""
    return isinstance(stmt, While) or (isinstance(stmt, If) and isinstance(stmt.cond, Load)) or (
        isinstance(stmt, CallPrim) and stmt.layer >= 0
    )  # fmt: skip


class MainPrinter:
    """The statements of a main function as lines; `text_of` prints calls and what decides branches and loops."""

    def __init__(self, program: Program, text_of: Callable[[Stmt | Expr], str]) -> None:
        self._program = program
        self.text_of = text_of
        self._loops = 0

    def statement(self, stmt: Stmt) -> list[str]:
        match stmt:
            case CallPrim(layer=layer) if layer >= 0:
                return self._layer(stmt, layer)
            case If(cond, then, orelse):
                decided = f"{self.text_of(cond)} != 0u" if isinstance(cond, Load) else self.text_of(cond)
                lines = ["", f"if ({decided}) {{", *self._body(then)]
                return [*lines, *(["} else {", *self._body(orelse)] if orelse else []), "}"]
            case While():
                return self._while(stmt)
            case _:
                return self.text_of(stmt).splitlines()

    def _body(self, body: Sequence[Stmt]) -> list[str]:
        lines = [line for stmt in body for line in self.statement(stmt)]
        return [f"  {line}" if line else "" for line in (lines[1:] if lines[:1] == [""] else lines)]

    def _layer(self, stmt: CallPrim, number: int) -> list[str]:
        layer = self._program.layers[number]
        call = layer.call
        shapes = f"{', '.join(str(t.type) for t in call.inputs)} -> {', '.join(str(t.type) for t in call.outputs)}"
        what = comment(f"{call.does or layer.func.name} {call.outputs[0].name[:60]}")
        return ["", f"/* {number}: {what}  {shapes} */", *self.text_of(stmt).splitlines(), probe(self._program, number)]

    def _while(self, loop: While) -> list[str]:
        """A loop that stops in its middle; with a limit, its iterations are counted."""
        head, give_up = "for (;;) {", list[str]()
        if loop.limit:
            turn = f"turn_{self._loops}"
            self._loops += 1
            head = f"for (uint32_t {turn} = 0;; ++{turn}) {{"
            undo = [f"    {line}" for line in (reset_call(self._program), RELEASE if self._program.shared else "") if line]
            give_up = [f"  if ({turn} == {loop.limit}u) {{", *undo, "    return AOT_ERROR_ITERATIONS;", "  }"]
        leave = [f"  if ({self.text_of(loop.cond)} == 0u) {{", "    break;", "  }"]
        return ["", head, *self._body(loop.test), *leave, *give_up, *self._body(loop.body), "}"]


def reset_call(program: Program) -> str:
    """What a run does to its state that ends half-way; nothing where there is none."""
    if not program.lowered.states:
        return ""
    return f"{program.lowered.name}_reset({'state' if program.layout.io == 'user' else ''});"


def copies_in(program: Program) -> int:
    """How many inputs are copied into the workspace."""
    return sum(p.where != "input" for p in map(program.layout.places.__getitem__, program.lowered.inputs))


def probe(program: Program, index: int) -> str:
    """What a harness sees of a layer: the address and the bytes of its first result."""
    call = next(s for s in walk(program.main.run.body) if isinstance(s, CallPrim) and s.layer == index)
    layer = program.layers[index]
    result = call.operands[len(layer.func.inputs)]
    assert isinstance(result, Region)
    return f"AOT_LAYER({index}, {program.address(result)}, {layer.call.outputs[0].type.nbytes}u);"
