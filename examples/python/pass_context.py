"""Passes under a PassContext: an instrument of our own, a disabled pass, and the time of each.

python examples/python/pass_context.py tests/models/net_kws_dscnn.tflite
"""

from __future__ import annotations

import sys

import aot
from aot.ir.instrument import PassTimingInstrument
from aot.ir.module import IRModule
from aot.ir.transform import Pass, PassContext, PassInstrument
from aot.relay.expr import Call, Function, post_order


class CountCalls(PassInstrument):
    """How many operators each relay pass adds or removes."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, int, int]] = []
        self._before = 0

    def run_before_pass(self, module: IRModule, info: Pass) -> None:
        """Count before the pass."""
        self._before = count_calls(module)

    def run_after_pass(self, module: IRModule, info: Pass) -> None:
        """Count after it."""
        after = count_calls(module)
        if after != self._before:
            self.rows.append((info.name, self._before, after))


def count_calls(module: IRModule) -> int:
    """The operators in the bodies of a module's relay functions."""
    bodies = [f.body for f in module.functions.values() if isinstance(f, Function)]
    return sum(isinstance(e, Call) for body in bodies for e in post_order(body))


def main(path: str) -> None:
    """Compile twice, with and without a pass."""
    for disabled in ((), ("eliminate_common_subexpr",)):
        calls, timing = CountCalls(), PassTimingInstrument()
        with PassContext(opt_level=2, disabled_pass=disabled, instruments=(calls, timing)):
            artifact = aot.build(path, name="network")
        print(f"without {', '.join(disabled) or 'nothing'}: {len(artifact.metadata['layers'])} layers")
        for name, before, after in calls.rows:
            print(f"  {name}: {before} -> {after} operators")
        slowest = max(timing.rows, key=lambda row: row.seconds)
        print(f"  slowest pass: {slowest.name}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/models/net_kws_dscnn.tflite")
