"""Small functions over one number, for tests of branches and loops."""

from __future__ import annotations

from aot import op as operators
from aot import relay

operators.load_all()


def number(name: str) -> relay.Var:
    return relay.var(name, shape=(1,), dtype="float32")


def below(limit: float) -> relay.Function:
    v = number("v")
    return relay.Function((v,), relay.less(v, relay.const([float(limit)])))


def twice() -> relay.Function:
    w = number("w")
    return relay.Function((w,), relay.add(w, w))
