"""The front half of the compiler: from a model to its fused graph, with what is known of it before a kernel is."""

from __future__ import annotations

from aot.driver.byoc import with_partitions
from aot.driver.chain import Chained, chained
from aot.driver.options import Options
from aot.driver.slide import Slid, slid
from aot.errors import Problem, UsageError
from aot.frontend.chain import unpack
from aot.frontend.macs import nominal_macs
from aot.frontend.specialize import specialize
from aot.frontend.tflite import check_model, from_tflite
from aot.ir.module import IRModule
from aot.ir.transform import PassContext
from aot.relay.expr import Function
from aot.relay.stored import widened
from aot.relay.transform import pipeline as relay_pipeline
from aot.relay.transform.narrow_states import narrow_states
from aot.support.dataclass import dataclass
from aot.target.target import Target


@dataclass(frozen=True, slots=True)
class Front:
    """`before`: the main function as the file has it; `main`: fused; `slide`: how inputs move on, where they are windows.

    `chain`: what a push is made of, where the model is several; `before` is then their graphs as one.
    """

    before: Function
    main: Function
    slide: Slid | None
    chain: Chained | None = None

    @property
    def slides(self) -> bool:
        """Whether windows move on by the rows of a run, inside of a chain too."""
        return self.slide is not None or (self.chain is not None and self.chain.slides)

    def macs_nominal(self, model: bytes) -> int:
        """Those of the file; of a chain, of all runs of its stages in a push on whole windows."""
        if self.chain is None:
            return nominal_macs(model)
        return sum(stage["macs_window"] * stage["runs"] for stage in self.chain.told["stages"])


def front(model: bytes | IRModule, cpu: Target, *, name: str, options: Options, most_bytes: int | None = None) -> Front:
    """Read a model whose shapes are known, and run the passes over graphs (ModelError, UnsupportedError).

    `most_bytes`: of rows that are kept with --slide, where that is possible.
    """
    with with_partitions(options.byoc, cpu) as context:
        chain = _chained(model, options, opt_level=context.opt_level, name=name) if isinstance(model, bytes) else None
        if chain is not None:
            module = chain.module
        else:
            module = model if isinstance(model, IRModule) else from_tflite(model, oracle=options.oracle, name=name)
        before = module["main"]
        assert isinstance(before, Function)
        if options.float16 == "fold" and chain is None:
            module = module.with_function("main", widened(before, "float16"))
        slide = slid(module, options, opt_level=context.opt_level, most_bytes=most_bytes) if options.slide else None
        module = _narrowed(module if slide is None else slide.module, options) if context.opt_level > 0 else module
        module = relay_pipeline(context.opt_level)(module)
    main = module["main"]
    assert isinstance(main, Function)
    return Front(before, main, slide, chain)


def module_of(model: bytes, *, options: Options, name: str) -> IRModule:
    """The graph of a model, or of a chain, whose shapes are known (ModelError, UnsupportedError)."""
    found = _chained(model, options, opt_level=PassContext.current().opt_level, name=name)
    return from_tflite(model, oracle=options.oracle, name=name) if found is None else found.module


def problems_of(model: bytes, options: Options) -> list[Problem]:
    """Everything that keeps a model from being compiled; of a chain, what keeps each of its stages (`check_model`)."""
    chain = unpack(model)
    if chain is None:
        return check_model(model, oracle=options.oracle)
    return [p for s in chain.stages for p in check_model(specialize(s.model), oracle=options.oracle)]


def _chained(model: bytes, options: Options, *, opt_level: int, name: str) -> Chained | None:
    """The chain in these bytes as one module; UsageError E1305 for options of one model."""
    chain = unpack(model)
    if chain is None:
        return None
    if options.slide:
        message = "--slide: which windows of a chain move, and by how many rows, is in its file (slide = N)"
        raise UsageError(Problem("E1305", message))
    if options.feed_rows:
        raise UsageError(Problem("E1305", "--feed-rows: a chain takes the new rows of a push as a whole"))
    return chained(chain, options, opt_level=opt_level, name=name)


def _narrowed(module: IRModule, options: Options) -> IRModule:
    main = module["main"]
    assert isinstance(main, Function)
    return module.with_function("main", narrow_states(main, with_shared=options.io != "user"))
