"""Mutations of model files, and a process that feeds them to the front end under a limit of memory.

    python -m tests.frontend.tflite.mutate --count 10000 --seed 0 MODEL...

prints one JSON object: how many mutations parsed, how many were refused by code, and every fault (an exception that is no
AotError, an exit code other than 3, an uncoded problem, E1124, no end within `HANGS` seconds).
The same seed gives the same mutations.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HANGS = 60.0
"""Seconds of processor time after which a mutation, one of which takes some milliseconds, is taken to have no end."""
LIMIT_BYTES = 1 << 30

_WORDS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)


def structure_bytes(data: bytes) -> list[int]:
    """Positions outside the constants' bytes, where a change does more than alter a weight."""
    from aot.frontend.problems import Problems
    from aot.frontend.tflite.view import parse

    view = parse(data, Problems())
    inside = bytearray(len(data))
    for buffer in view.buffers if view is not None else ():
        at = data.find(bytes(buffer)) if len(buffer) > 16 else -1
        if at >= 0:
            inside[at : at + len(buffer)] = b"\1" * len(buffer)
    return [i for i, taken in enumerate(inside) if not taken]


def mutate(data: bytes, rng: random.Random, structure: Sequence[int]) -> bytes:
    """One mutation: flipped bits, replaced bytes or words, swapped or copied blocks, a truncation, an extension."""
    changed = bytearray(data)
    if rng.random() < 0.15:
        return bytes(changed[: rng.randrange(len(changed) + 1)])
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = rng.choice(structure) if rng.random() < 0.8 else rng.randrange(len(changed))
        rng.choice(_CHANGES)(changed, at, rng)
    return bytes(changed)


def _flip_bit(data: bytearray, at: int, rng: random.Random) -> None:
    data[at] ^= 1 << rng.randrange(8)


def _replace_byte(data: bytearray, at: int, rng: random.Random) -> None:
    data[at] = rng.randrange(256)


def _replace_word(data: bytearray, at: int, rng: random.Random) -> None:
    at &= ~3
    data[at : at + 4] = rng.choice(_WORDS).to_bytes(4, "little")[: len(data) - at]


def _nudge_word(data: bytearray, at: int, rng: random.Random) -> None:
    at &= ~3
    word = int.from_bytes(data[at : at + 4], "little") + rng.choice((-8, -4, -1, 1, 4, 8))
    data[at : at + 4] = (word & 0xFFFFFFFF).to_bytes(4, "little")[: len(data) - at]


def _swap_words(data: bytearray, at: int, rng: random.Random) -> None:
    other = rng.randrange(len(data)) & ~3
    at &= ~3
    if max(at, other) + 4 <= len(data):
        data[at : at + 4], data[other : other + 4] = data[other : other + 4], data[at : at + 4]


def _copy_block(data: bytearray, at: int, rng: random.Random) -> None:
    size = rng.choice((4, 16, 64))
    block = data[at : at + size]
    to = rng.randrange(len(data))
    data[to : to + len(block)] = block[: len(data) - to]


_CHANGES: tuple[Callable[[bytearray, int, random.Random], None], ...] = (
    _flip_bit,
    _flip_bit,
    _replace_byte,
    _replace_word,
    _nudge_word,
    _swap_words,
    _copy_block,
)


def examine(data: bytes) -> tuple[list[str], str]:
    """(codes of the problems, what is wrong with the answer or "")."""
    from aot.errors import EXIT_MODEL, AotError
    from aot.errors.explanations import codes as known_codes
    from aot.frontend.tflite import from_tflite

    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, HANGS)
        from_tflite(data)
    except AotError as error:
        codes = [p.code for p in error.problems]
        if error.exit_code != EXIT_MODEL:
            return codes, f"exit code {error.exit_code}: {error}"
        if "E1124" in codes or not set(codes) <= set(known_codes()):
            return codes, str(error)
        return codes, ""
    except BaseException:
        return [], traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return [], ""


def _no_end(*_: object) -> None:
    raise TimeoutError(f"no answer after {HANGS:g} s of processor time")


def run(paths: Sequence[Path], *, count: int, seed: int) -> dict[str, Any]:
    """Examine `count` mutations of the models in turn, in this process."""
    rng = random.Random(seed)
    models = [(p.name, p.read_bytes()) for p in paths]
    structures = [structure_bytes(data) for _, data in models]
    codes: Counter[str] = Counter()
    faults: list[dict[str, Any]] = []
    valid = 0
    signal.signal(signal.SIGVTALRM, _no_end)
    for number in range(count):
        name, data = models[number % len(models)]
        changed = mutate(data, rng, structures[number % len(models)])
        found, fault = examine(changed)
        codes.update(set(found))
        valid += not found and not fault
        if fault:
            faults.append({"model": name, "number": number, "fault": fault})
    return {
        "count": count,
        "seed": seed,
        "valid": valid,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "codes": dict(sorted(codes.items())),
        "faults": faults,
    }


def run_limited(paths: Sequence[Path], *, count: int, seed: int) -> dict[str, Any]:
    """`run` in a process of its own that may use `LIMIT_BYTES` of address space."""
    command = [sys.executable, "-m", "tests.frontend.tflite.mutate", "--count", str(count), "--seed", str(seed), *map(str, paths)]
    root = Path(__file__).parents[3]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, f"the process ended with {done.returncode}: {done.stderr[-2000:]}"
    assert not done.stderr, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Feed mutated models to the front end.")
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", type=int, default=-1, help="write mutation number SAVE to mutation.tflite instead")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    if args.save >= 0:
        _save(args.models, number=args.save, seed=args.seed)
    else:
        print(json.dumps(run(args.models, count=args.count, seed=args.seed), indent=1))


def _save(paths: Sequence[Path], *, number: int, seed: int) -> None:
    rng = random.Random(seed)
    models = [p.read_bytes() for p in paths]
    structures = [structure_bytes(data) for data in models]
    for i in range(number + 1):
        changed = mutate(models[i % len(models)], rng, structures[i % len(models)])
    Path("mutation.tflite").write_bytes(changed)


if __name__ == "__main__":
    main()
