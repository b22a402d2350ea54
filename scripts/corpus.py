#!/usr/bin/env python3
"""Verify a corpus of models on boards: every output byte of all golden sets.

    python scripts/corpus.py                            34 models of ../shared/models, or our own without that folder
    python scripts/corpus.py --models tests/models      another folder
    python scripts/corpus.py --only kws --boards host   a part
    python scripts/corpus.py --integer --boards mps2-an386 --table FILE.md
                                                        all integer, recurrent, stateful and branching models of the shared corpus
    python scripts/corpus.py --every --opt speed --boards host-trapv,host-trapv:cortex-m3
                                                        every model, as C on this machine that aborts if a signed sum overflows:
                                                        the kernels of the host, and the portable forms of a core's kernels

Exit code 1 if a byte differs or something failed; a model that is too large for a board, or that leaves the shapes of its inputs
open, is refused, which is listed but is not a failure.  scripts/delta.py shows whether a figure has become worse.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SANITIZED = "host-sanitized"
TRAPPING = "host-trapv"
"""With the kernels of the host, or with `:CPU` the portable forms of a core's kernels."""
BOARDS = ("host", SANITIZED, "mps2-an385", "mps2-an386", "mps2-an500", "mps2-an505", "mps3-an547")
SHARED = (
    "mlperf_ad01_int8", "mlperf_ic_resnet_int8", "mlperf_kws_dscnn_int8", "mlperf_vww_mobilenet_int8", "mlperf_sww_int8",
    "hello_world_int8", "micro_speech_quantized", "person_detect", "tinymaix_mnist_valid_int8",
    "tinymaix_mnist_resnet_int8", "tinymaix_cifar10_int8", "mnist_conv_fc_int8", "silabs_image_example1_int8",
    "silabs_fingerprint_int8", "silabs_people_flow_int8", "arm_kws_ds_cnn_s_int8", "micro_kws_m_int8",
    "mlperf_ad_toycar_int8_float_io", "mcunet_320kb_imagenet_int8", "tinyengine_vww_int8", "tinyengine_detection_int8",
    "emza_ssd_slim_int8", "emza_yolo_fastest_320_int8",
    # over time: state, recurrent layers, signal operators, branches and loops
    "audio_preprocessor_int8", "dtln_noise_suppression_int8", "keyword_scrambled_8bit", "micro_speech_lstm_int8",
    "mnist_lstm_int8", "gen_bilstm_float", "gen_gru_while_float", "gen_if_float", "gen_svdf_int8", "lstm_full_int8",
    "while_nested",
)  # fmt: skip
WATCHED = ("instructions", "code_bytes", "constant_bytes", "workspace_bytes", "stack_bytes")


@dataclass(frozen=True, slots=True)
class Row:
    """A model on a board: `verdict` is exact, known fault, refused, DIFFERS or FAILED; `figures` those of WATCHED."""

    model: str
    board: str
    oracle: str
    verdict: str
    detail: str
    seconds: float
    figures: dict[str, int]

    @property
    def key(self) -> str:
        return f"{self.model}@{self.board}" + ("" if self.oracle == "litert" else f" {self.oracle}")

    @property
    def ok(self) -> bool:
        return self.verdict in ("exact", "known fault", "refused")


def verify_model(path: Path, boards: Sequence[str], oracle: str, opt: str = "balanced") -> list[Row]:
    """One model on some boards; compiled once per core."""
    from aot.driver.build import build
    from aot.driver.options import Options

    rows = []
    oracle = "tflm" if b"Signal" in path.read_bytes() else oracle  # LiteRT has no signal operators
    artifacts: dict[str, Any] = {}

    def compiled(cpu: str) -> Any:
        if cpu not in artifacts:
            artifacts[cpu] = build(path, target=cpu, options=Options(oracle=oracle, opt=opt))
        return artifacts[cpu]

    for board in boards:
        start = time.monotonic()
        verdict, detail, figures = _verify_on(path, board, compiled, oracle)
        rows.append(Row(path.stem, board, oracle, verdict, detail, time.monotonic() - start, figures))
    return rows


