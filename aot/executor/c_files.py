"""The generated files: interface header, main function, kernels, constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from typing import Any

from aot.executor.artifact import Artifact, check_names
from aot.executor.lower_main import TURN, Main, TirModule
from aot.executor.metadata import Names
from aot.executor.storage_map import STATE_ALIGN, StorageInfo
from aot.executor.templates import aot_workspace_c, aot_workspace_h, model_c, model_h
from aot.ir.type import TensorType
from aot.support.dataclass import dataclass
from aot.support.dtype import ctype, itemsize
from aot.support.names import NameSupply, c_identifier
from aot.support.text import commas
from aot.target.codegen_c import PARAMETERS, comment, float_literal, print_calls, spdx_line
from aot.target.source_module import internal_header, kernels_source, params_source
from aot.target.target import Target
from aot.tir.expr import BinOp, Expr, Imm, Load
from aot.tir.function import PrimFunc
from aot.tir.functor import walk
from aot.tir.stmt import CallPrim, If, Let, Region, Stmt, While
from aot.version import __version__


@dataclass(frozen=True, slots=True)
class Program:
    """What the C files need: the module with its main function, the names of the caller's tensors, and the metadata."""

    module: TirModule
    main: Main
    names: Names
    metadata: Mapping[str, Any]
    places: PlaceNames

    @property
    def shared(self) -> bool:
        """Whether the workspace is one that several models share."""
        return bool(self.metadata["options"].get("share_workspace")) and self.module.layout.plan.size > 0

    def address(self, region: Region) -> str:
        """The C expression for a region's first byte; void * in the workspace."""
        buffers, base = self.main.buffers, region.buffer
        offset, hop = (n * itemsize(region.dtype) for n in _place(region.index))
        if hop:
            assert base is buffers.state
            return f"STATE({offset} + {TURN.name} * {hop})"
        if base is buffers.workspace:
            return self._at(offset, self.places.of_region.get(id(region), ""))
        if base is buffers.state:
            return f"STATE({offset})"
        text, const = base.name, "const "
        if base in buffers.inputs:
            text = self._field("in", self.names.inputs[buffers.inputs.index(base)])
        elif base in buffers.outputs:
            text, const = self._field("out", self.names.outputs[buffers.outputs.index(base)]), ""
        return f"(({const}char *){text} + {offset})" if offset else text

    def pointer(self, region: Region) -> str:
        """The same, as an argument of the region's type."""
        buffers, base, text = self.main.buffers, region.buffer, self.address(region)
        if " ? " in text:
            return text  # for a copy, which accepts any pointer
        plain = ctype(region.dtype) == ctype(base.dtype) and not text.startswith("(")
        if base is buffers.workspace or base is buffers.state or plain:
            return text
        return f"(void *){text}" if base in buffers.outputs else f"(const void *){text}"

    def _field(self, struct: str, field: str) -> str:
        """The caller's pointer; if slots replace NULL pointers, the struct may be NULL too."""
        return f"{struct}->{field}" if self.module.layout.io == "user" else f"{struct} != NULL ? {struct}->{field} : NULL"

    def at(self, place: StorageInfo, tensor: str) -> str:
        """The address of a place in the workspace that holds a tensor of this name."""
        offset = self.module.layout.offset(place)
        return self._at(offset, self.places.of_tensor.get((tensor, offset), ""))

    def _at(self, offset: int, name: str = "") -> str:
        """A byte of the plan in C, by the name of what begins there if it has one."""
        pool, offset = self._in_pool(offset)
        return f"AT{pool}({name})" if name else f"AT{pool}_OFFSET({offset})"

    def _in_pool(self, offset: int) -> tuple[str, int]:
        """The ending of the pool's macros, and the offset in it.  Pools other than the first, the workspace, are other arrays."""
        pools = self.module.layout.pools
        pool = max((k for k, u in enumerate(pools) if u.base <= offset), default=0)
        return (f"_{pools[pool].pool.name}", offset - pools[pool].base) if pool else ("", offset)

    def offsets(self) -> list[tuple[str, int]]:
        """The named places: the name and the offset in its pool."""
        return [(name, self._in_pool(offset)[1]) for name, offset in self.places.offsets.items()]


@dataclass(frozen=True, slots=True)
class PlaceNames:
    """Names for places of the workspace: by identity of a region of main, by tensor and offset; and the offsets."""

    of_region: Mapping[int, str]
    of_tensor: Mapping[tuple[str, int], str]
    offsets: Mapping[str, int]


_LONGEST = 48
"""Characters of a tensor's name in C."""


