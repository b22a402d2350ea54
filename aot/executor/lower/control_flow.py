"""What branches and loops need from the te compiler: copies as layers, and results that are unchanged parameters."""

from __future__ import annotations

from aot.op.tensor.concatenate import ConcatenateAttrs
from aot.relay.expr import Call, Function, call, var
from aot.relay.transform.fuse_ops import call_group
from aot.relay.trip_count import results_of


def copying(size: int, dtype: str) -> Function:
    """A fused function whose result is its operand: the concatenation of one tensor, whose kernels say that they copy."""
    data = var("data", (max(size, 1),), dtype=dtype)
    made = call("concatenate", [data], ConcatenateAttrs(0))
    func = call_group([made], {id(data): data}).op
    assert isinstance(func, Function)
    return func


def own_updates(func: Function) -> frozenset[int]:
    """The nodes (by id) of a loop's body that compute a variable's next value from its last one alone: a counter's step.

    Run last they may overwrite the variable, as nothing reads it any more.
    """
    found = set[int]()
    for param, result in zip(func.params, results_of(func), strict=True):
        if isinstance(result, Call) and [id(a) for a in result.args] == [id(param)]:
            found.add(id(result))
    return frozenset(found)


def handed_on(func: Function) -> list[int | None]:
    """For each result the number of the parameter that it is, unchanged; None for one that is computed."""
    numbers = {id(p): i for i, p in enumerate(func.params)}
    return [numbers.get(id(r)) for r in results_of(func)]
