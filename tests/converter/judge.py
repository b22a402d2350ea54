"""What becomes of a converter's model: run by the reference, compiled, and the same bytes over steps of time.

    python -m tests.converter.judge [FOLDER | ARCHIVE.zip ...]       (without: the archives of the repository)
prints the verdict of each model that is not exact, and a table of the classes and kinds.
"""

from __future__ import annotations

import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aot.driver.build import build
from aot.driver.options import Options
from aot.errors import AotError
from aot.frontend.formats import Choice
from aot.frontend.problems import Problems
from aot.frontend.tflite.view import ModelView, SubgraphView, parse
from aot.report.measure.divergence import known_fault
from aot.runtime.module import HostModel, load
from tests.converter.models import ARCHIVES, KINDS_OVER_TIME

Array = np.ndarray[Any, Any]
HIGHEST_INDEX = 5
"""Words and categories of the inputs, as in make.py."""
STEPS = 6


@dataclass(frozen=True)
class Step:
    """One call: of which signature (None: the first graph's), with which inputs, in the order of its subgraph."""

    signature: str | None
    inputs: list[Array]


def steps_for(model: bytes, count: int = STEPS) -> list[Step]:
    """Calls over time, the signatures in turn where a model has several."""
    view = parse(model, Problems())
    assert view is not None
    keys: Sequence[str | None] = [s.key for s in view.signatures] if len(view.signatures) > 1 else [None]
    return [
        Step(key, [draw(np.random.default_rng([n, i]), t) for i, t in enumerate(input_tensors(view, key))])
        for n in range(count)
        for key in keys
    ]


def graph_of(view: ModelView, key: str | None) -> SubgraphView:
    if key is None:
        return view.subgraphs[0]
    return next(view.subgraphs[s.subgraph] for s in view.signatures if s.key == key)


def input_tensors(view: ModelView, key: str | None) -> list[Any]:
    graph = graph_of(view, key)
    return [graph.tensors[i] for i in graph.inputs]


def draw(rng: np.random.Generator, tensor: Any) -> Array:
    """Normal floats, small indices, any codes."""
    dtype, shape = np.dtype(tensor.dtype), tensor.shape
    if dtype.kind == "f":
        return rng.normal(0, 1, shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(dtype)
    if dtype.itemsize > 2:
        return rng.integers(0, HIGHEST_INDEX, shape, dtype=dtype)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def by_reference(model: bytes, steps: Sequence[Step]) -> list[list[Array]]:
    """LiteRT's reference kernels, one interpreter for all steps."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=OpResolverType.BUILTIN_REF, num_threads=1)
    view = parse(model, Problems())
    assert view is not None
    if steps[0].signature is None:
        interpreter.allocate_tensors()
        return [_plain(interpreter, step) for step in steps]
    runners = {s.key: interpreter.get_signature_runner(s.key) for s in view.signatures}
    return [_signed(runners[step.signature or ""], view, step) for step in steps]


def _plain(interpreter: Any, step: Step) -> list[Array]:
    for detail, value in zip(interpreter.get_input_details(), step.inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]


def _signed(runner: Any, view: ModelView, step: Step) -> list[Array]:
    signature = next(s for s in view.signatures if s.key == step.signature)
    graph = view.subgraphs[signature.subgraph]
    fed = dict(zip(graph.inputs, step.inputs, strict=True))
    found = runner(**{name: fed[index] for name, index in signature.inputs})
    values = {index: found[name] for name, index in signature.outputs}
    return [values[i] for i in graph.outputs]


def compiled(model: bytes, steps: Sequence[Step]) -> list[list[Array]]:
    """The generated C on this machine; several signatures are a model each over one state of the caller's."""
    keys = sorted({s.signature or "" for s in steps})
    if keys == [""]:
        host = load(build(model, target="host", name="m"))
        return [host.run(s.inputs) for s in steps]
    hosts: dict[str, HostModel] = {}
    for key in keys:
        options = Options(io="user", choice=Choice(signature=key))
        hosts[key] = load(build(model, target="host", name=key, options=options))
    kept = {key: host for key, host in hosts.items() if "state" in host.metadata}
    state = {"state": next(iter(kept.values())).new_state()} if kept else {}
    return [hosts[key].run(s.inputs, **(state if key in kept else {})) for s in steps for key in (s.signature or "",)]


def same(found: Sequence[Sequence[Array]], wanted: Sequence[Sequence[Array]]) -> bool:
    """Types, shapes and bytes; of floats all NaN are one."""
    pairs = [p for f, w in zip(found, wanted, strict=True) for p in zip(f, w, strict=True)]
    return all(
        (a.dtype, a.shape) == (b.dtype, b.shape)
        and (np.array_equal(a, b, equal_nan=True) and _signs(a, b) if a.dtype.kind == "f" else a.tobytes() == b.tobytes())
        for a, b in pairs
    )


def _signs(a: Array, b: Array) -> bool:
    return bool((np.isnan(a) | (np.signbit(a) == np.signbit(b))).all())


def judge(model: bytes) -> str:
    """ "exact", "not by the reference: …", "refused: …", "differs" or "known fault of the reference"."""
    steps = steps_for(model)
    try:
        wanted = by_reference(model, steps)
    except (RuntimeError, ValueError) as error:
        return "not by the reference: " + str(error).strip().splitlines()[0][:110]
    try:
        found = compiled(model, steps)
    except AotError as error:
        return f"refused: {error.problems[0].code} {error.problems[0].message[:110]}"
    if same(found, wanted):
        return "exact"
    return "known fault of the reference" if wrong_in_the_reference(model) else "differs"


def wrong_in_the_reference(model: bytes) -> bool:
    """Whether an operator of the first graph has a known fault in the reference."""
    view = parse(model, Problems())
    assert view is not None
    graph = view.subgraphs[0]
    return any(op.inputs and known_fault(op.opcode, graph.tensors[op.inputs[0]].dtype, oracle="litert") for op in graph.operators)


def models_in(path: Path) -> Iterator[tuple[str, bytes]]:
    if path.is_dir():
        yield from ((p.name, p.read_bytes()) for p in sorted(path.glob("*.tflite")))
        return
    with zipfile.ZipFile(path) as file:
        yield from ((name, file.read(name)) for name in sorted(file.namelist()))


def report(paths: Sequence[Path]) -> None:
    verdicts: dict[str, Counter[str]] = {}
    for path in paths:
        for name, model in models_in(path):
            kind, verdict = name.split(".")[1], judge(model)
            verdicts.setdefault(kind, Counter())[verdict.split(":")[0]] += 1
            if verdict != "exact":
                print(f"{name:50} {verdict}", flush=True)
    table(verdicts)


def table(verdicts: dict[str, Counter[str]]) -> None:
    columns = sorted(set().union(*verdicts.values()))
    order = [k for k in KINDS_OVER_TIME if k in verdicts] + sorted(set(verdicts) - set(KINDS_OVER_TIME))
    print(f"\n| kind | networks | {' | '.join(columns)} | exact of those that LiteRT runs |\n|{'---|' * (len(columns) + 3)}")
    for kind in (*order, "all"):
        counts = sum(verdicts.values(), Counter()) if kind == "all" else verdicts[kind]
        run = counts.total() - counts["not by the reference"] - counts["known fault of the reference"]
        share = f"{counts['exact']} of {run} ({100 * counts['exact'] / max(run, 1):.1f} %)"
        print(f"| {kind} | {counts.total()} | {' | '.join(str(counts[c]) for c in columns)} | {share} |")


if __name__ == "__main__":
    report([Path(p) for p in sys.argv[1:]] or list(ARCHIVES))
