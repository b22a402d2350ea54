#!/usr/bin/env python3
"""Instructions per multiply-accumulate of networks, and their layers that stand out.

    python scripts/per_mac.py MODEL.tflite ...            on mps2-an386, --opt speed
    python scripts/per_mac.py FOLDER ARCHIVE.zip --opt balanced --kind int8 -j 2
    python scripts/per_mac.py MODEL.tflite --layers       every layer, not only those that stand out

Each network runs once on a random input, is compared with LiteRT's reference kernels, and its layers are counted. A layer is
shown if it needs over 3.5 instructions per MAC, or has no MACs, and has more than 5 % of the network. `moved` is the share of
instructions in layers that only move data, `transposed` the share of those that change its order. Prints Markdown. Exit code 1
if an output differs or a network cannot be compiled. tests/converter/full_size_pytorch.zip has networks of PyTorch.
"""

from __future__ import annotations

import argparse
import sys
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aot.report.measure.verify import Verification

MOST_PER_MAC = 3.5
SHARE = 0.05
"""A layer stands out above both."""

MOVES = frozenset(
    (
        "copy",
        "transpose",
        "pad",
        "concatenate",
        "strided",
        "slice",
        "reshape",
        "split",
        "pack",
        "unpack",
        "gather",
        "depth",
        "to",
        "space",
    )
)
"""Words in the names of kernels that only move data."""


@dataclass(frozen=True, slots=True)
class Job:
    name: str
    model: bytes
    board: str
    opt: str


def models(paths: Sequence[Path], kind: str) -> Iterator[tuple[str, bytes]]:
    """Name and content of files, of the models in folders, and of those in archives; `kind` is a part of the name."""
    for path in paths:
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                files = [(n, archive.read(n)) for n in archive.namelist()]
        else:
            files = [(p.name, p.read_bytes()) for p in (sorted(path.glob("*.tflite")) if path.is_dir() else [path])]
        yield from ((n.removesuffix(".tflite"), data) for n, data in files if not kind or f".{kind}." in n)


def measure(job: Job) -> Verification:
    """One run of a network (AotError: it cannot be compiled, or faults)."""
    from aot.driver.build import build
    from aot.driver.options import Options
    from aot.micro.board import load_board
    from aot.micro.build.project import prepare
    from aot.report.measure.inputs import sets_for
    from aot.report.measure.verify import verify
    from aot.target.target import find_target

    board = load_board(job.board)
    artifact = build(job.model, target=find_target(board.cpu), name="net", options=Options(opt=job.opt))
    sets = sets_for(artifact.metadata, None, 1, oracle="litert")
    return verify(job.model, artifact, prepare(artifact, board), sets)


def tried(job: Job) -> tuple[str, Verification | str]:
    from aot.errors import AotError

    try:
        return job.name, measure(job)
    except AotError as error:
        return job.name, str(error).splitlines()[0]


def words(kernel: str) -> frozenset[str]:
    """The words of a kernel's name: copy, transpose for `generic.copy_transpose(nests=1)`."""
    return frozenset(kernel.partition("(")[0].rpartition(".")[2].split("_"))


def parts(found: Verification) -> tuple[float, float]:
    """The shares of all instructions in layers that only move data, and in those of them that transpose."""
    moves = [(x["instructions"] or 0, words(str(x["kernel"]))) for x in found.layers if words(str(x["kernel"])) <= MOVES]
    total = found.instructions or 1
    return sum(n for n, _ in moves) / total, sum(n for n, kinds in moves if "transpose" in kinds) / total


def summary(name: str, found: Verification | str) -> str:
    """One row for the network."""
    if isinstance(found, str):
        return f"| {name} | {found} | | | | |"
    total = found.instructions or 0
    moved, transposed = parts(found)
    ratio = f"{total / found.macs:.2f}" if found.macs else "-"
    return f"| {name} | {total:,} | {ratio} | {moved:.1%} | {transposed:.1%} | {'exact' if found.exact else 'DIFFERS'} |"


def rows(name: str, found: Verification, *, whole: bool) -> Iterator[str]:
    """Layers that stand out, or all."""
    from aot.support.text import does_of

    total = found.instructions or 1
    for x in found.layers:
        count, macs = x["instructions"] or 0, x["macs"]
        if not whole and (count <= SHARE * total or (macs and count <= MOST_PER_MAC * macs)):
            continue
        size = "x".join(map(str, x["output"]["shape"]))
        ratio = f"{count / macs:.2f}" if macs else "-"
        kernel = str(x["kernel"])
        yield f"| {name} | {x['index']} {does_of(x)} | {size} | {count:,} | {count / total:.1%} | {ratio} | {kernel} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help=".tflite files, folders, or archives of them")
    parser.add_argument("--kind", default="", help="only models with .KIND. in their name")
    parser.add_argument("--board", default="mps2-an386")
    parser.add_argument("--opt", default="speed")
    parser.add_argument("--layers", action="store_true", help="all layers")
    parser.add_argument("-j", "--jobs", type=int, default=1)
    arguments = parser.parse_args()
    from aot.system.executors import local, outcomes

    jobs = [Job(name, data, arguments.board, arguments.opt) for name, data in models(arguments.models, arguments.kind)]
    results = dict(sorted(done for _, done in outcomes(tried, jobs, local(arguments.jobs))))
    print("| network | instructions | per MAC | moved | transposed | outputs |\n|---|--:|--:|--:|--:|---|")
    print("\n".join(summary(n, f) for n, f in results.items()))
    print("\n| network | layer | result | instructions | share | per MAC | kernel |\n|---|---|---|--:|--:|--:|---|")
    for name, verification in results.items():
        if not isinstance(verification, str):
            print("\n".join(rows(name, verification, whole=arguments.layers)) or f"| {name} | none | | | | | |")
    return int(any(isinstance(f, str) or not f.exact for f in results.values()))


if __name__ == "__main__":
    sys.exit(main())
