"""The memories that a user names for the workspace and the constants, and what is pinned to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from aot.errors import Problem, UsageError
from aot.support.dataclass import dataclass
from aot.support.memory_pool import Pool
from aot.support.text import did_you_mean


@dataclass(frozen=True, slots=True)
class Pooling:
    """The workspace pools in the user's order, and pins (tensor, pool); `constants` are pools in flash."""

    pools: tuple[Pool, ...] = ()
    pins: tuple[tuple[str, str], ...] = ()
    constants: tuple[Pool, ...] = ()


ONE_POOL = Pooling()
"""No pools: one workspace, wherever the linker puts it."""


_NUMBER = r"0x[0-9A-Fa-f]{1,12}|[0-9]{1,12}"
_POOL = rf"([A-Za-z][A-Za-z0-9_]*)=([0-9]{{1,12}})(K|KiB|M|MiB)?(?:@({_NUMBER}))?(?::([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?))?"


def parse_pool(text: str) -> Pool:
    """Parse `NAME=SIZE@ADDRESS:SPEED`; @ADDRESS and :SPEED are optional, SIZE is like 65536, 64K or 64KiB (E5018)."""
    match = re.fullmatch(_POOL, text)
    if match is None:
        raise UsageError(Problem("E5018", f"pool {text}: give NAME=SIZE@ADDRESS:SPEED, such as DTCM=64K@0x20000000:2"))
    name, size, unit, address, speed = match.groups()
    return Pool(
        name,
        int(size) * {"": 1, "K": 1 << 10, "M": 1 << 20}[(unit or "")[:1]],
        None if address is None else int(address, 0),
        1.0 if speed is None else float(speed),
    )


def _pool_names(names: Sequence[str]) -> str:
    """List the pools, for a message."""
    if not names:
        return "there are no pools: give --pool, or a board that has some"
    return f"the pools are {', '.join(names)}" if len(names) > 1 else f"the only pool is {names[0]}"


def check_pooling(pooling: Pooling) -> None:
    """Raise E5019 if a pool is invalid, two pools share a name or bytes, or a pin names no pool."""
    both = (*pooling.pools, *pooling.constants)
    names = [p.name for p in pooling.pools]
    every = [p.name for p in both]
    problems = [Problem("E5019", p.fault) for p in both if p.fault]
    problems += [Problem("E5019", f"there are two pools {n}") for n in sorted({n for n in every if every.count(n) > 1})]
    problems += [
        Problem("E5019", f"--pin {t}={p}: there is no such pool{did_you_mean(p, names)}; {_pool_names(names)}")
        for t, p in pooling.pins
        if p not in names
    ]
    fixed = sorted((p.address, p.address + p.size, p.name) for p in both if p.address is not None)
    for (_, end, a), (start, _, b) in pairwise(fixed):
        if start < end:
            problems.append(Problem("E5019", f"the pools {a} and {b} share bytes"))
    if problems:
        raise UsageError(*problems)
