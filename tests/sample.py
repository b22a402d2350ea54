"""A sample of the chosen tests (--sample, --sample-seed): what CI runs of suites that take too long to run whole every time."""

from __future__ import annotations

import os
from hashlib import blake2b

import pytest


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--sample", type=int, default=100, metavar="PERCENT",
                     help="run about so many of the chosen tests, drawn by --sample-seed; AOT_FULL=1 runs all")  # fmt: skip
    parser.addoption("--sample-seed", default="0", help="another sample")


def is_sampled(config: pytest.Config) -> bool:
    """Whether some of the chosen tests are left out."""
    return config.getoption("--sample") < 100 and os.environ.get("AOT_FULL") != "1"


def drawn(name: str, *, percent: int, seed: str) -> bool:
    """Whether a test is in the sample: by its name alone, so that every process and machine draws the same."""
    return int.from_bytes(blake2b(f"{seed}:{name}".encode(), digest_size=4).digest()) % 100 < percent


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not in the sample."""
    if not is_sampled(config):
        return
    percent, seed = config.getoption("--sample"), config.getoption("--sample-seed")
    chosen = {item.nodeid: drawn(item.nodeid, percent=percent, seed=seed) for item in items}
    config.hook.pytest_deselected(items=[item for item in items if not chosen[item.nodeid]])
    items[:] = [item for item in items if chosen[item.nodeid]]
