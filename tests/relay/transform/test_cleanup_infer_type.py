"""infer_type: wrong types are corrected, quantisation stays, and an operator that does not fit is named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aot.errors import InternalError
from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.ir.type import TensorType, per_tensor
from aot.relay.expr import Function, Tuple, make_tuple
from aot.relay.transform import infer_type
from tests.relay.toy import Net


def test_infer_type_corrects_types_and_keeps_quantisation() -> None:
    net = Net()
    x = net.var(2, 4)
    quant = per_tensor(0.25, 3)
    wrong = replace(net.op("neg", x), type=TensorType((9, 9), "int8"))
    noted = replace(net.op("neg", x), type=TensorType((2, 4), "int8", quant))
    func = net.func(make_tuple([net.op("neg", wrong), noted]))
    with PassContext():
        new = infer_type(IRModule({"main": func}))["main"]
    assert isinstance(new, Function)
    assert isinstance(new.body, Tuple)
    assert new.body.type.fields == (x.type, TensorType((2, 4), "int8", quant))
    assert new.body.fields[1] is noted


def test_infer_type_names_the_operator_that_does_not_fit() -> None:
    net = Net()
    x, y = net.var(2, 4), net.var(2, 3)
    bad = replace(net.op("add", x, x), args=(x, y))
    with pytest.raises(InternalError, match=r'op 1 ADD "y1".*t.add') as caught:
        infer_type(IRModule({"main": net.func(bad)}))
    assert "in pass infer_type" in caught.value.__notes__
