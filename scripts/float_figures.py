#!/usr/bin/env python3
"""The cost of float32 layers on a core with an FPU: instructions and estimated cycles per multiply-accumulate, by kind.

    python scripts/float_figures.py                                ../shared/models/nets/*_float.tflite and *_fp32.tflite
    python scripts/float_figures.py model.tflite --layers          each layer too
    python scripts/float_figures.py model.tflite --opt balanced    instructions only, in half the time
    python scripts/float_figures.py model.tflite --opt balanced --board mps3-an547 --fast-float

Instructions are for `--opt balanced`, whose kernels use VMLA (one instruction of three cycles); estimated cycles
(docs/cycles.md) for `--opt speed`.  A network is compiled and run once for each, on one set of inputs; outputs are not
compared (`aot verify` does that).  Prints Markdown: per network the layers and multiply-accumulates of each kind, and the two
figures; then the geometric means over networks, and over layers of at least 1,000 multiply-accumulates.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NETS = ROOT.parent / "shared" / "models" / "nets"
KINDS = {"CONV_2D": "conv", "DEPTHWISE_CONV_2D": "depthwise", "FULLY_CONNECTED": "dense", "TRANSPOSE_CONV": "transposed"}
LEAST = 1000
"""Multiply-accumulates from which on a layer counts in the means over layers."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer's cost; `spent` instructions or cycles."""

    kind: str
    kernel: str
    shape: tuple[int, ...]
    macs: int
    spent: int

    @property
    def each(self) -> float:
        return self.spent / self.macs


def measure(model: Path, board_name: str, opt: str, *, fast_float: bool = False) -> list[Layer]:
    """The float32 layers of a network with instructions, or with `speed` estimated cycles."""
    from aot.driver.build import build
    from aot.driver.options import Options
    from aot.micro.board import load_board
    from aot.micro.build.project import prepare
    from aot.micro.run.runner import run
    from aot.report.figures.cycles import profile_cycles
    from aot.report.measure.inputs import rule_sets

    board = load_board(board_name)
    artifact = build(model, target=board.cpu, name="net", options=Options(opt=opt, fast_float=fast_float))
    layers = [x for x in artifact.metadata["layers"] if _counts(x)]
    if not layers:
        return []
    project, inputs = prepare(artifact, board), rule_sets(artifact.metadata["inputs"], 1).inputs
    counted = {x.index: x.instructions or 0 for x in run(project, inputs, mode="profile").layers}
    if opt != "speed":
        return [_layer(x, counted[x["index"]]) for x in layers]
    functions = frozenset({"net_run", *(x["function"] for x in layers)})
    profile = profile_cycles(project, project.image("measure"), inputs[0], functions=functions, timeout=board.timeout)
    if profile is None:
        raise SystemExit("QEMU's plugin for cycles cannot be built or loaded")
    return [_layer(x, profile.of([x["function"]], counted[x["index"]]) or 0) for x in layers]


def _counts(layer: dict[str, Any]) -> bool:
    return layer["op"] in KINDS and bool(layer["macs"]) and layer["output"]["dtype"] == "float32"


def _layer(layer: dict[str, Any], spent: int) -> Layer:
    return Layer(KINDS[layer["op"]], layer["kernel"], tuple(layer["output"]["shape"]), layer["macs"], spent)


def mean(values: Iterable[float]) -> str:
    """The geometric mean."""
    logs = [log(v) for v in values]
    return f"{exp(sum(logs) / len(logs)):.3f}" if logs else "–"


def per_mac(layers: Sequence[Layer]) -> float:
    return sum(x.spent for x in layers) / sum(x.macs for x in layers)


class Table:
    """Rows of networks, and their means."""

    def __init__(self, opts: Sequence[str]) -> None:
        self._opts = opts
        self._networks: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._layers: dict[tuple[str, str], list[float]] = defaultdict(list)

    def add(self, name: str, found: dict[str, list[Layer]], *, each: bool) -> None:
        for kind in KINDS.values():
            of = {opt: [x for x in found[opt] if x.kind == kind] for opt in self._opts}
            first = of[self._opts[0]]
            if not first:
                continue
            for opt, layers in of.items():
                self._networks[kind, opt].append(per_mac(layers))
                self._layers[kind, opt] += [x.each for x in layers if x.macs >= LEAST]
            _row(name, kind, len(first), sum(x.macs for x in first), [f"{per_mac(of[o]):.3f}" for o in self._opts])
            for group in zip(*of.values(), strict=True) if each else ():
                text = f"{group[0].kernel} {'x'.join(map(str, group[0].shape[1:]))}"
                _row("", text, 1, group[0].macs, [f"{x.each:.3f}" for x in group])

    def means(self) -> None:
        for kind in KINDS.values():
            for text, of in (("networks", self._networks), ("layers", self._layers)):
                counts = len(of[kind, self._opts[0]])
                if counts:
                    _row(f"**mean of {counts} {text}**", kind, "", "", [mean(of[kind, o]) for o in self._opts])


def _row(name: str, kind: str, layers: int | str, macs: int | str, figures: Sequence[str]) -> None:
    print(f"| {name} | {kind} | {layers} | {macs:,} | " if isinstance(macs, int) else f"| {name} | {kind} | | | ", end="")
    print(*figures, sep=" | ", end=" |\n", flush=True)


def networks() -> list[Path]:
    return sorted((*NETS.glob("*_float.tflite"), *NETS.glob("*_fp32.tflite")))


def main() -> int:
    parser = argparse.ArgumentParser(description="float32 layers per multiply-accumulate")
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--opt", choices=("balanced", "speed"), help="only this one")
    parser.add_argument("--fast-float", action="store_true", help="compile with it, for a board with MVE")
    parser.add_argument("--layers", action="store_true", help="each layer too")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from aot.errors import AotError

    opts = [arguments.opt] if arguments.opt else ["balanced", "speed"]
    titles = {"balanced": "instructions per MAC", "speed": "cycles per MAC (speed)"}
    print(f"| network | kind | layers | MACs | {' | '.join(titles[o] for o in opts)} |\n|---|---|--:|--:|{'--:|' * len(opts)}")
    table = Table(opts)
    for model in arguments.models or networks():
        try:
            layers = {opt: measure(model, arguments.board, opt, fast_float=arguments.fast_float) for opt in opts}
            table.add(model.stem, layers, each=arguments.layers)
        except AotError as error:
            print(f"| {model.stem} | {str(error.problems[0])[:90]} |", flush=True)
    table.means()
    return 0


if __name__ == "__main__":
    sys.exit(main())
