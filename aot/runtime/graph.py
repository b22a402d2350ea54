"""The graph executor: a debugging counterpart of the generated main function that keeps every tensor and times every layer."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from aot.errors import Problem, UsageError
from aot.executor.artifact import Artifact
from aot.ir.op import Array
from aot.memory.liveness import Control, Nested, nested
from aot.runtime.module import build_library
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype

_SCALARS: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float16": ctypes.c_uint16,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}


@dataclass(frozen=True, slots=True)
class LayerTime:
    """Wall-clock seconds of one layer in the last run on this machine (not on a board)."""

    layer: int
    name: str
    seconds: float


class GraphModule:
    """Runs a model's kernels one by one on this machine, each tensor in its own memory.

    It uses neither the generated main function nor the plan of the workspace: if both give the same bytes, the plan is
    right.  Wrong use raises UsageError E5079, arrays of the wrong shape or type E5022.
    """

    def __init__(self, artifact: Artifact) -> None:
        if not isinstance(artifact, Artifact):
            raise _wrong(f"GraphModule needs the Artifact of aot.build, not {type(artifact).__name__}")
        if artifact.graph is None:
            raise _wrong("the artifact has no graph; build the model with aot.build")
        self._graph: Mapping[str, Any] = artifact.graph
        self._kernels = [n for n in self._graph["nodes"] if n["op"] == "kernel"]
        if any(n["fed"] for n in self._kernels):
            raise _wrong(f"{artifact.name} is fed row by row, which a graph of whole tensors cannot show")
        self._controls = [
            Control(c["kind"], c["first"], c["middle"], c["last"] + 1) for c in self._graph.get("control", ())
        ]  # fmt: skip
        files = {**artifact.files, "aot_hook.c": _HOOK}
        self._library = ctypes.CDLL(str(build_library(f"{artifact.name}_graph", files)))
        self._storage = [_aligned(size) for size in self._graph["storage"]]
        self._inputs = [self._graph["nodes"][i] for i in self._graph["arg_nodes"]]
        self._done = False
        self._times: list[LayerTime] = []
        self._name, self._state = artifact.name, artifact.metadata.get("state")
        self._own_state = artifact.metadata["io"] != "user"
        self.reset()

    def reset(self) -> None:
        """Return to the initial state, for models that keep one."""
        self._ran = False
        if self._state is None:
            return
        memory = _aligned(self._state["size"])
        function = getattr(self._library, f"{self._name}_reset")
        function.restype = None
        if self._own_state:
            function()
            own = (ctypes.c_uint8 * memory.size).from_address(self._address(f"{self._name}_state"))
            memory[:] = np.ctypeslib.as_array(own)
        else:
            function(ctypes.c_void_p(memory.ctypes.data))
        for (old, _), row in zip(self._graph["states"], self._state["tensors"], strict=True):
            raw = memory[row["offset"] : row["offset"] + row["size"]]
            view = self._view(old)
            view[...] = raw.view(view.dtype).reshape(view.shape)

    @property
    def graph(self) -> Mapping[str, Any]:
        """Nodes in order of execution with kernels and operands, tensors with shapes and storage ids, sizes of storage."""
        return self._graph

    def get_graph_json(self) -> str:
        """`graph` as JSON."""
        return json.dumps(self._graph, indent=1)

    def get_num_inputs(self) -> int:
        """The number of inputs."""
        return len(self._inputs)

    def get_num_outputs(self) -> int:
        """The number of outputs."""
        return len(self._graph["heads"])

    def set_input(self, key: int | str | None = None, value: Any = None, **arrays: Any) -> None:
        """Set an input by number or name, or several by keyword, to arrays of their shapes and dtypes (UsageError otherwise).

        `key`: the input's number or name; `value`: its array.
        """
        if key is not None:
            self._set(self._number(key, [n["name"] for n in self._inputs], "input"), value)
        elif not arrays:
            raise _wrong("set_input without an input")
        for name, array in arrays.items():
            self._set(self._number(name, [n["name"] for n in self._inputs], "input"), array)

    def get_input(self, key: int | str) -> Array:
        """A copy of an input as it was set.

        `key`: the input's number or name.
        """
        number = self._number(key, [n["name"] for n in self._inputs], "input")
        return self._view(self._inputs[number]["outputs"][0]).copy()

    def run(self, **arrays: Any) -> None:
        """Run all layers on the inputs (zeros for inputs that were not set)."""
        if arrays:
            self.set_input(**arrays)
        self._times = []
        self._step()
        self._run_items(nested(self._controls, len(self._kernels)))
        self._done = self._ran = True

    def _run_items(self, items: Sequence[int | Nested]) -> None:
        for item in items:
            if isinstance(item, int):
                self._run_layer(self._kernels[item])
            elif item.control.kind == "if":
                self._run_items(item.first if self._holds(item) else item.second)
            else:
                self._run_loop(item)

    def _run_loop(self, item: Nested) -> None:
        limit, turns = self._graph["max_iterations"], 0
        self._run_items(item.first)
        while self._holds(item):
            if limit and turns == limit:
                self.reset()
                raise _wrong(f"a loop has not ended after {limit} iterations")
            self._run_items(item.second)
            self._run_items(item.first)
            turns += 1

    def _holds(self, item: Nested) -> bool:
        return bool(self._view(self._graph["control"][item.index]["condition"]).reshape(()))

    def _run_layer(self, node: Mapping[str, Any]) -> None:
        arguments = self._arguments(node)
        function = getattr(self._library, node["function"])
        function.restype = None
        start = perf_counter()
        function(*arguments)
        self._times.append(LayerTime(node["layer"], node["name"], perf_counter() - start))

    def _step(self) -> None:
        """Make the next run start from the state that the last one left; until an input is set its tensors can be read."""
        if not self._ran:
            return
        self._ran = False
        pairs = self._graph.get("states", ())
        values = [self._view(new).copy() for _, new in pairs]
        for (old, _), value in zip(pairs, values, strict=True):
            self._view(old)[...] = value

    def get_output(self, index: int = 0) -> Array:
        """A copy of output `index` of the last run."""
        number = self._number(index, [str(i) for i in range(self.get_num_outputs())], "output")
        self._check_run()
        return self._view(self._graph["heads"][number]).copy()

    def debug_get_output(self, layer: int | str, output: int = 0) -> Array:
        """A copy of a layer's result in the last run, by the layer's number or the name of its first output."""
        number = self._number(layer, [n["name"] for n in self._kernels], "layer")
        self._check_run()
        tensors = self._kernels[number]["outputs"]
        which = self._number(output, [str(i) for i in range(len(tensors))], "output")
        return self._view(tensors[which]).copy()

    def layer_times(self) -> list[LayerTime]:
        """The time of each layer in the last run, in the order of execution: several times in a loop."""
        self._check_run()
        return list(self._times)

    def _check_run(self) -> None:
        if not self._done:
            raise _wrong("there are no results before run()")

    def _number(self, key: Any, names: list[str], what: str) -> int:
        if isinstance(key, str) and key in names:
            return names.index(key)
        if isinstance(key, (int, np.integer)) and not isinstance(key, bool) and 0 <= key < len(names):
            return int(key)
        listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
        raise _wrong(f"there is no {what} {key!r}; there are {len(names)}: {listed}")

    def _set(self, number: int, value: Any) -> None:
        tensor = self._inputs[number]["outputs"][0]
        view = self._view(tensor)
        try:
            array = value if isinstance(value, np.ndarray) else np.from_dlpack(value)
        except Exception:
            raise _wrong(f"{type(value).__name__} is neither a numpy array nor one that supports DLPack") from None
        if array.shape != view.shape or array.dtype != view.dtype:
            want, got = f"{view.dtype}{list(view.shape)}", f"{array.dtype}{list(array.shape)}"
            raise UsageError(Problem("E5022", f'input {number} "{self._inputs[number]["name"]}" is {want}, not {got}'))
        self._step()  # before an input that became part of the state is overwritten
        view[...] = array
        self._done = False

    def _view(self, tensor: int) -> Array:
        row = self._graph["tensors"][tensor]
        dtype, shape = numpy_dtype(row["dtype"]), tuple(row["shape"])
        size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        if row["constant"] is not None:
            memory = (ctypes.c_uint8 * size).from_address(self._address(row["constant"]) + row["offset"])
            constant: Array = np.ctypeslib.as_array(memory)
        else:
            constant = self._storage[row["storage_id"]][row["offset"] : row["offset"] + size]
        view: Array = constant.view(dtype).reshape(shape)
        return view

    def _address(self, symbol: str) -> int:
        return ctypes.addressof(ctypes.c_uint8.in_dll(self._library, symbol))

    def _arguments(self, node: Mapping[str, Any]) -> list[Any]:
        arrays = [self._view(t) for t in (*node["inputs"], *node["outputs"])]
        pointers = [a.ctypes.data for a in arrays] + [self._address(c) for c in node["constants"]]
        scratch = [_aligned(size, fill=0xA5) for size in node["scratch"]]
        pointers += [s.ctypes.data for s in scratch]
        scalars = [_SCALARS[s["dtype"]](s["value"]) for s in node["scalars"]]
        held = [ctypes.c_void_p(p) for p in pointers]
        self._scratch = scratch  # keeps it alive until the next call
        return [*held, *scalars]


_HOOK = """#include <stdint.h>
#include "aot/hooks.h"
void aot_layer_hook(int32_t layer, const void *out, uint32_t bytes) {
  (void)layer;
  (void)out;
  (void)bytes;
}
"""


def _wrong(message: str) -> UsageError:
    return UsageError(Problem("E5079", message))


def _aligned(size: int, *, fill: int = 0) -> Array:
    """Bytes aligned to 16."""
    raw = np.full(size + 16, fill, np.uint8)
    start = -raw.ctypes.data % 16
    result: Array = raw[start : start + size]
    return result
