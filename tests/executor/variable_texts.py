"""Models as text in which a branch or a loop works on a variable `v`, of one row of some float32 values."""

from __future__ import annotations

VARIABLE = """
    tensor v resource[]
    CALL_ONCE -> init_subgraph_index=3
    VAR_HANDLE -> v shared_name=v
    tensor old float32[1,{width}]
    READ_VARIABLE v -> old
    const zero int32[] data=0
    tensor sum float32[1,{width}]
"""
BRANCH = """
    tensor go bool[]
    LESS k zero -> go
    IF go {other} old -> sum then_subgraph_index=1 else_subgraph_index=2
"""
BRANCHES = """
    graph then
    in a float32[1,{width}]
    in b float32[1,{width}]
    out more float32[1,{width}]
    ADD a b -> more
    graph else
    in a float32[1,{width}]
    in b float32[1,{width}]
    out less float32[1,{width}]
    SUB b a -> less
"""
LOOP = """
    tensor start float32[1,{width}]
    ADD old {other} -> start
    tensor n int32[]
    WHILE {first} {source} -> n sum cond_subgraph_index=1 body_subgraph_index=2
"""
CONDITION_AND_BODY = """
    graph condition
    in i int32[]
    in a float32[1,{width}]
    const three int32[] data=3
    out go bool[]
    LESS i three -> go
    graph body
    in i int32[]
    in a float32[1,{width}]
    const one int32[] data=1
    out next int32[]
    ADD i one -> next
    const half float32[] data=0.5
    out less float32[1,{width}]
    MUL a half -> less
"""
INITIAL = """
    graph initialize
    tensor v resource[]
    const first float32[1,{width}] data={values}
    VAR_HANDLE -> v shared_name=v
    ASSIGN_VARIABLE v first ->
"""


def on_a_variable(
    front: str, *, width: int, other: str, loop: bool, first: str = "zero", source: str = "start", back: str
) -> str:
    """`front`, then a branch (by an int32 `k`) or a loop (`first`, `source`) makes the new value, `sum`, then `back`.

    Both work on the old value and on `other`, a tensor of `width` values.
    """
    control, graphs = (LOOP, CONDITION_AND_BODY) if loop else (BRANCH, BRANCHES)
    values = ",".join(str(i + 1) for i in range(width))
    text = front + VARIABLE + control + "    ASSIGN_VARIABLE v sum ->\n" + back + graphs + INITIAL
    return text.format(width=width, other=other, first=first, source=source, values=values)
