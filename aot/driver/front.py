"""The front half of the compiler: from a model to its fused graph, with the figures that are known before kernels are chosen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aot.driver.byoc import with_partitions
from aot.driver.model_pipeline import PipelineModel, chained
from aot.driver.options import Options
from aot.driver.plugins import load_installed
from aot.driver.slide import SlidingModel, slid
from aot.errors import Problem, UsageError
from aot.executor.plan_memory import row_graph
from aot.frontend.chain import unpack
from aot.frontend.formats import check_model, from_model, nominal_macs, specialize
from aot.frontend.tflite.view import nominal_shapes
from aot.ir.module import IRModule
from aot.ir.transform import PassContext, Sequential
from aot.ir.type import TensorType
from aot.memory.streaming import streaming_bound, whole_tensor_bound
from aot.relay.analysis import cost
from aot.relay.expr import Call, Constant, Function, all_functions, post_order
from aot.relay.state import input_vars, state_vars
from aot.relay.stored import widen_float16
from aot.relay.transform import pipeline as relay_pipeline
from aot.support.dataclass import dataclass
from aot.support.text import printable
from aot.target.target import Target, find_target


@dataclass(frozen=True, slots=True)
class FrontendResult:
    """`before`: the main function as in the file; `main`: the fused one; `slide`: how windowed inputs advance.

    `chain`: the parts of a push, if the model is a chain; `before` is then all its graphs as one.
    """

    before: Function
    main: Function
    slide: SlidingModel | None
    chain: PipelineModel | None = None

    @property
    def slides(self) -> bool:
        """Whether windows advance by the rows of a run, also inside a chain."""
        return self.slide is not None or (self.chain is not None and self.chain.slides)

    def macs_nominal(self, model: bytes) -> int:
        """Multiply-accumulates of the file; for a chain, of all runs of its stages in a push, on whole windows."""
        if self.chain is None:
            return nominal_macs(model)
        return sum(stage["macs_window"] * stage["runs"] for stage in self.chain.told["stages"])


def front(model: bytes | IRModule, cpu: Target, *, name: str, options: Options, most_bytes: int | None = None) -> FrontendResult:
    """Read a model whose shapes are known, and run the passes over graphs (ModelError, UnsupportedError).

    `most_bytes`: a limit for the rows that --slide keeps, met if possible.
    """
    with with_partitions(options.byoc, cpu) as context:
        chain = _chained(model, options, opt_level=context.opt_level, name=name) if isinstance(model, bytes) else None
        if chain is not None:
            module = chain.module
        else:
            module = model if isinstance(model, IRModule) else from_model(model, oracle=options.oracle, name=name)
        before = module["main"]
        assert isinstance(before, Function)
        if options.float16 == "fold" and chain is None:
            module = Sequential((widen_float16,), "float16")(module)
        slide = slid(module, options, opt_level=context.opt_level, most_bytes=most_bytes) if options.slide else None
        module = module if slide is None else slide.module
        module = relay_pipeline(context.opt_level, shared_states=options.io != "user")(module)
    main = module["main"]
    assert isinstance(main, Function)
    return FrontendResult(before, main, slide, chain)


def module_of(model: bytes, *, options: Options, name: str) -> IRModule:
    """The graph of a model or chain whose shapes are known (ModelError, UnsupportedError)."""
    found = _chained(model, options, opt_level=PassContext.current().opt_level, name=name)
    return from_model(model, oracle=options.oracle, name=name) if found is None else found.module


def problems_of(model: bytes, options: Options) -> list[Problem]:
    """Everything that prevents compiling a model; for a chain, everything that prevents compiling its stages (`check_model`)."""
    chain = unpack(model)
    if chain is None:
        return check_model(model, oracle=options.oracle)
    return [p for s in chain.stages for p in check_model(specialize(s.model), oracle=options.oracle)]


def _chained(model: bytes, options: Options, *, opt_level: int, name: str) -> PipelineModel | None:
    """The chain in these bytes as one module; UsageError E1305 for options that only a single model can have."""
    chain = unpack(model)
    if chain is None:
        return None
    if options.slide:
        message = "--slide: which windows of a chain move, and by how many rows, is in its file (slide = N)"
        raise UsageError(Problem("E1305", message))
    if options.feed_rows:
        raise UsageError(Problem("E1305", "--feed-rows: a chain takes the new rows of a push as a whole"))
    return chained(chain, options, opt_level=opt_level, name=name)


# ---- what a model needs, by rules and bounds alone: this reads the fused graph and makes no kernels


@dataclass(frozen=True, slots=True)
class Outline:
    """Bytes and counts; `inputs` and `outputs`: name, shape, dtype, bytes, scale and zero point of each.

    `liveness` and `streaming` are the bounds of docs/memory.md; `streaming_least` is a lower limit of `streaming`, set if its
    search stopped at its limit.  `weights`: all constants of the graph, with equal ones counted once.
    """

    layers: int
    macs: int
    macs_nominal: int
    liveness: int
    streaming: int
    weights: int
    state: int
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    slide: Mapping[str, Any] | None
    chain: Mapping[str, Any] | None = None
    streaming_least: int | None = None


def outline(model: bytes, *, target: str, name: str, options: Options) -> Outline:
    """The outline of a model whose shapes are known; raises the errors that `build` raises about the model itself."""
    load_installed()
    cpu = find_target(target)
    found = front(model, cpu.with_fast_float() if options.fast_float else cpu, name=name, options=options)
    main = found.main
    graph = row_graph(main, nominal_shapes(model), io=options.io)
    layers = [e for f in all_functions(main) for e in post_order(f.body) if isinstance(e, Call) and isinstance(e.op, Function)]
    rows = streaming_bound(graph)
    results = [_tensor(s.name, t) for s, t in zip(main.attrs["outputs"], main.attrs["output_types"], strict=True)]
    return Outline(
        len(layers),
        sum(cost(e.op).macs for e in layers if isinstance(e.op, Function)),
        found.macs_nominal(model),
        whole_tensor_bound(graph),
        rows.nbytes,
        _weights(main, layers),
        sum(v.type.nbytes for v in state_vars(main)),
        [_tensor(v.name, v.type) for v in input_vars(main)],
        results,
        None if found.slide is None else found.slide.told(),
        None if found.chain is None else found.chain.told,
        None if rows.optimal else rows.lower_bound,
    )


def _weights(main: Function, layers: list[Call]) -> int:
    functions = [*all_functions(main), *(e.op for e in layers if isinstance(e.op, Function))]
    constants = (e for f in functions for e in post_order(f.body) if isinstance(e, Constant))
    return sum({(e.type.dtype, e.data.tobytes()): e.type.nbytes for e in constants}.values())


def _tensor(name: str, type_: TensorType) -> dict[str, Any]:
    quant = type_.quant if type_.quant is not None and not type_.quant.is_per_channel else None
    row = {"name": printable(name, limit=200), "shape": list(type_.shape), "dtype": type_.dtype, "size": type_.nbytes}
    return row | {"scale": quant.scale[0] if quant else None, "zero_point": quant.zero_point[0] if quant else None}
