"""fuse_ops: which operators share a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.relay.expr import Call, Expr, Function, const, get_item, is_call, make_tuple, operands, post_order
from aot.relay.interpreter import evaluate
from aot.relay.printer import print_func
from aot.relay.transform.partition import fuse_ops, post_dominator_tree
from aot.relay.verify import verify
from tests.relay.toy import Net, ScaleAttrs


def fuse(func: Function, **config: object) -> Function:
    """Fused, verified, and run against the original."""
    with PassContext(config=config):
        fused = fuse_ops(IRModule({"main": func}))["main"]
    assert isinstance(fused, Function)
    verify(fused)
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-128, 128, p.type.shape).astype(p.type.dtype) for p in func.params]
    for a, b in zip(evaluate(func, inputs), evaluate(fused, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
    return fused


def groups(func: Function) -> list[str]:
    """The names of main's calls in order of execution."""
    calls = [e for e in post_order(func.body) if isinstance(e, Call)]
    return [str(c.op.attrs["name"]) if isinstance(c.op, Function) else str(c.op) for c in calls]


def test_anchor_takes_the_element_wise_chain_after_it() -> None:
    net = Net()
    x = net.var(2, 4)
    body = net.op("neg", net.op("scale", net.op("conv", x), attrs=ScaleAttrs(3)))
    fused = fuse(net.func(body))
    assert groups(fused) == ["conv_scale_neg"]
    assert fused.body.span == body.span


def test_nothing_is_fused_in_front_of_an_anchor() -> None:
    net = Net()
    assert groups(fuse(net.func(net.op("conv", net.op("neg", net.var(2, 4)))))) == ["neg", "conv"]
    net = Net()
    assert groups(fuse(net.func(net.op("rowmax", net.op("neg", net.var(2, 4)))))) == ["neg", "rowmax"]


def test_reduction_takes_followers() -> None:
    net = Net()
    assert groups(fuse(net.func(net.op("neg", net.op("rowmax", net.var(2, 4)))))) == ["rowmax_neg"]


def test_residual_diamond() -> None:
    net = Net()
    x = net.op("neg", net.var(2, 4))
    fused = fuse(net.func(net.op("neg", net.op("add", net.op("scale", net.op("conv", x), attrs=ScaleAttrs(2)), x))))
    assert groups(fused) == ["neg", "conv_scale_add_neg"]
    group = fused.body
    assert isinstance(group, Call)
    assert len(group.args) == 2, "the convolution and the sum have a parameter each"
    assert group.args[0] is group.args[1], "which is one tensor"


def test_residual_of_two_convolutions_joins_the_later_one() -> None:
    net = Net()
    x = net.var(2, 4)
    first, second = net.op("conv", x), net.op("neg", net.op("conv", x))
    for operands_of_add in ((first, second), (second, first)):
        fused = fuse(net.func(net.op("add", *operands_of_add)))
        assert groups(fused) == ["conv", "conv_neg_add"]
        assert isinstance(fused.body, Call)
        assert len(fused.body.args) == 2


def test_element_wise_calls_do_not_join_an_anchor_from_the_side() -> None:
    net = Net()
    x, y = net.var(2, 4), net.var(2, 4)
    fused = fuse(net.func(net.op("add", net.op("neg", y), net.op("conv", x))))
    assert groups(fused) == ["neg", "conv_add"]


def test_residual_can_be_switched_off() -> None:
    net = Net()
    x = net.var(2, 4)
    func = net.func(net.op("add", net.op("neg", net.op("conv", x)), x))
    assert groups(fuse(func, **{"fuse.residual": False})) == ["conv_neg", "add"]
    assert groups(fuse(func)) == ["conv_neg_add"]


def test_constant_operand_stays_inside_even_without_residual() -> None:
    net = Net()
    x = net.var(2, 4)
    bias = const(np.arange(4, dtype=np.int8))
    fused = fuse(net.func(net.op("add", net.op("conv", x), bias)), **{"fuse.residual": False})
    assert groups(fused) == ["conv_add"]
    assert isinstance(fused.body, Call)
    assert len(fused.body.args) == 1


def test_follower_of_another_shape_stays_out() -> None:
    net = Net()
    x = net.var(2, 4)
    row = net.op("rowmax", x)
    assert groups(fuse(net.func(net.op("add", net.op("neg", row), x)))) == ["rowmax_neg", "add"]


def test_output_used_twice_ends_a_group() -> None:
    net = Net()
    y = net.op("conv", net.var(2, 4))
    fused = fuse(net.func(make_tuple([net.op("conv", y), net.op("conv", net.op("neg", y))])))
    assert groups(fused) == ["conv", "conv", "neg", "conv"]


def test_branches_of_an_anchor_do_not_join_it() -> None:
    net = Net()
    y = net.op("conv", net.var(2, 4))
    fused = fuse(net.func(net.op("add", net.op("neg", y), net.op("scale", y, attrs=ScaleAttrs(2)))))
    assert groups(fused) == ["conv", "neg_scale_add"]


