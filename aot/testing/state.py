"""Variables in models of tests: `variable(b, "v", (1, 4), "float32", initial=...)`, then `read` and `assign`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from aot.testing.builder import ModelBuilder, Subgraph


def handle(graph: Subgraph, name: str) -> int:
    """The result of VAR_HANDLE: a tensor that stands for the variable of that name."""
    tensor = graph.tensor(f"{name}/handle", (), "resource")
    graph.op("VAR_HANDLE", [], [tensor], container="", shared_name=name)
    return tensor


def read(graph: Subgraph, of: int, shape: Sequence[int], dtype: str, **quant: Any) -> int:
    """The value of a variable by its handle."""
    tensor = graph.tensor(f"read_{len(graph.tensors)}", shape, dtype, **quant)
    graph.op("READ_VARIABLE", [of], [tensor])
    return tensor


def assign(graph: Subgraph, to: int, value: int) -> None:
    """Give a variable a value."""
    graph.op("ASSIGN_VARIABLE", [to, value], [])


def initialize(b: ModelBuilder, values: Mapping[str, np.ndarray[Any, Any]], **quants: Mapping[str, Any]) -> None:
    """A CALL_ONCE, here in the main graph, that gives variables their values; `quants` by name, as `tensor` takes them."""
    init = b.subgraph("init")
    for name, data in values.items():
        to = handle(init, name)
        assign(init, to, init.tensor(f"{name}/initial", data.shape, str(data.dtype), data=data, **quants.get(name, {})))
    b.op("CALL_ONCE", [], [], init_subgraph_index=len(b.subgraphs) - 1)
