"""C names of a model's interface."""

from __future__ import annotations

from aot.executor.lowered import LoweredModule, TensorRef
from aot.support.dataclass import dataclass
from aot.support.names import NameSupply, c_identifier

_LONGEST = 60
"""Characters of a field, so that with a number it has no more than C tells apart (`SIGNIFICANT`)."""


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
