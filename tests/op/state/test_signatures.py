"""Several signatures over the same variables: one model each, and one state of the caller's for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from aot.driver.build import build, compile_model
from aot.driver.options import Options
from aot.frontend.formats import Choice
from aot.runtime.module import HostModel, load
from aot.testing import ModelBuilder
from aot.testing.builder import Subgraph, assign, handle, initialize, read

Array = np.ndarray[Any, Any]
SHAPE = (1, 3)


def two_signatures() -> bytes:
    """`push`: v = v + x, and last = x; `pull`: y = v * last, which uses nothing else."""
    b = ModelBuilder()
    main = b.subgraphs[0]
    initialize(b, {"v": np.full(SHAPE, 2, np.float32), "last": np.zeros(SHAPE, np.float32)})
    x, total = b.tensor("x", SHAPE, "float32"), b.tensor("total", SHAPE, "float32")
    v = handle(main, "v")
    b.op("ADD", [read(main, v, SHAPE, "float32"), x], [total], fused_activation_function="NONE")
    assign(main, v, total)
    assign(main, handle(main, "last"), x)
    pull: Subgraph = b.subgraph("pull")
    y, scale = pull.tensor("y", SHAPE, "float32"), pull.tensor("scale", SHAPE, "float32")
    pull.op("CALL_ONCE", [], [], init_subgraph_index=1)
    both = [read(pull, handle(pull, n), SHAPE, "float32") for n in ("last", "v")]
    product = pull.tensor("product", SHAPE, "float32")
    pull.op("MUL", both, [product], fused_activation_function="NONE")
    pull.op("MUL", [product, scale], [y], fused_activation_function="NONE")
    pull.inputs, pull.outputs = (scale,), (y,)
    b.signature("push", inputs={"x": x}, outputs={"total": total})
    b.signature("pull", inputs={"scale": scale}, outputs={"y": y}, subgraph=2)
    return b.build([x], [total])


def model(key: str) -> HostModel:
    options = Options(io="user", choice=Choice(signature=key))
    return load(build(two_signatures(), target="host", name=key, options=options))


def runner(data: bytes) -> Any:
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    return Interpreter(model_content=data, experimental_op_resolver_type=OpResolverType.BUILTIN_REF)


def test_two_models_share_one_state() -> None:
    push, pull = model("push"), model("pull")
    assert push.metadata["state"]["tensors"] == pull.metadata["state"]["tensors"]
    state = push.new_state()
    assert state.tobytes() == pull.new_state().tobytes()
    reference = runner(two_signatures())
    runners = {k: reference.get_signature_runner(k) for k in ("push", "pull")}
    rng = np.random.default_rng(4)
    for _ in range(5):
        x, scale = (rng.standard_normal(SHAPE).astype(np.float32) for _ in range(2))
        assert push.run([x], state=state)[0].tobytes() == runners["push"](x=x)["total"].tobytes()
        assert pull.run([scale], state=state)[0].tobytes() == runners["pull"](scale=scale)["y"].tobytes()


def test_alone_a_model_keeps_only_what_it_uses() -> None:
    options = Options(choice=Choice(signature="pull"))
    assert compile_model(two_signatures(), options=options).artifact.metadata["state"]["size"] == 2 * 12
    options = Options(choice=Choice(signature="push"))
    assert compile_model(two_signatures(), options=options).artifact.metadata["state"]["size"] == 2 * 12
