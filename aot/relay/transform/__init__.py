"""Passes over relay functions, and the order in which the compiler runs them."""

from __future__ import annotations

from collections.abc import Sequence

from aot.errors.tvm_names import missing_in
from aot.ir.transform import Pass, PassContext, Sequential
from aot.relay.transform.canonicalize import canonicalize
from aot.relay.transform.channels import fold_zero_taps, remove_constant_channels
from aot.relay.transform.cleanup import dead_code, eliminate_common_subexpr, fold_constant, infer_type, simplify_control_flow
from aot.relay.transform.fold_to_table import fold_to_steps, fold_to_table
from aot.relay.transform.narrow_states import narrow_states
from aot.relay.transform.partition import (
    AnnotateTarget,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
    fuse_ops,
    get_pattern_table,
    partition_for,
    register_pattern_table,
)
from aot.relay.transform.transposes import interleave_concat, sink_transpose

_GRAPH_PASSES = (
    simplify_control_flow,
    fold_constant,
    sink_transpose,
    interleave_concat,
    canonicalize,
    fold_to_table,
    fold_to_steps,
    eliminate_common_subexpr,
    remove_constant_channels,
    fold_zero_taps,
    dead_code,
)
"""Bring a graph whose types are known into its normal form, which they leave as it is."""

__all__ = [
    "AnnotateTarget", "MergeCompilerRegions", "MergeComposite", "PartitionGraph", "canonicalize", "dead_code",
    "eliminate_common_subexpr", "fold_constant", "fold_to_steps", "fold_to_table", "fold_zero_taps", "fuse_ops",
    "get_pattern_table", "graph_pipeline", "infer_type", "interleave_concat", "narrow_states", "partition_for",
    "pipeline", "register_pattern_table", "remove_constant_channels", "simplify_control_flow", "sink_transpose",
]  # fmt: skip


def pipeline(opt_level: int = 2, *, shared_states: bool = True) -> Sequential:
    """All passes from the front end's graph to fused functions; the current PassContext may leave out more.

    `shared_states`: whether states that other signatures use may change their type.
    """
    narrow = narrow_states.configured(with_shared=shared_states)
    return _sequence((infer_type, narrow, *_GRAPH_PASSES, fuse_ops), opt_level)


def graph_pipeline(opt_level: int = 2) -> Sequential:
    """The part of `pipeline` that brings a graph into normal form."""
    return _sequence((infer_type, *_GRAPH_PASSES), opt_level)


def _sequence(passes: Sequence[Pass], opt_level: int) -> Sequential:
    """The passes of this level, and the ones that the context requires, or after which it adds others."""
    context = PassContext.current()

    def runs(p: Pass) -> bool:
        return p.required or p.opt_level <= opt_level or p.name in context.required_pass or bool(context.added_after(p.name))

    return Sequential(tuple(p for p in passes if runs(p)), "relay")


__getattr__ = missing_in("relay.transform")
