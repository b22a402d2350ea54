"""The reference of a chain: each stage's own engine on whole windows, and the results handed on by hand.

It knows nothing of how the compiler joins the stages: rows come out of one engine and are collected for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from aot.frontend.chain import Chain, Stage
from aot.frontend.problems import Problems
from aot.frontend.specialize import specialize
from aot.frontend.view import TensorView, parse
from aot.ir.op import Array
from aot.report.measure.windows import moved_windows

RunStage = Callable[[Sequence[Sequence[Array]]], Sequence[Sequence[Array]]]
"""Outputs of each set of inputs, from the start of the state on."""


def run_chain(chain: Chain, engines: Sequence[RunStage], sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The outputs of the last stage for each push; `engines[stage]` runs a stage on whole inputs."""
    stream = np.concatenate([np.ravel(s[0]) for s in sets])
    found: list[list[Array]] = []
    for stage, engine in zip(chain.stages, engines, strict=True):
        given, names = _tensors(stage)
        found = [list(outputs) for outputs in engine([[x] for x in _inputs(stage, given, stream)])]
        number = names.index(stage.output) if stage.output in names else 0
        stream = np.concatenate([np.ravel(outputs[number]) for outputs in found])
    return found


def _tensors(stage: Stage) -> tuple[TensorView, list[str]]:
    """The input of a stage, and the names of its outputs."""
    view = parse(specialize(stage.model), Problems())
    assert view is not None, "a chain that was compiled can be read"
    graph = view.subgraphs[0]
    return graph.tensors[graph.inputs[0]], [graph.tensors[i].name for i in graph.outputs]


def _inputs(stage: Stage, given: TensorView, stream: Array) -> list[Array]:
    """The whole inputs of a stage, one a run, of all elements that it gets."""
    shape = tuple(given.shape)
    if stage.slide is None:
        return list(stream.reshape(-1, *shape))
    axis = stage.axis % len(shape)
    rows = stream.reshape(-1, *shape[:axis], stage.slide, *shape[axis + 1 :])
    zero: Any = 0 if given.quant is None or not len(given.quant.zero_points) else given.quant.zero_points[0]
    assert prod(shape[:axis]) == 1
    return moved_windows(list(rows), shape, axis=axis, zero=zero)
