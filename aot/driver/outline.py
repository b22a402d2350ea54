"""What a model needs by rules and bounds alone: its fused graph is read, no kernel is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aot.driver.front import front
from aot.driver.options import Options
from aot.driver.plugins import load_installed
from aot.executor.memory_bounds import row_graph
from aot.frontend.macs import nominal_shapes
from aot.ir.type import TensorType
from aot.memory.streaming import streaming_bound, whole_tensor_bound
from aot.relay.analysis import cost
from aot.relay.expr import Call, Constant, Function, all_functions, post_order
from aot.relay.state import input_vars, state_vars
from aot.support.dataclass import dataclass
from aot.support.text import printable
from aot.target.target import find_target


@dataclass(frozen=True, slots=True)
class Outline:
    """Bytes and counts; `inputs` and `outputs`: name, shape, dtype, bytes, scale and zero point of each.

    `liveness` and `streaming` are the bounds of docs/memory.md; `streaming_least` is what the latter is at least, where its
    search stopped at its limit.  `weights`: all constants of the graph, equal ones once.
    """

    layers: int
    macs: int
    macs_nominal: int
    liveness: int
    streaming: int
    weights: int
    state: int
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    slide: Mapping[str, Any] | None
    chain: Mapping[str, Any] | None = None
    streaming_least: int | None = None


def outline(model: bytes, *, target: str, name: str, options: Options) -> Outline:
    """The outline of a model whose shapes are known; raises what `build` raises of the model itself."""
    load_installed()
    cpu = find_target(target)
    found = front(model, cpu.with_fast_float() if options.fast_float else cpu, name=name, options=options)
    main = found.main
    graph = row_graph(main, nominal_shapes(model), io=options.io)
    layers = [e for f in all_functions(main) for e in post_order(f.body) if isinstance(e, Call) and isinstance(e.op, Function)]
    rows = streaming_bound(graph)
    results = [_tensor(s.name, t) for s, t in zip(main.attrs["outputs"], main.attrs["output_types"], strict=True)]
    return Outline(
        len(layers),
        sum(cost(e.op).macs for e in layers if isinstance(e.op, Function)),
        found.macs_nominal(model),
        whole_tensor_bound(graph),
        rows.nbytes,
        _weights(main, layers),
        sum(v.type.nbytes for v in state_vars(main)),
        [_tensor(v.name, v.type) for v in input_vars(main)],
        results,
        None if found.slide is None else found.slide.told(),
        None if found.chain is None else found.chain.told,
        None if rows.optimal else rows.lower_bound,
    )


def _weights(main: Function, layers: list[Call]) -> int:
    functions = [*all_functions(main), *(e.op for e in layers if isinstance(e.op, Function))]
    constants = (e for f in functions for e in post_order(f.body) if isinstance(e, Constant))
    return sum({(e.type.dtype, e.data.tobytes()): e.type.nbytes for e in constants}.values())


def _tensor(name: str, type_: TensorType) -> dict[str, Any]:
    quant = type_.quant if type_.quant is not None and not type_.quant.is_per_channel else None
    row = {"name": printable(name, limit=200), "shape": list(type_.shape), "dtype": type_.dtype, "size": type_.nbytes}
    return row | {"scale": quant.scale[0] if quant else None, "zero_point": quant.zero_point[0] if quant else None}