def _verify_on(path: Path, board_name: str, compiled: Any, oracle: str) -> tuple[str, str, dict[str, int]]:
    from aot.errors import AotError, TargetError
    from aot.micro.board import load_board
    from aot.micro.build.project import prepare
    from aot.report.measure.inputs import golden_sets, open_npz
    from aot.report.measure.verify import verify

    golden = path.with_name(f"{path.stem}.golden.npz")
    try:
        variant, _, cpu = board_name.partition(":") if board_name.startswith(TRAPPING) else (board_name, "", "")
        board = load_board("host" if variant in (SANITIZED, TRAPPING) else board_name)
        artifact = compiled(cpu or board.cpu)
        meta = artifact.metadata
        sets = golden_sets(open_npz(golden), golden, inputs=meta["inputs"], outputs=meta["outputs"], oracle=oracle)
        traps = ("-ftrapv",) if variant == TRAPPING else ()
        project = prepare(artifact, board, sanitize=variant == SANITIZED, extra_flags=traps)
        outcome = verify(path.read_bytes(), artifact, project, sets, profile=False, timeout=600)
    except TargetError as error:
        return "refused", "; ".join(p.message for p in error.problems), {}
    except AotError as error:
        is_open = all(p.code == "E1214" for p in error.problems)  # the file leaves the shapes of its inputs to the user
        return "refused" if is_open else "FAILED", str(error), {}
    except Exception as error:  # one model's fault must not affect the others
        return "FAILED", f"{type(error).__name__}: {error}", {}
    figures = {k: v for k in WATCHED if (v := getattr(outcome, k)) is not None}
    if outcome.exact:
        over = outcome.workspace_bytes - outcome.workspace_liveness_bound
        return "exact", f"{outcome.sets} sets, {outcome.macs} MAC, workspace {over:+d} B to its bound", figures
    if outcome.known_fault is not None:
        return "known fault", f"of the reference kernels, which made the golden file: {outcome.known_fault}", figures
    return (
        "DIFFERS",
        f"{outcome.sets - outcome.sets_exact} of {outcome.sets} sets by {outcome.max_abs_diff}: {outcome.first_divergence}",
        figures,
    )


def integer_models(folder: Path, only: str) -> Iterator[Path]:
    """The models of the shared manifest that are integer, keep a state, branch or loop."""
    sys.path.insert(0, str(ROOT))
    from tests.corpus.test_corpus import belongs

    entries = json.loads((folder / "MANIFEST.json").read_text(encoding="utf-8"))["models"]
    return (folder / e["file"] for e in entries if belongs(e) and only in e["name"])


def every_model(folder: Path, only: str) -> Iterator[Path]:
    """All models with a golden file, in the folder and those in it."""
    paths = sorted(p for pattern in ("*.tflite", "*/*.tflite") for p in folder.glob(pattern))
    return (p for p in paths if only in p.stem and p.with_name(f"{p.stem}.golden.npz").exists())


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """A Markdown table: a line for each model and board."""
    head = ["model", "result", "instructions", "code B", "constants B", "workspace B", "stack B"]
    lines = [f"| {' | '.join(head)} |", "|---|---|" + "--:|" * (len(head) - 2)]
    for row in rows:
        figures = [f"{row.figures[k]:,}" if k in row.figures else "" for k in WATCHED]
        note = row.verdict if row.verdict == "exact" else f"{row.verdict}: {row.detail}".replace("|", "/")
        lines.append(f"| {row.model} | {note} | {' | '.join(figures)} |")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def find_models(folder: Path, only: str) -> Iterator[Path]:
    """The corpus of the issue in a folder that has `nets`, else every model there with a golden file."""
    if (folder / "nets").is_dir():
        places = {p.stem: p for p in sorted(folder.glob("*/*.tflite"))}
        paths = [places[name] for name in SHARED]
    else:
        paths = [p for p in sorted(folder.glob("*.tflite")) if p.with_name(f"{p.stem}.golden.npz").exists()]
    return (p for p in paths if only in p.stem)


