"""Faults of a graph of a user's Python, or of a text, are the user's errors; functions that are called are written out."""

from __future__ import annotations

import numpy as np
import pytest

import aot
from aot import relay
from aot.errors import UsageError
from aot.ir import IRModule, parse
from aot.ir.instrument import CheckSemantics, VerifyIR
from aot.ir.transform import PassContext

X = relay.var("x", shape=(4,), dtype="int8")


def test_tuples_do_not_nest() -> None:
    pair = relay.make_tuple([X, X])
    with pytest.raises(UsageError, match=r"E5104 test_graphs.*field 1 of a tuple is a tuple"):
        relay.make_tuple([X, pair])
    with pytest.raises(UsageError, match=r"E5104.*a tuple of 2 fields has no field 2"):
        relay.get_item(pair, 2)
    with pytest.raises(UsageError, match=r"E5104.*is not a tuple"):
        relay.get_item(X, 0)
    with pytest.raises(UsageError, match=r"E5104.*is a int, not an expression"):
        relay.make_tuple([X, 3])  # type: ignore[list-item]


def nested() -> relay.Function:
    """A function that calls one twice, which calls another one, and one whose branches do."""
    a, b, c, v = (relay.var(n, shape=(4,), dtype="int8") for n in "abcv")
    inner = relay.Function((a,), relay.negative(a))
    outer = relay.Function((b,), relay.bitwise_xor(inner(b), b))
    branch = relay.Function((v,), inner(v))
    chosen = relay.if_then_else(relay.var("cond", shape=(1,), dtype="bool"), [outer(outer(c))], branch, relay.Function((v,), v))
    return relay.Function((c, chosen.cond), chosen)


def test_a_function_that_is_called_is_written_out() -> None:
    func = nested()
    check = CheckSemantics()
    with PassContext(instruments=[VerifyIR(), check]):
        artifact = aot.build(IRModule.from_expr(func), name="calls")
    assert check.compared
    value = np.array([1, -2, 3, 100], "int8")
    for holds in (False, True):
        expected = relay.evaluate(func, [value, np.array([holds])])
        got = aot.load(artifact).run([value, np.array([holds])])
        assert [e.tolist() for e in expected] == [g.tolist() for g in got]


def test_operands_that_do_not_fit_a_function() -> None:
    inner = relay.Function((X,), relay.negative(X))
    with pytest.raises(UsageError, match=r"E1160 test_graphs.*a function of int8\[4\] is called with int8\[5\]"):
        inner(relay.var("y", shape=(5,), dtype="int8"))
    wrong = relay.Call(inner, (relay.var("y", shape=(5,), dtype="int8"),), None, X.type)
    with pytest.raises(UsageError, match="E1160"):
        aot.build(IRModule.from_expr(wrong))


def text_of(line: str, kind: str = "int8[4]") -> str:
    return f"def @main(%x: {kind}) -> int8[4] {{\n  {line}\n  %0\n}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (text_of("%0 = nonesuch(%x)"), "E5101 line 2: there is no operator 'nonesuch'"),
        (text_of("%0 = bitwise_xorr(%x, %x)"), "did you mean bitwise_xor"),
        (text_of("%0 = negative(%x)", "int9[4]"), "E5104 line 1: there is no element type 'int9'"),
        (
            text_of("%0 = add(%x, const[c: int8[1], 123])"),
            "E5131 line 2: the text has no metadata with the data of the constant c",
        ),
    ],
)
def test_a_text_names_its_own_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert said in str(caught.value)
    assert "test_graphs" not in str(caught.value)


def test_a_graph_without_constants_is_read_without_metadata() -> None:
    module = IRModule.from_expr(relay.reshape(relay.maximum(relay.negative(X), X), (2, 2)))
    assert parse(module.astext()).astext(show_meta_data=True) == module.astext(show_meta_data=True)
    assert parse(str(module)).astext() == module.astext()


def test_loop_nests_are_read_without_metadata() -> None:
    from aot import te

    a = te.placeholder((4,), "int32", name="a")
    b = te.compute((4,), lambda i: a[i] + 1, name="b")
    module = aot.lower(te.create_schedule(b.op), [a, b])
    bare = module.astext().replace("  // te", "")  # the kernel, which is an attribute
    assert parse(bare).astext() == bare
