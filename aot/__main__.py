"""`python -m aot`."""

from __future__ import annotations

from aot.cli.__main__ import main

if __name__ == "__main__":
    main()