def _print_table(rows: Sequence[Row], boards: Sequence[str]) -> None:
    from aot.cli.output import format_table

    by_key = {(r.model, r.oracle, r.board): r for r in rows}
    table = []
    for model, oracle in dict.fromkeys((r.model, r.oracle) for r in rows):
        cells = [by_key.get((model, oracle, b)) for b in boards]
        shown = [
            "" if c is None else f"{c.figures['instructions']:,}" if "instructions" in c.figures and c.ok else c.verdict
            for c in cells
        ]
        m4 = by_key.get((model, oracle, "mps2-an386"))
        extra = [m4.figures.get(k) for k in WATCHED[1:]] if m4 is not None else [None] * 4
        table.append([model + ("" if oracle == "litert" else f" ({oracle})"), *shown, *extra])
    print("\n".join(format_table(["model", *boards, "code M4", "const", "workspace", "stack"], table)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shared = ROOT.parent / "shared" / "models"
    parser.add_argument("--models", type=Path, default=shared if shared.is_dir() else ROOT / "tests" / "models")
    parser.add_argument("--boards", default=",".join(BOARDS))
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--oracle", choices=("litert", "tflm"), default="litert")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1500, metavar="SECONDS")
    parser.add_argument(
        "--integer",
        action="store_true",
        help="all integer, recurrent, stateful and branching models",
    )
    parser.add_argument("--every", action="store_true", help="all models that have a golden file")
    parser.add_argument("--opt", choices=("speed", "balanced", "size", "ram"), default="balanced")
    parser.add_argument("--table", type=Path, help="write a Markdown table of all rows to this file")
    parser.add_argument("--json", type=Path, help="write all rows to this file")
    return parser.parse_args()


def run(paths: Sequence[Path], boards: Sequence[str], *, oracle: str, opt: str, processes: int, limit: float) -> list[Row]:
    """All models on all boards, largest files first; what is not done at the limit is FAILED."""
    rows: list[Row] = []
    deadline = time.monotonic() + limit
    with ProcessPoolExecutor(processes) as pool:
        jobs = {pool.submit(verify_model, p, boards, oracle, opt): p for p in sorted(paths, key=lambda p: -p.stat().st_size)}
        try:
            for job in as_completed(jobs, timeout=limit):
                rows += job.result()
                print(f"{len(rows) // len(boards)}/{len(paths)} {jobs[job].stem}", file=sys.stderr)
        except TimeoutError:
            left = [p for job, p in jobs.items() if not job.done()]
            for job in jobs:
                job.cancel()
            rows += [Row(p.stem, b, oracle, "FAILED", f"not done after {limit:g} s", limit, {}) for p in left for b in boards]
    assert time.monotonic() < deadline + 600
    order = {p.stem: i for i, p in enumerate(paths)}
    return sorted(rows, key=lambda r: (order[r.model], boards.index(r.board)))


def main() -> int:
    arguments = _arguments()
    boards = arguments.boards.split(",")
    chosen = every_model if arguments.every else integer_models if arguments.integer else find_models
    paths = list(chosen(arguments.models, arguments.only))
    if not paths:
        print(f"no model in {arguments.models}", file=sys.stderr)
        return 1
    rows = run(paths, boards, oracle=arguments.oracle, opt=arguments.opt, processes=arguments.processes, limit=arguments.limit)
    _print_table(rows, boards)
    for row in rows:
        if row.verdict != "exact":
            print(f"{row.verdict} {row.key}: {row.detail}")
    if arguments.table:
        write_table(arguments.table, rows)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")
    counts = {v: sum(r.verdict == v for r in rows) for v in ("exact", "known fault", "refused", "DIFFERS", "FAILED")}
    print(f"{len(paths)} models x {len(boards)} boards: " + ", ".join(f"{n} {v}" for v, n in counts.items()))
    return 0 if all(r.ok for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
