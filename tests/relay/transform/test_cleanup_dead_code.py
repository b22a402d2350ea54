"""dead_code: fields and parameters that no one reads."""

from __future__ import annotations

from dataclasses import replace

from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.relay.expr import Call, Function, get_item, make_tuple
from aot.relay.transform import dead_code, fuse_ops
from tests.relay.check import ops, run
from tests.relay.toy import Net


def test_fields_of_a_spelled_out_tuple() -> None:
    net = Net()
    x = net.var(2, 4)
    both = make_tuple([net.op("neg", x), net.op("conv", x)])
    assert ops(run(dead_code, net.func(get_item(both, 0)))) == ["t.neg"]


def test_dead_parameters_of_fused_functions() -> None:
    net = Net()
    x, y = net.var(2, 4), net.var(2, 4)
    fused = run(fuse_ops, net.func(net.op("add", x, y)))
    call = fused.body
    assert isinstance(call, Call)
    assert isinstance(call.op, Function)
    only = Function(call.op.params, call.op.params[1], call.op.attrs)
    with PassContext():
        new = dead_code(IRModule({"main": replace(fused, body=replace(call, op=only))}))["main"]
    assert isinstance(new, Function)
    assert isinstance(new.body, Call)
    assert new.body.args == (y,)
    assert len(new.params) == 2, "main's own parameters are its interface"
