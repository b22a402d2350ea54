"""QEMU's machines whose memory maps boards may share, so that images of such a board run there too."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from aot.micro.board import Memory
from aot.support.dataclass import dataclass

_KI = 1 << 10
_MI = 1 << 20


@dataclass(frozen=True, slots=True)
class LikeMachine:
    """A machine of QEMU 7.2; `memory` as (first address, bytes); `tick` as in [systick] of a board.toml."""

    name: str
    cores: tuple[str, ...]
    memory: tuple[tuple[int, int], ...]
    tick: tuple[int, int]

    def holds(self, region: Memory) -> bool:
        return any(start <= region.origin and region.origin + region.size <= start + size for start, size in self.memory)


MACHINES = (
    LikeMachine("netduinoplus2", ("cortex-m4",), ((0x08000000, _MI), (0x20000000, 128 * _KI)), (125, 21)),
    LikeMachine("netduino2", ("cortex-m3",), ((0x08000000, _MI), (0x20000000, 128 * _KI)), (25, 3)),
    LikeMachine("microbit", ("cortex-m0",), ((0, 256 * _KI), (0x20000000, 16 * _KI)), (125, 2)),
    LikeMachine("mps2-an385", ("cortex-m3", "cortex-m0", "cortex-m0plus"), ((0, 4 * _MI), (0x20000000, 4 * _MI)), (40, 1)),
    LikeMachine("mps2-an386", ("cortex-m4",), ((0, 4 * _MI), (0x20000000, 4 * _MI)), (40, 1)),
    LikeMachine("mps2-an500", ("cortex-m7",), ((0, 4 * _MI), (0x20000000, 4 * _MI)), (40, 1)),
    LikeMachine("mps3-an547", ("cortex-m55",), ((0, 512 * _KI), (0x20000000, 512 * _KI)), (125, 4)),
)
"""Clocks and maps as QEMU's sources have them; a run checks the tick (E5024)."""


def like_machine(cpu: str, memory: Sequence[Memory], needed: Collection[str]) -> LikeMachine | None:
    """The first machine with such a core that holds the regions of the names `needed`."""
    core = cpu.partition("+")[0]
    regions = [m for m in memory if m.name in needed]
    return next((m for m in MACHINES if core in m.cores and all(m.holds(r) for r in regions)), None)


def qemu_core(cpu: str, machine: LikeMachine) -> str:
    """What -cpu says: QEMU has no Cortex-M0+, whose code runs on the machine's own core."""
    core = cpu.partition("+")[0]
    return machine.cores[0] if core == "cortex-m0plus" else core
