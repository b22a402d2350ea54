"""Doing something again whenever a file changes: `--watch`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from aot.cli.output import Output, print_problems
from aot.errors import AotError, UsageError

SECONDS = 0.4
"""Between two looks at the files, which must be the same in both: a file that is being written is left alone."""

Stamps = Mapping[Path, tuple[int, int, int] | None]


def stamps(files: Sequence[Path]) -> Stamps:
    """What tells a file from its next version: inode, time and size; None while it is not there."""
    found: dict[Path, tuple[int, int, int] | None] = {}
    for path in files:
        try:
            info = path.stat()
        except OSError:
            found[path] = None
        else:
            found[path] = (info.st_ino, info.st_mtime_ns, info.st_size)
    return found


def wait_for_change(files: Sequence[Path], before: Stamps, *, sleep: Callable[[float], None] = time.sleep) -> Stamps:
    """Return when a file differs from `before`, is there, and has come to rest; the new stamps."""
    last = before
    while True:
        sleep(SECONDS)
        now = stamps(files)
        if now == last and now != before and None not in now.values():
            return now
        last = now


def watch(
    files: Sequence[Path], work: Callable[[bool], None], out: Output, *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Call `work(again)` now and after each change of a file, until interrupted; `again`: it has succeeded before.

    Errors of usage in the first round are raised: to change a file does not cure them.  All others are printed, and the next
    change is waited for.
    """
    again, first = False, True
    while True:
        before = stamps(files)
        try:
            work(again)
            again = True
        except AotError as error:
            if first and isinstance(error, UsageError):
                raise
            print_problems(error.problems, exit_code=error.exit_code, as_json=False)
        first = False
        out.line(f" watching {', '.join(str(p) for p in files)}; Ctrl-C ends")
        out.flush()
        wait_for_change(files, before, sleep=sleep)
