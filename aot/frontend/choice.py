"""The choice of a model's graph and shapes: --subgraph, --signature, --shape, --batch."""

from __future__ import annotations

from aot.support.dataclass import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The graph (by number, or by a signature's key; None: the first) and the shapes of its inputs, by name.

    `batch` is the first dimension of every input whose first dimension is dynamic.
    """

    subgraph: int | None = None
    signature: str | None = None
    shapes: tuple[tuple[str, Shape], ...] = ()
    batch: int | None = None

    def __bool__(self) -> bool:
        return self != FIRST_GRAPH


FIRST_GRAPH = Choice()
"""The first graph, with the shapes of the file."""
