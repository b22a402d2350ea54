"""What is known about a compiled model as plain data: metadata.json (docs/metadata.md), and the graph of kernel calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from aot.executor.lower_main import Layer, TirModule
from aot.executor.lowered import LoweredModule, State, TensorRef
from aot.executor.plan_memory import Bounds, shifted_by_copy
from aot.executor.storage_map import STATE_ALIGN, Planned, fresh_bytes, is_written_by_copy
from aot.ir.type import TensorType
from aot.memory.liveness import Control, runs
from aot.memory.plan import liveness_bound
from aot.memory.pool_choice import PoolChoice
from aot.support.dataclass import dataclass
from aot.support.dtype import ctype
from aot.support.names import NameSupply, c_identifier
from aot.support.text import printable
from aot.target.source_module import Param
from aot.version import __version__

_LONGEST = 60
"""Most characters of a field name, so that with a number appended it is not longer than C distinguishes (`SIGNIFICANT`)."""


@dataclass(frozen=True, slots=True)
class Names:
    """Field names of the two structs, unique in each."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @staticmethod
    def of(lowered: LoweredModule) -> Names:
        taken = ("state",) if lowered.states else ()  # the field for the persistent tensors, with `--io user`
        return Names(_unique(lowered.inputs, "input"), _unique(lowered.outputs, "output", taken))


def _unique(tensors: tuple[TensorRef, ...], default: str, taken: tuple[str, ...] = ()) -> tuple[str, ...]:
    supply = NameSupply()
    for name in taken:
        supply.fresh(name)
    return tuple(supply.fresh(c_identifier(t.name[:_LONGEST], default=default)[:_LONGEST]) for t in tensors)


SCHEMA = "aot-metadata/1"


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """What the executor cannot know itself: the model's file name (no folder) and SHA-256, and the options of the build.

    `input_values` gives, per input number, its allowed values (`range`, `fixed`) if they are restricted.  `macs_nominal` is for
    the model as stored in its file (None: not built from a file), `bounds` for its graph (None: there is none); `options` are all
    options of the build.  `slide`: how the inputs advance, if they are windows.  `chain`: the parts of a push, if there are
    several models.
    """

    model_file: str = ""
    model_sha256: str = ""
    oracle: str = "litert"
    opt: str = "balanced"
    macs_nominal: int | None = None
    bounds: Bounds | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    input_values: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    slide: Mapping[str, Any] | None = None
    chain: Mapping[str, Any] | None = None


def make_metadata(module: TirModule, names: Names, info: BuildInfo) -> dict[str, Any]:
    """The content of metadata.json."""
    lowered, layout, layers, arrays = module.lowered, module.layout, module.layers, module.arrays
    assert lowered.target is not None
    inputs = enumerate(_tensors(lowered, lowered.inputs, names.inputs))
    return {
        "schema": SCHEMA,
        "tool": {"name": "aot", "version": __version__},
        "name": lowered.name,
        "model": {"sha256": info.model_sha256, "file": info.model_file},
        "target": {"cpu": lowered.target.name, "features": sorted(lowered.target.features)},
        "oracle": info.oracle,
        "opt": info.opt,
        "io": layout.io,
        "options": dict(info.options),
        **_feed(layers),
        "inputs": [{**row, **info.input_values.get(i, {})} for i, row in inputs],
        "outputs": _tensors(lowered, lowered.outputs, names.outputs),
        "workspace": _workspace(lowered, info.bounds),
        **_state(lowered),
        **({"slide": dict(info.slide)} if info.slide else {}),
        **({"chain": dict(info.chain)} if info.chain else {}),
        "constants": {"size": sum(a.data.nbytes for a in arrays), "pools": _constant_pools(lowered, arrays)}
        | _pool_choice(layout.constant_choice),
        "macs": sum(layer.func.attrs.macs * runs(lowered.controls, i) for i, layer in enumerate(layers)),
        "macs_nominal": info.macs_nominal,
        "selection": {k: getattr(lowered.selection, k) for k in ("minimised", "total", "lower_bound", "optimal")},
        "layers": [_layer(i, layer, arrays) for i, layer in enumerate(layers)],
        **_control(lowered),
    }


def _stopped(key: str, *, optimal: bool, **figures: int) -> dict[str, Any]:
    """An entry about a search that stopped before its result was proven; nothing if it was."""
    return {} if optimal else {key: {**figures, "optimal": False}}


