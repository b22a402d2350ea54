"""The front half of the compiler: from a model to its fused graph, with what is known of it before a kernel is."""

from __future__ import annotations

from dataclasses import dataclass

from aot import op as operators
from aot import topi
from aot.driver.byoc import with_partitions
from aot.driver.options import Options
from aot.driver.plugins import load_installed
from aot.driver.slide import Slid, slid
from aot.frontend.tflite import from_tflite
from aot.ir.module import IRModule
from aot.relay.expr import Function
from aot.relay.stored import widened
from aot.relay.transform import pipeline as relay_pipeline
from aot.target.target import Target


@dataclass(frozen=True, slots=True)
class Front:
    """`before`: the main function as the file has it; `main`: fused; `slide`: how inputs move on, where they are windows."""

    before: Function
    main: Function
    slide: Slid | None


def load_registries() -> None:
    """Operators, kernels, and what installed plug-ins add to them."""
    operators.load_all()
    topi.load_all()
    load_installed()


def front(model: bytes | IRModule, cpu: Target, *, name: str, options: Options, most_bytes: int | None = None) -> Front:
    """Read a model whose shapes are known, and run the passes over graphs (ModelError, UnsupportedError).

    `most_bytes`: of rows that are kept with --slide, where that is possible.
    """
    module = model if isinstance(model, IRModule) else from_tflite(model, oracle=options.oracle, name=name)
    before = module["main"]
    assert isinstance(before, Function)
    if options.float16 == "fold":
        module = module.with_function("main", widened(before, "float16"))
    with with_partitions(options.byoc, cpu) as context:
        slide = slid(module, options, opt_level=context.opt_level, most_bytes=most_bytes) if options.slide else None
        module = relay_pipeline(context.opt_level)(module if slide is None else slide.module)
    main = module["main"]
    assert isinstance(main, Function)
    return Front(before, main, slide)