def test_graph_output_inside_a_chain_ends_a_group() -> None:
    net = Net()
    y = net.op("neg", net.op("conv", net.var(2, 4)))
    z = net.op("scale", y, attrs=ScaleAttrs(5))
    assert groups(fuse(net.func(make_tuple([y, z])))) == ["conv_neg", "scale"]


def test_shared_input_does_not_join_groups() -> None:
    net = Net()
    x = net.var(2, 4)
    fused = fuse(net.func(make_tuple([net.op("neg", net.op("conv", x)), net.op("neg", net.op("conv", x))])))
    assert groups(fused) == ["conv_neg", "conv_neg"]


def test_views_stay_in_main() -> None:
    net = Net()
    y = net.op("neg", net.op("view", net.op("conv", net.var(2, 4))))
    fused = fuse(net.func(y))
    assert groups(fused) == ["conv", "t.view", "neg"]
    assert any(is_call(e, "t.view") for e in post_order(fused.body))


def test_injective_chains_join_element_wise_ones() -> None:
    net = Net()
    x = net.var(2, 4)
    fused = fuse(net.func(net.op("neg", net.op("flip", net.op("scale", x, attrs=ScaleAttrs(2))))))
    assert groups(fused) == ["scale_flip_neg"]


def test_injective_does_not_follow_an_anchor() -> None:
    net = Net()
    assert groups(fuse(net.func(net.op("flip", net.op("conv", net.var(2, 4)))))) == ["conv", "flip"]


def test_branches_join_a_concatenation() -> None:
    net = Net()
    x, y = net.var(2, 4), net.var(2, 4)
    fused = fuse(net.func(net.op("cat", net.op("neg", x), net.op("conv", y), x)))
    assert groups(fused) == ["conv", "neg_cat"]


def test_broadcast_that_repeats_elements_reads_memory() -> None:
    net = Net()
    x, small = net.var(8, 4), net.var(1, 4)
    fused = fuse(net.func(net.op("add", x, net.op("neg", small))))
    assert groups(fused) == ["neg", "add"]


def test_tuple_results() -> None:
    net = Net()
    halves = net.op("split", net.op("conv", net.var(2, 4)))
    fused = fuse(net.func(net.op("add", get_item(halves, 0), net.op("neg", get_item(halves, 1)))))
    assert groups(fused) == ["conv", "split", "neg_add"]


def test_opt_level_0_gives_every_operator_its_own_function() -> None:
    net = Net()
    func = net.func(net.op("neg", net.op("scale", net.op("conv", net.var(2, 4)), attrs=ScaleAttrs(3))))
    with PassContext(opt_level=0):
        fused = fuse_ops(IRModule({"main": func}))["main"]
    assert isinstance(fused, Function)
    assert groups(fused) == ["conv", "scale", "neg"]


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_max_depth(depth: int) -> None:
    net = Net()
    y: Expr = net.op("conv", net.var(2, 4))
    for _ in range(9):
        y = net.op("neg", y)
    fused = fuse(net.func(y), **{"fuse.max_depth": depth})
    sizes = [sum(isinstance(m, Call) for m in post_order(e.op.body)) for e in post_order(fused.body) if isinstance(e, Call)]
    assert sum(sizes) == 10
    assert max(sizes) <= depth
    assert len(sizes) == -(-10 // depth)


def test_deep_chain_does_not_recurse() -> None:
    net = Net()
    y: Expr = net.var(2, 2)
    for i in range(3000):
        y = net.op(("conv", "neg", "flip")[i % 3], y)
    fused = fuse(net.func(y))
    assert groups(fused)[:4] == ["conv_neg", "flip", "conv_neg", "flip"]
    assert len(print_func(fused).splitlines()) > 3000


def test_main_without_operators() -> None:
    net = Net()
    x = net.var(2, 4)
    assert fuse(net.func(x)).body is x


def test_post_dominators_of_a_diamond() -> None:
    net = Net()
    x = net.var(2, 4)
    a = net.op("neg", x)
    left, right = net.op("neg", a), net.op("flip", a)
    join = net.op("add", left, right)
    tree = post_dominator_tree(net.func(join))
    n = {id(e): i for i, e in enumerate(tree.order)}
    assert tree.parent[n[id(a)]] == n[id(join)]
    assert tree.parent[n[id(left)]] == n[id(join)]
    assert tree.parent[n[id(join)]] == -1
    assert tree.between(n[id(a)], n[id(join)], limit=9) == sorted(n[id(e)] for e in (left, right, join))
    assert tree.between(n[id(a)], n[id(join)], limit=2) is None
    assert all(tree.consumers[n[id(o)]] for e in tree.order for o in operands(e))


def test_golden(golden) -> None:  # type: ignore[no-untyped-def]
    net = Net()
    x = net.var(2, 4)
    y = net.op("neg", net.op("add", net.op("conv", x), const(np.arange(4, dtype=np.int8))))
    z = net.op("add", net.op("scale", net.op("conv", y), attrs=ScaleAttrs(2)), y)
    func = net.func(make_tuple([net.op("view", z), net.op("rowmax", y)]))
    golden("fuse_ops_before.relay", print_func(func))
    golden("fuse_ops_after.relay", print_func(fuse(func)))
