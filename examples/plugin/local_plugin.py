"""A plug-in of one file: `aot compile MODEL --plugin local_plugin.py` prints how many operators each network has."""

from aot.ir.transform import PassContext, register_pass
from aot.relay import ExprVisitor, Function


class Counter(ExprVisitor):
    """Counts calls."""

    def __init__(self) -> None:
        self.calls = 0

    def visit_call(self, call) -> None:
        self.calls += 1


@register_pass(opt_level=0, name="local_count", on="relay", after="infer_type")
def local_count(func: Function, context: PassContext) -> Function:
    """Print the number of calls; nothing changes."""
    counter = Counter()
    counter.visit(func)
    print(f"{counter.calls} calls")
    return func
