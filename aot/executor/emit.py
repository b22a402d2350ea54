"""The last step of the executor: emit a planned model as kernels, constants and one main function, in TIR and in C files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.executor.artifact import Artifact
from aot.executor.c_files import Program, interface_files
from aot.executor.config import Io
from aot.executor.lower_main import Layer, Main, StateInit, TirModule, aot_lower_main, function_table
from aot.executor.lowered import LoweredModule
from aot.executor.metadata import BuildInfo, Names, make_graph, make_metadata
from aot.executor.plan_memory import plan_memory
from aot.executor.storage_map import StorageMap
from aot.ir.module import of_phase
from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype
from aot.target.source_module import NamedFunc, Param
from aot.target.target import Target
from aot.tir.interpreter import InterpreterError, OnCall, run_module
from aot.tir.intrin import BUILTINS


@dataclass(frozen=True, slots=True)
class LoweredOutput:
    """Everything the executor knows about a compiled model; `artifact` is what users get, `main` and `functions` its TIR."""

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
        """Run the main function in the TIR interpreter on one array per input, of the input's shape and dtype.

        `state` holds the persistent tensors, which the run changes; without it, this is the first run.  A run that ends with an
        InterpreterError resets it to the initial state.
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
            try:
                run_module(main, table, buffers, on_call=on_call)
            except InterpreterError:
                if state is not None:
                    state[...] = self.initial_state()
                raise
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

    Raises E9101 for an inconsistent lowered module and E9005 for a plan that the verifier rejects.
    """
    planned = plan_memory(replace(lowered, target=target, planning=replace(lowered.planning, io=io)))
    return emit(of_phase(aot_lower_main(planned), TirModule, "emit"), info=info or BuildInfo())


def emit(module: TirModule, *, info: BuildInfo) -> LoweredOutput:
    """The C files and the metadata of a module that contains only PrimFuncs."""
    lowered, layout, layers, arrays = module.planned, module.layout, module.layers, module.arrays
    kernels, main = module.kernels, module.main
    assert lowered.target is not None
    names = Names.of(lowered)
    metadata = make_metadata(lowered, layout=layout, layers=layers, arrays=arrays, names=names, target=lowered.target, info=info)
    shared = bool(metadata["options"].get("share_workspace")) and layout.plan.size > 0
    steps = bool(metadata["options"].get("in_steps"))
    program = Program(lowered, layout, layers, kernels, arrays, names, main, module.init, shared, steps)
    files = interface_files(program, target=lowered.target, metadata=metadata)
    artifact = Artifact(lowered.name, files, metadata, make_graph(lowered, layers, arrays=arrays, tensors=module.tensors))
    return LoweredOutput(lowered, layout, layers, kernels, arrays, main, artifact, module.init)