def name_places(module: TirModule, main: Main) -> PlaceNames:
    """Operands and results of layers are called as their tensors, scratch memory as its buffer and the layer's number."""
    supply, of_region, of_tensor, offsets = NameSupply(), dict[int, str](), dict[tuple[str, int], str](), dict[str, int]()
    for call in (s for s in walk(main.run.body) if isinstance(s, CallPrim)):
        for region, text in zip(call.operands, _operand_names(call, module, main), strict=False):
            if not isinstance(region, Region) or region.buffer is not main.buffers.workspace or not text:
                continue
            key = text, _place(region.index)[0] * itemsize(region.dtype)
            if key not in of_tensor:
                of_tensor[key] = supply.fresh(c_identifier(text, default="tensor")[:_LONGEST])
                offsets[of_tensor[key]] = key[1]
            of_region[id(region)] = of_tensor[key]
    return PlaceNames(of_region, of_tensor, offsets)


def _operand_names(call: CallPrim, module: TirModule, main: Main) -> list[str]:
    """A name for each operand of a layer, or of a copy from an input or to an output; "" for what is not in the workspace."""
    if call.layer >= 0:
        layer = module.layers[call.layer]
        tensors = [t.name for t in (*layer.call.inputs, *layer.call.outputs)]
        return [*tensors, *("" for _ in layer.constants), *(f"{b.name}_{call.layer}" for b in layer.func.scratch)]
    source, to = (o.buffer if isinstance(o, Region) else None for o in call.operands[:2])
    named = zip((*main.buffers.inputs, *main.buffers.outputs), (*module.lowered.inputs, *module.lowered.outputs), strict=True)
    return [next((t.name for b, t in named if b is source or b is to), "")] * 2


def _place(index: Expr) -> tuple[int, int]:
    """`a + b * TURN` as (a, b)."""
    match index:
        case Imm(value):
            return int(value), 0
        case BinOp("+", a, b):
            (offset, hop), (more, faster) = _place(a), _place(b)
            return offset + more, hop + faster
        case BinOp("*", a, Imm(value)):
            return _place(a)[0] * int(value), _place(a)[1] * int(value)
        case _:
            assert index is TURN
            return 0, 1


# ---- the main function: copies, calls of layers, and the branches and loops around them


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
    """Whether a statement is a layer, or decides which layers run; moving windows of the state does not count."""
    return isinstance(stmt, While) or (isinstance(stmt, If) and isinstance(stmt.cond, Load)) or (
        isinstance(stmt, CallPrim) and stmt.layer >= 0
    )  # fmt: skip


class MainPrinter:
    """The statements of a main function as lines; `text_of` prints calls and conditions of branches and loops."""

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
        layer = self._program.module.layers[number]
        call = layer.call
        shapes = f"{', '.join(str(t.type) for t in call.inputs)} -> {', '.join(str(t.type) for t in call.outputs)}"
        what = comment(f"{call.does or layer.func.name} {call.outputs[0].name[:60]}")
        return ["", f"/* {number}: {what}  {shapes} */", *self.text_of(stmt).splitlines(), probe(self._program, number)]

    def _while(self, loop: While) -> list[str]:
        """A loop that stops in the middle; with a limit, its iterations are counted."""
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
    """What a run that ends half-way does to its state; nothing if there is no state."""
    if not program.module.lowered.states:
        return ""
    return f"{program.module.lowered.name}_reset({'state' if program.module.layout.io == 'user' else ''});"


def copies_in(program: Program) -> int:
    """How many inputs are copied into the workspace."""
    return sum(p.where != "input" for p in map(program.module.layout.places.__getitem__, program.module.lowered.inputs))


def probe(program: Program, index: int) -> str:
    """What a harness sees of a layer: the address and size of its first result."""
    call = next(s for s in walk(program.main.run.body) if isinstance(s, CallPrim) and s.layer == index)
    layer = program.module.layers[index]
    result = call.operands[len(layer.func.inputs)]
    assert isinstance(result, Region)
    return f"AOT_LAYER({index}, {program.address(result)}, {layer.call.outputs[0].type.nbytes}u);"


