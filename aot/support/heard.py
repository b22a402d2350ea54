"""What a library written in C says on standard error while it works."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from aot.support.dataclass import dataclass


@dataclass(slots=True)
class Heard:
    """`text`: all words in one line, once the work is over."""

    text: str = ""


@contextmanager
def heard() -> Iterator[Heard]:
    """Standard error of this process goes to `text` instead; not for two threads at once."""
    found = Heard()
    try:
        kept = os.dup(2)
    except OSError:  # there is no standard error
        yield found
        return
    with tempfile.TemporaryFile() as stream:
        os.dup2(stream.fileno(), 2)
        try:
            yield found
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            stream.seek(0)
            found.text = " ".join(stream.read().decode(errors="replace").split())
