"""The end of the executor: a planned model becomes kernels, constants and one main function, as TIR and as C files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from aot.executor.artifact import Artifact
from aot.executor.codegen.c_files import Program, interface_files
from aot.executor.codegen.c_names import Names
from aot.executor.codegen.graph import make_graph
from aot.executor.codegen.layer import Layer
from aot.executor.codegen.link import function_table, named_functions
from aot.executor.codegen.lower_main import Main, aot_lower_main
from aot.executor.codegen.metadata import BuildInfo, make_metadata
from aot.executor.codegen.params import merge_constants
from aot.executor.codegen.state_init import StateInit, state_init
from aot.executor.lowered import LoweredModule, TensorRef
from aot.executor.plan.accesses import place_constants
from aot.executor.plan.planned import Planned, plan_lowered
from aot.executor.plan.storage_info import StorageInfo
from aot.executor.plan.storage_map import Io, StorageMap
from aot.ir.module import IRModule
from aot.ir.op import Array
from aot.ir.transform import Pass
from aot.support.dtype import numpy_dtype
from aot.target.source_module import NamedFunc, Param
from aot.target.target import Target
from aot.tir.builtin import BUILTINS
from aot.tir.interpreter import OnCall, run_module


@dataclass(frozen=True, slots=True)
class LoweredOutput:
    """All that the executor knows of a compiled model; `artifact` is what users get, `main` and `functions` the same as TIR."""

    lowered: LoweredModule
    layout: StorageMap
    layers: tuple[Layer, ...]
    functions: tuple[NamedFunc, ...]
    arrays: tuple[Param, ...]
    main: Main
    artifact: Artifact
    init: StateInit

    def initial_state(self) -> Array:
        """The bytes of the persistent tensors before the first run."""
        return self.init.image.copy()

    def interpret(
        self, inputs: Sequence[Array], *, state: Array | None = None, on_call: OnCall | None = None
    ) -> list[Array]:  # fmt: skip
        """Run the main function in the TIR interpreter on one array an input, of its shape and dtype.

        `state` holds the persistent tensors, which the run changes; without it the run is the first one.
        """
        main, table = self.main.run, {**BUILTINS, **function_table(self.functions)}
        buffers: dict[str, Array] = {a.name: a.data for a in self.arrays}
        given = [np.ascontiguousarray(array) for array in inputs]
        buffers |= {b.name: a for b, a in zip(main.inputs, given, strict=True)}
        outputs = [np.empty(t.type.shape, numpy_dtype(t.type.dtype)) for t in self.lowered.outputs]
        buffers |= {b.name: o for b, o in zip(main.outputs, outputs, strict=True)}
        buffers |= {b.name: self.initial_state() if state is None else state for b in main.state}
        feeding = self.main.feeding
        if feeding is None:
            run_module(main, table, buffers, on_call=on_call)
            return outputs
        buffers[self.main.buffers.workspace.name] = np.full(self.layout.plan.size, 0xA5, np.uint8)
        row = feeding.take.inputs[0]
        rows = given[0].reshape(feeding.rows, row.size)
        for y in range(feeding.first, max(feeding.last + 1, feeding.rows)):
            taken = {row.name: np.ascontiguousarray(rows[y]) if 0 <= y < feeding.rows else np.zeros_like(rows[0])}
            run_module(feeding.take, table, buffers | taken, {feeding.take.scalars[0].name: y})
        run_module(feeding.end, table, buffers, on_call=on_call)
        return outputs


def compile_lowered(lowered: LoweredModule, *, target: Target, io: Io = "arena", info: BuildInfo | None = None) -> LoweredOutput:
    """Plan memory and emit the model.

    Raises E9001 for a lowered module that contradicts itself and E9005 for a plan that the verifier refuses.
    """
    return emit(plan_lowered(lowered, io), target=target, info=info or BuildInfo())


def emit(planned: Planned, *, target: Target, info: BuildInfo) -> LoweredOutput:
    """Merge equal functions and constants, and write the C files and the metadata."""
    lowered, layout = planned.lowered, planned.layout
    functions, names = named_functions(lowered, target)
    arrays, constants, tensors = merge_constants(lowered)
    arrays = place_constants(arrays, lowered, constants, lowered.pooling)
    layers = tuple(
        Layer(
            call,
            lowered.kernel(call),
            names[i],
            constants[i],
            tuple(_place(lowered, layout, t, tensors) for t in call.inputs),
            tuple(_place(lowered, layout, t, tensors) for t in call.outputs),
            layout.scratch[i],
        )
        for i, call in enumerate(lowered.calls)
    )
    backs = tuple(replace(b, source=_array_place(b.source, tensors)) for b in layout.write_backs)
    layout = replace(layout, copies=tuple((_array_place(p, tensors), k) for p, k in layout.copies), write_backs=backs)
    kernels = function_table(functions)
    init = state_init(lowered, layout)
    arrays = (*arrays, *init.arrays)
    main = aot_lower_main(lowered, layout=layout, layers=layers, arrays=arrays, functions=kernels)
    _show(IRModule(kernels, lowered.name), main)
    c_names = Names.of(lowered)
    metadata = make_metadata(lowered, layout=layout, layers=layers, arrays=arrays, names=c_names, target=target, info=info)
    program = Program(lowered, layout, layers, functions, arrays, c_names, main, init)
    files = interface_files(program, target=target, metadata=metadata)
    artifact = Artifact(lowered.name, files, metadata, make_graph(lowered, layers, arrays=arrays, tensors=tensors))
    return LoweredOutput(lowered, layout, layers, functions, arrays, main, artifact, init)


def _show(kernels: IRModule, main: Main) -> None:
    """Let the instruments of the context see the whole module: from here on everything is a PrimFunc."""
    halves = () if main.feeding is None else (main.feeding.take, main.feeding.end)
    functions = {**{f.name: f for f in (main.run, *halves)}, **kernels.functions}
    Pass("aot_lower_main", lambda module, _context: replace(module, functions=functions), required=True)(kernels)


def _place(lowered: LoweredModule, layout: StorageMap, tensor: TensorRef, tensors: Sequence[int]) -> StorageInfo:
    root, offset = lowered.place_in_root(tensor)
    place = _array_place(layout.places[root], tensors)
    return replace(place, offset=place.offset + offset)


def _array_place(place: StorageInfo, tensors: Sequence[int]) -> StorageInfo:
    """A constant tensor's place, with the number of its array for the number of the tensor."""
    return replace(place, index=tensors[place.index]) if place.where == "const" else place
