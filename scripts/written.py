"""Files that a script writes and a test compares: the common part of `python scripts/X.py [--write]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main(script: str, wanted: Callable[[], Mapping[Path, str]]) -> int:
    """Compare files with their expected content, or write them, as the command line says; exit code 1 if one is out of date."""
    parser = argparse.ArgumentParser(prog=Path(script).name)
    parser.add_argument("--write", action="store_true", help="write what is not current")
    is_written = parser.parse_args().write
    stale = [(p, text) for p, text in wanted().items() if not p.is_file() or p.read_text(encoding="utf-8") != text]
    if is_written:
        for path, text in stale:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return 0
    for path, _ in stale:
        print(f"{path.relative_to(ROOT)} is not current: python scripts/{Path(script).name} --write", file=sys.stderr)
    return 1 if stale else 0
