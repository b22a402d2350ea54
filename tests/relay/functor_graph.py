"""A graph of two variables in which one call is read twice."""

from __future__ import annotations

from aot import relay
from aot.relay.expr import Expr

X = relay.var("x", shape=(2, 4), dtype="int8")
Y = relay.var("y", shape=(2, 4), dtype="int8")


def graph() -> Expr:
    shared = relay.clip(X, 0, 9)
    pair = relay.make_tuple([relay.concatenate([shared, Y]), shared])
    return relay.concatenate([relay.get_item(pair, 0), relay.get_item(pair, 1)], axis=1)
