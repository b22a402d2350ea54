"""Running a model over time with numpy: what one run leaves is what the next one finds."""

from __future__ import annotations

from collections.abc import Sequence

from aot.ir.op import Array
from aot.relay.expr import Function
from aot.relay.interpreter import EndlessLoopError, evaluate, evaluate_all
from aot.relay.state import state_of


class StatefulFunction:
    """`main` with its state, which is that of the start when it is made."""

    def __init__(self, main: Function) -> None:
        self.main = main
        self.state: list[Array] = []
        self.reset()

    def reset(self) -> None:
        """Back to the initial values."""
        self.state = [s.initial.copy() for s in state_of(self.main)]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """The outputs of one run, on one array an input; EndlessLoopError where it is given up, with the state at its start."""
        try:
            return self._keep(evaluate(self.main, [*inputs, *self.state]))
        except EndlessLoopError:
            self.reset()
            raise

    def run_all(self, inputs: Sequence[Array]) -> tuple[list[Array], dict[int, Array]]:
        """As `run`, and each value of the graph by the index of its tensor in the .tflite."""
        results, values = evaluate_all(self.main, [*inputs, *self.state])
        return self._keep(results), values

    def _keep(self, results: list[Array]) -> list[Array]:
        cut = len(results) - len(self.state)
        self.state = [r.copy() for r in results[cut:]]
        return results[:cut]
