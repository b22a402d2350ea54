"""The steps of a body: their numbers, and what comes after each."""

from __future__ import annotations

from aot.executor.c_files import Decision, Step, make_steps
from aot.tir.buffer import Buffer
from aot.tir.expr import Imm, Load
from aot.tir.stmt import CallPrim, If, Stmt, While

HELD = Load(Buffer("workspace", (16,), "uint8", "arena", 16), (Imm(0),), "bool")
COPY = CallPrim("copy", ())


def layer(number: int) -> CallPrim:
    return CallPrim(f"f{number}", (), number)


def laid(*body: Stmt) -> list[tuple[object, ...]]:
    """(number, layer and statements, following) of steps, (number, then, orelse, counter) of decisions."""
    found: list[tuple[object, ...]] = []
    for s in make_steps(body, first=1):
        if isinstance(s, Decision):
            found.append((s.number, s.then, s.orelse, s.counter))
        else:
            assert isinstance(s, Step)
            found.append((s.number, f"{s.layer}/{len(s.body)}", s.following))
    return found


def test_copies_belong_to_a_layer() -> None:
    assert laid(COPY, layer(0), COPY, layer(1), COPY, COPY) == [(1, "0/3", 2), (2, "1/3", 3)]
    assert laid(COPY) == [(1, "-1/1", 2)]
    assert laid() == []


def test_branches() -> None:
    body = (layer(0), If(HELD, (layer(1), layer(2)), (layer(3),)), COPY)
    assert laid(*body) == [(1, "0/1", 2), (2, 3, 5, -1), (3, "1/1", 4), (4, "2/1", 6), (5, "3/1", 6), (6, "-1/1", 7)]
    assert laid(If(HELD, (), (layer(0),)), layer(1)) == [(1, 3, 2, -1), (2, "0/1", 3), (3, "1/1", 4)]


def test_loops_go_back_to_their_test() -> None:
    loop = While((layer(1),), HELD, (layer(2), layer(3)), 9)
    assert laid(layer(0), loop) == [(1, "0/1", 2), (2, "1/1", 3), (3, 4, 6, 0), (4, "2/1", 5), (5, "3/1", 2)]
    assert laid(While((layer(0),), HELD, ())) == [(1, "0/1", 2), (2, 1, 3, -1)]


def test_loops_in_loops_count_apart() -> None:
    inner = While((layer(1),), HELD, (layer(2),), 5)
    outer = While((layer(0),), HELD, (inner,), 5)
    assert laid(outer) == [(1, "0/1", 2), (2, 3, 6, 0), (3, "1/1", 4), (4, 5, 1, 1), (5, "2/1", 3)]
