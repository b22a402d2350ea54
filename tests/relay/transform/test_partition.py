"""MergeComposite, AnnotateTarget, MergeCompilerRegions, PartitionGraph: forms, sharing, meaning, wrong use."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aot import relay
from aot.errors import UsageError
from aot.ir import IRModule
from aot.relay.dataflow_pattern import is_op, wildcard
from aot.relay.expr import Call, Expr, Function, post_order
from aot.relay.transform import (
    AnnotateTarget,
    MergeCompilerRegions,
    MergeComposite,
    PartitionGraph,
    fuse_ops,
    get_pattern_table,
    partition_for,
    register_pattern_table,
)
from aot.relay.transform.partition import _TABLES
from aot.relay.verify import verify

X = relay.var("x", shape=(1, 8, 8, 2), dtype="int8")
POOL = is_op("nn.max_pool2d")(wildcard())
TABLE = [("my.clipped", is_op("clip")(POOL)), ("my.pool", POOL)]


def regions(expr: Expr | Function) -> list[str]:
    body = expr.body if isinstance(expr, Function) else expr
    return [str(c.op.attrs.get("Composite", "")) for c in post_order(body) if isinstance(c, Call) and isinstance(c.op, Function)]


def main_of(module: IRModule) -> Function:
    main = module["main"]
    assert isinstance(main, Function)
    return main


def partitioned(expr: Expr, *, merge: bool = False) -> IRModule:
    """All steps; the meaning stays what it was."""
    module = IRModule.from_expr(expr)
    before = main_of(module)
    steps = [MergeComposite(TABLE), AnnotateTarget("my"), *([MergeCompilerRegions()] if merge else []), PartitionGraph()]
    for step in steps:
        module = step(module)
        data = np.random.default_rng(1).integers(-128, 128, X.type.shape).astype(np.int8)
        assert relay.evaluate(main_of(module), [data])[0].tobytes() == relay.evaluate(before, [data])[0].tobytes()
    verify(main_of(fuse_ops(module)))
    return module


def test_larger_patterns_first() -> None:
    found = regions(main_of(partitioned(relay.nn.max_pool2d(relay.clip(relay.nn.max_pool2d(X, 2), 0, 9), 2))))
    assert found == ["my.clipped", "my.pool"]


def test_what_others_read_is_not_taken_in() -> None:
    pool = relay.nn.max_pool2d(X, 2)
    module = partitioned(relay.concatenate([relay.clip(pool, 0, 9), pool]))
    assert regions(main_of(module)) == ["my.pool"], "the clip would hide the pool that concatenate reads"


def test_regions_merge_where_no_one_else_reads() -> None:
    module = partitioned(relay.nn.max_pool2d(relay.clip(relay.nn.max_pool2d(X, 2), 0, 9), 2), merge=True)
    assert regions(main_of(module)) == ["my.clipped+my.pool"]
    pool = relay.nn.max_pool2d(X, 2)
    module = partitioned(relay.concatenate([relay.nn.max_pool2d(pool, 1), relay.nn.max_pool2d(pool, 1, padding=0)]), merge=True)
    assert regions(main_of(module)) == ["my.pool"] * 3


def test_composites_without_a_mark_become_operators_again() -> None:
    module = PartitionGraph()(MergeComposite(TABLE)(IRModule.from_expr(relay.nn.max_pool2d(X, 2))))
    assert regions(main_of(module)) == []


def test_attributes_of_a_partition() -> None:
    call = main_of(partitioned(relay.nn.max_pool2d(X, 2))).body
    assert isinstance(call, Call)
    assert isinstance(call.op, Function)
    assert {k: call.op.attrs[k] for k in ("Compiler", "global_symbol", "Primitive")} == {
        "Compiler": "my", "global_symbol": "my_main_0", "Primitive": 1,
    }  # fmt: skip


def test_checks_may_refuse() -> None:
    table = [("my.pool", POOL, lambda call: call.attrs.pool_size == (2, 2))]
    module = MergeComposite(table)(IRModule.from_expr(relay.nn.max_pool2d(relay.nn.max_pool2d(X, 3), 2)))
    assert regions(main_of(module)) == ["my.pool"]


def test_registered_tables() -> None:
    @register_pattern_table("test-compiler")
    def table() -> list[Any]:
        return [("test-compiler.pool", POOL)]

    try:
        assert get_pattern_table("test-compiler")[0].name == "test-compiler.pool"
        module = partition_for("test-compiler", only=["pool"])(IRModule.from_expr(relay.nn.max_pool2d(X, 2)))
        assert regions(main_of(module)) == ["test-compiler.pool"]
        with pytest.raises(UsageError, match="E5102"):
            register_pattern_table("test-compiler")(table)
        with pytest.raises(UsageError, match="E5121"):
            partition_for("test-compiler", only=["nope"])
    finally:
        del _TABLES["test-compiler"]


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: MergeComposite(3), "E5120"),  # type: ignore[arg-type]
    (lambda: MergeComposite([3]), "E5120"),  # type: ignore[list-item]
    (lambda: MergeComposite([("x", 3)]), "E5120"),  # type: ignore[list-item]
    (lambda: MergeComposite([("x", POOL, 3)]), "E5120"),  # type: ignore[list-item]
    (lambda: MergeComposite([("x", is_op("no.such")(wildcard()))]), "E5101"),
    (lambda: AnnotateTarget([]), "E5120"),
    (lambda: AnnotateTarget([3]), "E5120"),  # type: ignore[list-item]
    (lambda: register_pattern_table(3)(list), "E5120"),  # type: ignore[arg-type]
    (lambda: register_pattern_table("b")(lambda: [("a.x", POOL)]), "E5120"),
    (lambda: get_pattern_table("no-such"), "E5121"),
    (lambda: partition_for("no-such"), "E5121"),
]


@pytest.mark.parametrize("index", range(len(WRONG)))
def test_wrong_use(index: int) -> None:
    wrong, code = WRONG[index]
    with pytest.raises(UsageError, match=code):
        wrong()


def test_page() -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "byoc.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 5
    assert not failed