# ---- the main function in steps: one per layer, branch condition or loop condition, numbered in program order


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """Statements, at most one of them a layer, and the number of the following step."""

    number: int
    body: tuple[Stmt, ...]
    following: int

    @property
    def layer(self) -> int:
        """The number of its layer; -1 if it has none."""
        return next((s.layer for s in self.body if isinstance(s, CallPrim) and s.layer >= 0), -1)


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Which step comes next: `then` if the condition of `of` holds, else `orelse`.

    `counter` numbers the loops that stop with an error after `of.limit` iterations; -1 for all others.
    """

    number: int
    of: If | While
    then: int
    orelse: int
    counter: int = -1


def make_steps(body: Sequence[Stmt], *, first: int) -> tuple[Step | Decision, ...]:
    """The steps of a body, from number `first` on; the number after the last one is the end.

    Statements other than layers (results that are copied out) belong to the layer before, or to the one after if there is none.
    """
    steps: list[Step | Decision] = []
    counters = count()

    def lay(body: Sequence[Stmt], at: int, end: int) -> None:
        """Number a body from `at` on; step `end` follows it."""
        items = _items(body)
        for k, item in enumerate(items):
            behind = at + _item_size(item)
            following = end if k == len(items) - 1 else behind
            match item:
                case (If(_, then, orelse) as branch,) if runs_layers(branch):
                    other = at + 1 + _size(then)
                    steps.append(Decision(at, branch, at + 1 if then else following, other if orelse else following))
                    lay(then, at + 1, following)
                    lay(orelse, other, following)
                case (While(test=test, body=inner) as loop,):
                    decides = at + _size(test)
                    counter = next(counters) if loop.limit else -1
                    lay(test, at, decides)
                    steps.append(Decision(decides, loop, decides + 1 if inner else at, following, counter))
                    lay(inner, decides + 1, at)
                case _:
                    steps.append(Step(at, item, following))
            at = behind

    lay(body, first, first + _size(body))
    return tuple(sorted(steps, key=lambda s: s.number))


def _items(body: Sequence[Stmt]) -> list[tuple[Stmt, ...]]:
    """Branches and loops alone; every other layer with the surrounding statements that are not layers."""
    items: list[tuple[Stmt, ...]] = []
    open_ = False  # whether the last item accepts more statements that are not layers
    waits = False  # whether it still waits for a layer
    for stmt in body:
        decides = runs_layers(stmt) and not isinstance(stmt, CallPrim)
        if decides or not open_ or (runs_layers(stmt) and not waits):
            items.append((stmt,))
            waits = not runs_layers(stmt)
        else:
            items[-1] = (*items[-1], stmt)
            waits = waits and not runs_layers(stmt)
        open_ = not decides
    return items


def _size(body: Sequence[Stmt]) -> int:
    return sum(map(_item_size, _items(body)))


def _item_size(item: tuple[Stmt, ...]) -> int:
    match item:
        case (If(_, then, orelse) as branch,) if runs_layers(branch):
            return 1 + _size(then) + _size(orelse)
        case (While(test=test, body=body),):
            return 1 + _size(test) + _size(body)
        case _:
            return 1


# ---- `NAME_run_step`: a switch over these steps (aot compile --in-steps)


UNKNOWN = 40
"""Estimated instructions per element of the largest tensor of a layer whose kernel has no estimate."""


def _uses_turn(index: Expr) -> bool:
    return index is TURN or (isinstance(index, BinOp) and (_uses_turn(index.a) or _uses_turn(index.b)))


def _work(program: Program, layer: int) -> int:
    """Instructions of a step, at least one: the kernel's estimate, or our own if it has none (softmax)."""
    if layer < 0:
        return 1
    row = program.module.layers[layer]
    largest = max(t.type.size for t in (*row.call.inputs, *row.call.outputs))
    return row.call.estimate or max(row.func.attrs.macs, UNKNOWN * largest, 1)


