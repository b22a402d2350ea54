"""AOTLowerMain as a pass: from a planned module to one in which everything is a PrimFunc."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aot.errors import internal
from aot.executor.codegen.layer import Layer
from aot.executor.codegen.link import function_table, named_functions
from aot.executor.codegen.lower_main import Main, main_functions
from aot.executor.codegen.params import merge_constants
from aot.executor.codegen.state_init import StateInit, state_init
from aot.executor.lowered import LoweredModule, TensorRef
from aot.executor.plan.accesses import place_constants
from aot.executor.plan.planned import Planned
from aot.executor.plan.storage_info import StorageInfo
from aot.executor.plan.storage_map import StorageMap
from aot.ir.module import IRModule, of_phase
from aot.ir.transform import PassContext, module_pass
from aot.support.dataclass import dataclass
from aot.target.source_module import NamedFunc, Param
from aot.tir.function import PrimFunc


@dataclass(frozen=True, slots=True, kw_only=True)
class TirModule(IRModule):
    """The main function, the functions that it calls by their C names, and `arrays`, the constants of all of them.

    `planned` is what it was made of; `tensors` are the numbers of the arrays of its known tensors.
    """

    planned: Planned
    layout: StorageMap
    layers: tuple[Layer, ...]
    named: tuple[NamedFunc, ...]
    arrays: tuple[Param, ...]
    tensors: tuple[int, ...]
    lowered_main: Main
    init: StateInit

    @property
    def main(self) -> Main:
        """The main function, as the last pass left it."""
        main, of = self.lowered_main, self._prim_func
        if main.feeding is None:
            return replace(main, run=of(main.run))
        return replace(
            main, run=of(main.run), feeding=replace(main.feeding, take=of(main.feeding.take), end=of(main.feeding.end))
        )

    @property
    def kernels(self) -> tuple[NamedFunc, ...]:
        """The functions that main and each other call, as the last pass left them."""
        return tuple(replace(k, func=self._prim_func(k.func, k.name)) for k in self.named)

    def _prim_func(self, func: PrimFunc, name: str = "") -> PrimFunc:
        now = self[name or func.name]
        assert isinstance(now, PrimFunc)
        return now


@module_pass(required=True)
def aot_lower_main(module: IRModule, _context: PassContext) -> IRModule:
    """Equal functions and equal constants once, under their C names; main as copies and calls over one workspace.

    In: a Planned with a target.  Out: a TirModule.
    """
    planned = of_phase(module, Planned, "aot_lower_main")
    if planned.target is None:
        raise internal("the module has no target", where=planned.name)
    kernels, names = named_functions(planned, planned.target)
    arrays, constants, tensors = merge_constants(planned)
    arrays, choice = place_constants(arrays, planned, constants, planned.planning.pooling)
    layout = planned.layout
    layers = tuple(
        Layer(
            call,
            planned.kernel(call),
            names[i],
            constants[i],
            tuple(_place(planned, layout, t, tensors) for t in call.inputs),
            tuple(_place(planned, layout, t, tensors) for t in call.outputs),
            layout.scratch[i],
        )
        for i, call in enumerate(planned.calls)
    )
    backs = tuple(replace(b, source=_array_place(b.source, tensors)) for b in layout.write_backs)
    layout = replace(
        layout,
        copies=tuple((_array_place(p, tensors), k) for p, k in layout.copies),
        conditions=tuple(_array_place(p, tensors) for p in layout.conditions),
        write_backs=backs,
        constant_choice=choice,
    )
    table = function_table(kernels)
    init = state_init(planned, layout)
    arrays = (*arrays, *init.arrays)
    main = main_functions(planned, layout=layout, layers=layers, arrays=arrays, functions=table)
    halves = () if main.feeding is None else (main.feeding.take, main.feeding.end)
    known = {a.name: a.data for a in arrays}
    return TirModule(
        {**{f.name: f for f in (main.run, *halves)}, **table},
        planned.name,
        {f.name: known for f in (main.run, *halves)},
        planned=planned, layout=layout, layers=layers, named=kernels, arrays=arrays, tensors=tuple(tensors), lowered_main=main,
        init=init,
    )  # fmt: skip


def _place(lowered: LoweredModule, layout: StorageMap, tensor: TensorRef, tensors: Sequence[int]) -> StorageInfo:
    root, offset = lowered.place_in_root(tensor)
    place = _array_place(layout.places[root], tensors)
    return replace(place, offset=place.offset + offset)


def _array_place(place: StorageInfo, tensors: Sequence[int]) -> StorageInfo:
    """A constant tensor's place, with the number of its array for the number of the tensor."""
    return replace(place, index=tensors[place.index]) if place.where == "const" else place
