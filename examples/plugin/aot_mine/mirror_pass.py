"""A pass of our own: a tensor mirrored twice is that tensor."""

from __future__ import annotations

from aot.ir.transform import PassContext, register_pass
from aot.relay.dataflow_pattern import is_op, rewrite, wildcard
from aot.relay.expr import Function

X = wildcard()
TWICE = is_op("mine.mirror")(is_op("mine.mirror")(X))


@register_pass(opt_level=1, name="mine_drop_mirrors", on="relay", after="canonicalize")
def drop_mirrors(func: Function, _context: PassContext) -> Function:
    """mirror(mirror(x)) = x."""
    found: Function = rewrite(TWICE, lambda match: match[X], func)
    return found
