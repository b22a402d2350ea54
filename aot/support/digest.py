"""Checksums of generated files."""

from __future__ import annotations

import hashlib


def digest(content: str | bytes) -> str:
    """SHA-256 of a file, blind to the line endings that a version control system may change in texts."""
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    if b"\0" not in data:
        data = data.replace(b"\r\n", b"\n")
    return hashlib.sha256(data).hexdigest()