def step_values(program: Program, target: Target) -> dict[str, Any]:
    """The values of the templates for steps, which start with number 1.

    `work`: the estimated instructions of each step, where the first number is for no step at all.  If the input is fed, the first
    step is one row of it, and repeats until `rows` have arrived; 0 if it is not.
    """
    feeding, buffers = program.main.feeding, program.main.buffers
    func = program.main.run if feeding is None else feeding.end
    lets = [s for s in func.body if isinstance(s, Let)]
    before = len(lets) + (copies_in(program) if feeding is None else 0)
    begin: list[Stmt] = [s for s in func.body[:before] if not isinstance(s, Let)]
    if any(_uses_turn(region.index) for region in _regions(begin)):  # windows of the state have advanced
        begin = [*lets, *begin]
    first = 1 if feeding is None else 2
    steps = make_steps(func.body[before:], first=first) or (Step(first, (), first + 1),)
    work, rows = [0], 0
    if feeding is not None:
        rows = max(feeding.last + 1, feeding.rows)
        work.append(max(1, _work(program, 0) // (rows - feeding.first)))
    work += [_work(program, s.layer if isinstance(s, Step) else -1) for s in steps]
    text_of = print_calls(func, target=target, addresses=program)
    printer = MainPrinter(program, text_of)
    used = {region.buffer for s in steps if isinstance(s, Step) for region in _regions(s.body)}
    user_state = program.module.layout.io == "user" and bool(program.module.lowered.states)
    writes_out = not used.isdisjoint(buffers.outputs)
    return {
        "count": len(work) - 1,
        "rows": rows,
        "end": len(work),
        "most": max(work),
        "begin": [line for stmt in begin for line in text_of(stmt).splitlines()],
        "lets": [line for let in lets for line in text_of(let).splitlines()],
        "cases": [_case(step, printer, program) for step in steps],
        "work": ", ".join(map(str, work)),
        "counters": sum(isinstance(s, Decision) and s.counter >= 0 for s in steps),
        "reads_in": not used.isdisjoint(buffers.inputs),
        "writes_out": writes_out,
        "keeps_out": writes_out or user_state,
        "probe": probe(program, 0) if feeding is not None else "",
    }


def _regions(body: Sequence[Stmt]) -> list[Region]:
    """The memory that statements pass to what they call; conditions are in the workspace."""
    return [o for s in walk(tuple(body)) if isinstance(s, CallPrim) for o in s.operands if isinstance(o, Region)]


def _case(step: Step | Decision, printer: MainPrinter, program: Program) -> dict[str, Any]:
    """A step number and the lines of its case."""
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


_ROUNDING = {"litert": "TensorFlow Lite's reference kernels do", "tflm": "TensorFlow Lite Micro does"}
"""The header's wording for each oracle."""


def interface_files(program: Program) -> dict[str, str]:
    """All files by name: `<name>.h .c _kernels.c _params.c _internal.h`."""
    functions, arrays, name = program.module.kernels, program.module.arrays, program.module.name
    target = program.module.lowered.target
    assert target is not None
    generated = f"/* {name}: generated by aot {__version__} for {target.name}. Do not edit. */"
    banner = f"{spdx_line()}\n{generated}"
    values = _values(program)
    values |= {"banner": banner, "feed": _feed(program, target)}
    values["body"] = "\n".join(main_lines(program, program.main.run, target))
    values["steps"] = step_values(program, target) if program.metadata["options"].get("in_steps") else None
    header = f"{name}_internal.h"
    return {
        f"{name}.h": "".join(model_h(values)),
        f"{name}.c": "".join(model_c(values)),
        header: internal_header(functions, arrays, banner=banner, guard=f"{name.upper()}_INTERNAL_H", target=target),
        f"{name}_kernels.c": kernels_source(functions, banner=banner, header=header, target=target),
        f"{name}_params.c": params_source(arrays, banner=f"{spdx_line(PARAMETERS)}\n{generated}", header=header),
    }


def _values(program: Program) -> dict[str, Any]:
    """The values that both templates use."""
    lowered, layout, metadata = program.module.lowered, program.module.layout, program.metadata
    workspace = metadata["workspace"]
    model = metadata["model"]
    inputs = [_tensor(row, t.type) for row, t in zip(metadata["inputs"], lowered.inputs, strict=True)]
    outputs = [_tensor(row, t.type) for row, t in zip(metadata["outputs"], lowered.outputs, strict=True)]
    if layout.io == "arena":
        for row, t in zip(inputs, lowered.inputs, strict=True):
            row["fed"] = layout.places[t].where == "input"
            row["at"] = program.at(layout.places[t], t.name)
        for row, slot, t in zip(outputs, layout.output_slots, lowered.outputs, strict=True):
            row["at"] = program.at(slot, t.name)
    return {
        "name": lowered.name,
        "NAME": lowered.name.upper(),
        "offsets": program.offsets(),
        "source": comment(model["file"]) or "an IRModule",
        "sha256": model["sha256"],
        "version": __version__,
        "cpu": metadata["target"]["cpu"],
        "oracle": _ROUNDING.get(metadata["oracle"], _ROUNDING["litert"]),
        "io": layout.io,
        "constants": commas(metadata["constants"]["size"]),
        "workspace": commas(workspace["size"]),
        "workspace_bytes": workspace["pools"][0]["used"] if workspace["pools"] else workspace["size"],
        "section": f".bss.aot_pool_{workspace['pools'][0]['name']}" if workspace["pools"] else ".bss.aot_workspace",
        "pools": workspace["pools"][1:],
        "liveness_bound": commas(workspace["liveness_bound"]),
        "shared": program.shared,
        "macs": commas(metadata["macs"]),
        "layers": len(metadata["layers"]),
        "max_iterations": max((c.get("max_iterations", 0) for c in metadata.get("control", ())), default=0),
        "inputs": inputs,
        "outputs": outputs,
        "memcpy": layout.io == "arena"
        or bool(layout.copies or layout.write_backs or layout.rings)
        or any(s.array for s in program.module.init.steps),
        "state": _state(program),
        "slide": _slide(metadata),
        "bools": any(row["ctype"] == "bool" for row in inputs + outputs),
    }


def _state(program: Program) -> dict[str, Any] | None:
    """The values of the templates for persistent tensors; None if there are none."""
    if not program.module.lowered.states:
        return None
    pool = program.module.layout.state_pool
    return {
        "size": program.module.layout.state_size,
        "text": commas(program.module.layout.state_size),
        "align": STATE_ALIGN,
        "zero": program.module.init.is_zero,
        "section": ".bss.aot_state" if pool is None else f".bss.aot_pool_{pool.name}",
        "turns": None if program.module.layout.rings is None else program.module.layout.rings.turns,
        "counter": None if program.module.layout.rings is None else program.module.layout.rings.counter,
        "steps": [asdict(s) for s in program.module.init.steps],
        "fills": any(not s.array for s in program.module.init.steps),
        "count": len(program.module.lowered.states),
    }


def _slide(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """The values of the templates for a moving window; None if there is none, or if several move differently.

    `push`: a run needs only the rows of one input.  `rows` is None for a chain, whose windows are inside.
    """
    push = len(metadata["inputs"]) == 1 and metadata["io"] == "arena"
    if "chain" in metadata:
        chain = metadata["chain"]
        return {"rows": None, "hop": chain["hop"], "pushes": chain["pushes"], "push": push}
    windows = {(row["rows"], row["hop"]) for row in metadata.get("slide", {}).get("inputs", ())}
    if len(windows) != 1:
        return None
    ((rows, hop),) = windows
    return {"rows": rows, "hop": hop, "pushes": -(-rows // hop), "push": push}


def _tensor(row: Mapping[str, Any], type_: TensorType) -> dict[str, Any]:
    out = dict(row)
    out["label"] = comment(row["name"])
    out["dims"] = ", ".join(map(str, row["shape"])) or "1"
    out["ndim"] = len(row["shape"])
    out["scale_text"] = None if row["scale"] is None else float_literal(row["scale"], "float32")
    return out


def _feed(program: Program, target: Target) -> dict[str, Any] | None:
    """The code that receives one row of the input, and the code after the last row; None if the input arrives whole."""
    feeding = program.main.feeding
    if feeding is None:
        return None
    row = feeding.take.inputs[0]
    (call,) = feeding.take.body
    text = print_calls(feeding.take, target=target, addresses=program)(call)
    return {
        "first": feeding.first,
        "last": feeding.last,
        "rows": feeding.rows,
        "elements": row.size,
        "size": row.nbytes,
        "ctype": ctype(row.dtype),
        "align": row.align,
        "input": program.names.inputs[0],
        "text": text.replace("\n", "\n  "),
        "end": "\n".join([f"  {probe(program, 0)}", *main_lines(program, feeding.end, target)]),
    }


# ---- one workspace for several models: as large as the largest needs, claimed by the model that runs
#
# Models compiled with `Options.share_workspace` use `aot_workspace` instead of an array of their own; each keeps its own state.
# `shared_files` combines the files of such models.


SHARED_WORKSPACE = "aot_workspace"


def shares_workspace(artifact: Artifact) -> bool:
    """Whether the model was compiled to use the shared workspace."""
    return bool(artifact.metadata.get("options", {}).get("share_workspace"))


def workspace_size(artifacts: Sequence[Artifact]) -> int:
    """Bytes of a workspace for all of them; at least one, since C has no empty arrays."""
    return max(1, *(int(a.metadata["workspace"]["size"]) for a in artifacts))


def shared_files(artifacts: Sequence[Artifact], *, note: str = "") -> dict[str, str]:
    """The files of all models by name, with a workspace if they share one; `note` goes into its comments.

    Raises UsageError E5043 if files of different models would have the same name.
    """
    check_names([a.name for a in artifacts])
    files = {name: text for a in artifacts for name, text in a.files.items()}
    if any(shares_workspace(a) for a in artifacts):
        values = {"size": workspace_size(artifacts), "note": note or f"Generated by aot {__version__}. Do not edit."}
        files[f"{SHARED_WORKSPACE}.h"] = "".join(aot_workspace_h(values))
        files[f"{SHARED_WORKSPACE}.c"] = "".join(aot_workspace_c(values))
    return files
