#!/usr/bin/env python3
"""Does a plan need more memory with pools than without?  It must not.

    python scripts/pools.py                       the networks of ../shared/models, or of tests/models without that folder
    python scripts/pools.py MODEL... --opt ram    these models in other modes (default: balanced)
    python scripts/pools.py --boards              MLPerf Tiny's networks on every board that has pools
    python scripts/pools.py --minutes 5           as far as that goes

One pool that has as many bytes as the workspace without pools must give the same plan, offset by offset, and so must a large one
beside a small one that is no faster.  The pools of a board must give no more bytes than the board without them.  Exit code 1 if
one does not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aot.driver.build import compile_model
from aot.driver.options import OPTS, Options
from aot.errors import AotError
from aot.memory.memory_pools import ONE_POOL, Pooling
from aot.micro.board import board_names, load_board
from aot.support.memory_pool import Pool

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared" / "models"
TINY = ("mlperf_kws_dscnn_int8", "mlperf_vww_mobilenet_int8", "mlperf_ad01_int8", "mlperf_ic_resnet_int8")
SMALL = 64
"""Bytes of the pool next to the large one."""


def workspace(model: Path, opt: str, pooling: Pooling, target: str = "cortex-m4") -> dict[str, Any]:
    """The plan in metadata.json (AotError if there is none)."""
    options = Options(opt=opt, pooling=pooling)
    plan: dict[str, Any] = compile_model(model, target=target, options=options).artifact.metadata["workspace"]
    return plan


def offsets(plan: dict[str, Any]) -> list[tuple[str, int]]:
    return [(b["name"], b["offset"]) for b in plan["buffers"]]


def differing(model: Path, opt: str) -> Iterator[str]:
    """Differences from the build without pools."""
    plain = workspace(model, opt, ONE_POOL)
    if not plain["size"]:
        return
    large, small = Pool("LARGE", plain["size"]), Pool("SMALL", SMALL)
    for pools in ((large,), (small, large)):
        description = " ".join(f"{p.name}={p.size}" for p in pools)
        try:
            plan = workspace(model, opt, Pooling(pools))
        except AotError as error:
            yield f"{description}: {error}"
            continue
        if plan["size"] > plain["size"]:
            yield f"{description}: {plan['size']:,} bytes instead of {plain['size']:,}"
        elif plain["size"] > SMALL and (offsets(plan), plan["optimal"]) != (offsets(plain), plain["optimal"]):
            yield f"{description}: another plan of {plan['size']:,} bytes"


def worse_boards(model: Path, opt: str) -> Iterator[str]:
    """Boards with pools that take more bytes than without."""
    plain: dict[str, int] = {}
    for name in board_names():
        board = load_board(name)
        if not board.pools:
            continue
        if board.cpu not in plain:
            plain[board.cpu] = workspace(model, opt, ONE_POOL, board.cpu)["size"]
        plan = workspace(model, opt, Pooling(board.pools), board.cpu)
        used = ", ".join(f"{p['name']} {p['used']:,}" for p in plan["pools"])
        print(f"{name} {model.stem} {opt}: {plan['size']:,} B ({used}), {plain[board.cpu]:,} B without pools", flush=True)
        if plan["size"] > plain[board.cpu]:
            yield f"{name}: {plan['size']:,} bytes instead of {plain[board.cpu]:,}"


def models(given: Sequence[Path], *, boards: bool) -> list[Path]:
    if given:
        return list(given)
    if boards:
        return [p for n in TINY if (p := SHARED / "nets" / f"{n}.tflite").exists()]
    shared = [p for folder in ("nets", "derived") for p in sorted((SHARED / folder).glob("*.tflite"))]
    return sorted(shared, key=lambda p: (p.stat().st_size, p)) or sorted((ROOT / "tests" / "models").glob("*.tflite"))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--opt", choices=OPTS, action="append")
    parser.add_argument("--boards", action="store_true")
    parser.add_argument("--minutes", type=float, default=60)
    options = parser.parse_args(arguments)
    end = time.monotonic() + options.minutes * 60
    done, failures, left = 0, 0, 0
    for opt in options.opt or ("balanced",):
        for model in models(options.models, boards=options.boards):
            if time.monotonic() > end:
                left += 1
                continue
            try:
                rows = list((worse_boards if options.boards else differing)(model, opt))
            except AotError as error:
                print(f"{model.stem} is left out: {str(error)[:100]}", file=sys.stderr, flush=True)
                continue
            done += 1
            failures += len(rows)
            for line in rows:
                print(f"FAILED {model.stem} --opt {opt}: {line}", flush=True)
            print(f"{model.stem} --opt {opt}: {'as without pools' if not rows else 'worse'}", file=sys.stderr, flush=True)
    print(f"{done} plans compared, {failures} worse with pools, {left} not reached")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
