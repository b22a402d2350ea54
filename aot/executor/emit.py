"""The last step of the executor: emit a planned model as kernels, constants and one main function, in TIR and in C files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aot.executor.artifact import Artifact
from aot.executor.c_files import Program, interface_files, name_places
from aot.executor.config import Io
from aot.executor.lower_main import TirModule, aot_lower_main
from aot.executor.lowered import LoweredModule
from aot.executor.metadata import BuildInfo, Names, make_graph, make_metadata
from aot.executor.plan_memory import plan_memory
from aot.ir.module import in_phase, of_phase
from aot.ir.op import Array
from aot.support.dataclass import dataclass
from aot.support.dtype import numpy_dtype
from aot.target.target import Target
from aot.tir.interpreter import InterpreterError, OnCall, run_module
from aot.tir.intrin import BUILTINS


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredOutput(TirModule):
    """Everything the executor knows about a compiled model; `artifact` is what users get."""

    artifact: Artifact

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
        main, table = self.main.run, {**BUILTINS, **{k.name: k.func for k in self.kernels}}
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
    names = Names.of(module.lowered)
    metadata = make_metadata(module, names, info)
    main = module.main
    files = interface_files(Program(module, main, names, metadata, name_places(module, main)))
    return in_phase(module, LoweredOutput, artifact=Artifact(module.name, files, metadata, make_graph(module)))