def _pool_choice(choice: PoolChoice | None) -> dict[str, Any]:
    """`pool_choice`: bytes accessed over the speed of their pools, and the bound; only if there are pools to choose from."""
    if choice is None:
        return {}
    row = {"total": round(choice.total, 3), "lower_bound": round(choice.lower_bound, 3)}
    return {"pool_choice": row | {"optimal": choice.optimal}}


def _control(lowered: LoweredModule) -> dict[str, Any]:
    """`control`: branches and loops over the layers, outer ones first; only if there are any.

    Layers `first` to `middle` - 1 are the branch for a true condition, or compute the condition of a loop; `middle` to `last` are
    the other branch, or the loop's body.  A loop has `iterations`, or null and `max_iterations`.
    """
    rows: list[dict[str, Any]] = []
    for c in lowered.controls:
        row = _part(c)
        if c.kind == "while":
            row |= {"iterations": c.trips} | ({"max_iterations": lowered.max_iterations} if c.trips is None else {})
        rows.append(row)
    return {"control": rows} if rows else {}


def _part(control: Control) -> dict[str, Any]:
    return {"kind": control.kind, "first": control.first, "middle": control.middle, "last": control.last - 1}


def _feed(layers: Sequence[Layer]) -> dict[str, Any]:
    """`feed`: rows of the only input and bytes per row, if it is fed by rows; it is then not in the workspace."""
    call = layers[0].call if layers else None
    if call is None or call.feed is None:
        return {}
    type_ = call.inputs[0].type
    return {"feed": {"rows": type_.shape[1], "row_size": type_.nbytes // type_.shape[1]}}


def _state(lowered: Planned) -> dict[str, Any]:
    """`state`: the persistent tensors, their bytes that are new in each run, and those that are only moved to be kept.

    `bytes_moved` is the average over the runs; `bytes_moved_most` is for the worst run.
    """
    if not lowered.states:
        return {}
    layout = lowered.layout
    rows, pool, rings = [], layout.state_pool, layout.rings
    always = _copied(lowered) + sum(back.size for back in layout.write_backs)
    always -= sum(s.old.type.nbytes - s.kept for s in lowered.states if s.new is not s.old and is_written_by_copy(lowered, s))
    back, turns = (0, 1) if rings is None else (rings.moved, rings.turns)
    for state, offset in zip(lowered.states, layout.states, strict=True):
        type_ = state.old.type
        row = {"name": printable(state.name, limit=200), "offset": offset, "size": type_.nbytes, "shape": list(type_.shape)}
        rows.append(row | {"dtype": type_.dtype} | _quant(type_))
    return {
        "stateful": True,
        "state": {
            "size": layout.state_size,
            "align": STATE_ALIGN,
            "pool": None if pool is None else {"name": pool.name, "size": pool.size, "address": pool.address},
            "bytes_written": sum(s.old.type.nbytes for s in lowered.states if s.new is not s.old),
            "bytes_new": sum(_fresh(lowered, s) for s in lowered.states),
            "bytes_moved": always + round(back / turns, 2) if rings else always,
            "bytes_moved_most": always + back,
            "rings": None
            if rings is None
            else {"windows": len(rings.windows), "turns": turns, "room": rings.room, "counter": rings.counter},
            "tensors": rows,
        },
    }


def _fresh(lowered: LoweredModule, state: State) -> int:
    """`fresh_bytes`, even if a layer moves most of the state itself."""
    shifts = [lowered.kernel(c).attrs.shift for c in lowered.calls if state.new in c.outputs]
    copied = shifted_by_copy(lowered, state)
    new = fresh_bytes(lowered, state) if copied is None else copied.size
    return next((s.fresh for s in shifts if s is not None), new)


def _copied(lowered: LoweredModule) -> int:
    """Bytes of persistent tensors that layers only copy or move, besides or instead of computing.

    Copies in a loop count once per iteration if the trip count is known, else once.
    """
    roots, total = {lowered.root(s.old) for s in lowered.states}, 0
    for i, call in enumerate(lowered.calls):
        attrs = lowered.kernel(call).attrs
        copied = sum(move.size for move in attrs.moves if lowered.root(call.inputs[move.operand]) in roots)
        if attrs.shift is not None and lowered.root(call.inputs[0]) in roots:
            copied += call.outputs[0].type.nbytes - attrs.shift.fresh
        total += (copied or call.carried) * runs(lowered.controls, i)
    for state in lowered.states:  # states whose windows are in the workspace are copied there and back
        maker = next((c for c in lowered.calls if state.new in c.outputs), None)
        if state.fresh is not None and maker is not None and lowered.kernel(maker).attrs.moves:
            counted = any(lowered.kernel(c).attrs.moves for c in lowered.calls if state.old in c.inputs)
            total += state.old.type.nbytes * (1 if counted else 2) - state.fresh
    return total


def _constant_pools(lowered: LoweredModule, arrays: Sequence[Param]) -> list[dict[str, Any]]:
    """The pools in flash with the arrays in them."""
    rows = []
    for p in lowered.planning.pooling.constants:
        inside = [a for a in arrays if a.section == f".rodata.aot_pool_{p.name}"]
        row = {"name": p.name, "size": p.size, "address": p.address, "speed": p.speed, "arrays": [a.name for a in inside]}
        rows.append(row | {"used": sum(a.data.nbytes + a.align - 1 for a in inside)})
    return [row for row in rows if row["arrays"]]


def _tensors(lowered: Planned, tensors: Sequence[TensorRef], c_names: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for i, (tensor, c_name) in enumerate(zip(tensors, c_names, strict=True)):
        row = {
            "index": i,
            "name": printable(tensor.name, limit=200),
            "c_name": c_name,
            "shape": list(tensor.type.shape),
            "dtype": tensor.type.dtype,
            "ctype": ctype(tensor.type.dtype),
            "size": tensor.type.nbytes,
            "align": lowered.layout.aligns[lowered.root(tensor)],
        }
        rows.append(row | _quant(tensor.type))
    return rows


def _quant(type_: TensorType) -> dict[str, Any]:
    """Scale and zero point of the tensor; null if it has none, or one per channel."""
    quant = type_.quant
    if quant is None or quant.is_per_channel:
        return {"scale": None, "zero_point": None}
    return {"scale": quant.scale[0], "zero_point": quant.zero_point[0]}


def _workspace(lowered: Planned, bounds: Bounds | None) -> dict[str, Any]:
    """The plan with its bounds: whole tensors, rows (inputs resident; fed row by row), and this plan's own buffers.

    `rows`, `order` and `cascades`: figures of the searches for the row bounds, the order of execution, and cascades (how many
    runs of layers were tried of those that could be one); each only if the search stopped early.
    """
    layout, order, runs_ = lowered.layout, lowered.order, lowered.cascade_runs
    plan = layout.plan
    row: dict[str, Any] = {
        "size": plan.size,
        "align": 16,
        "liveness_bound": bounds.liveness if bounds else liveness_bound(layout.buffers),
        "streaming_bound": bounds.streaming.nbytes if bounds else None,
        "fed_bound": bounds.fed.nbytes if bounds else None,
    }
    if bounds is not None:
        least = {"streaming_lower_bound": bounds.streaming.lower_bound, "fed_lower_bound": bounds.fed.lower_bound}
        row |= _stopped("rows", optimal=bounds.streaming.optimal and bounds.fed.optimal, **least)
    row |= {
        "plan_lower_bound": plan.lower_bound,
        "optimal": plan.optimal,
        "pools": [
            {"name": u.pool.name, "base": u.base, "used": u.used, "size": u.pool.size, "address": u.pool.address}
            | {"speed": u.pool.speed, "buffers": list(u.buffers)}
            for u in layout.pools
        ],
        **_pool_choice(layout.pool_choice),
        "buffers": [
            {"name": b.name, "size": b.size, "offset": plan.offset[b.name], "first": b.first, "last": b.last, "kind": b.kind}
            for b in layout.buffers
        ],
    }
    if order is not None:
        row |= _stopped("order", optimal=order.optimal, peak=order.peak, lower_bound=order.lower_bound)
    if runs_ is not None:
        row |= _stopped("cascades", optimal=runs_.tried == runs_.possible, tried=runs_.tried, possible=runs_.possible)
    return row


def _layer(index: int, layer: Layer, arrays: Sequence[Param]) -> dict[str, Any]:
    call = layer.call
    result = call.outputs[0]
    operands = [place.index for place in layer.inputs if place.where == "const"]
    return {
        "index": index,
        "function": layer.function,
        "op": call.span.opcode,
        "does": call.does,
        "ops": list(call.operators),
        "name": printable(call.span.name or result.name, limit=200),
        "kernel": layer.func.attrs.kernel,
        "macs": layer.func.attrs.macs,
        "constants": sum(arrays[k].data.nbytes for k in layer.constants),
        "scratch": sum(b.nbytes for b in layer.func.scratch),
        "arrays": [arrays[k].name for k in dict.fromkeys([*layer.constants, *operands])],
        "candidates": [
            {"kernel": c.kernel, "instructions": c.instructions, "constants": c.constants, "code": c.code, "scratch": c.scratch}
            for c in call.candidates
        ],
        "output": {"shape": list(result.type.shape), "dtype": result.type.dtype, "tensor": result.tensor}
        | ({"channels": list(result.channels)} if result.channels else {}),
    }


# ---- the model as a graph of kernel calls: what the graph executor of aot.runtime runs (docs/python.md)


GRAPH_SCHEMA = "aot-graph/1"


def make_graph(module: TirModule) -> dict[str, Any]:
    """Nodes in order of execution, tensors, and storage: one for each tensor that is not a view of another.

    `states` are pairs: the tensor of a persistent value before a run, and its tensor afterwards.

    The plan of the workspace is not included, so running the graph checks the plan independently.
    """
    lowered, arrays = module.lowered, module.arrays
    table = _Tensors(lowered, arrays, module.tensors)
    nodes: list[dict[str, Any]] = [
        {"op": "input", "name": printable(t.name, limit=200), "outputs": [table.number(t)]} for t in lowered.inputs
    ]
    for i, layer in enumerate(module.layers):
        call = layer.call
        nodes.append(
            {
                "op": "kernel",
                "name": printable(call.outputs[0].name, limit=200) if call.outputs else f"layer {i}",
                "layer": i,
                "function": layer.function,
                "kernel": layer.func.attrs.kernel,
                "ops": list(call.operators),
                "inputs": [table.number(t) for t in call.inputs],
                "outputs": [table.number(t) for t in call.outputs],
                "constants": [arrays[k].name for k in layer.constants],
                "scratch": [b.nbytes for b in layer.func.scratch],
                "scalars": [
                    {"dtype": v.dtype, "value": value}
                    for v, value in zip(lowered.prim_func(call.emitted).scalars, call.scalars, strict=True)
                ],
                "fed": call.feed is not None,
            }
        )
    return {
        "schema": GRAPH_SCHEMA,
        "name": lowered.name,
        "nodes": nodes,
        "arg_nodes": list(range(len(lowered.inputs))),
        "heads": [table.number(t) for t in lowered.outputs],
        **({"states": [[table.number(s.old), table.number(s.new)] for s in lowered.states]} if lowered.states else {}),
        **_graph_control(lowered, table),
        "tensors": table.rows,
        "storage": table.sizes,
    }


def _graph_control(lowered: LoweredModule, table: _Tensors) -> dict[str, Any]:
    """`control`: branches and loops over the layers, as in the metadata, with the deciding tensor; only if there are any."""
    rows = [
        {"kind": c.kind, "condition": table.number(t), **_part(c)}
        for c, t in zip(lowered.controls, lowered.conditions, strict=True)
    ]
    return {"control": rows, "max_iterations": lowered.max_iterations} if rows else {}


class _Tensors:
    """Numbers tensors and storage in order of occurrence."""

    def __init__(self, lowered: LoweredModule, arrays: Sequence[Param], constants: Sequence[int]) -> None:
        self._lowered = lowered
        self._constants = {t: arrays[k].name for t, k in zip(lowered.values, constants, strict=True)}
        self._numbers: dict[TensorRef, int] = {}
        self._storage: dict[TensorRef, int] = {}
        self.rows: list[dict[str, Any]] = []

    def number(self, tensor: TensorRef) -> int:
        """The index of a tensor's row."""
        if tensor not in self._numbers:
            root, offset = self._lowered.place_in_root(tensor)
            constant = self._constants.get(root)
            self._numbers[tensor] = len(self.rows)
            self.rows.append(
                {
                    "name": printable(tensor.name, limit=200),
                    "shape": list(tensor.type.shape),
                    "dtype": tensor.type.dtype,
                    "storage_id": None if constant is not None else self._storage.setdefault(root, len(self._storage)),
                    "offset": offset,
                    "constant": constant,
                }
            )
        return self._numbers[tensor]

    @property
    def sizes(self) -> list[int]:
        """The bytes of each storage."""
        return [root.type.nbytes for root in self._storage]
