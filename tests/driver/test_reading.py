"""Files that a user names are read once, and not without end."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.driver.reading import read_limited, read_named
from aot.errors import UsageError


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_bytes(b"12345")
    assert read_limited(path) == read_limited(path, limit=5) == b"12345"
    named = read_named(path)
    path.write_bytes(b"swapped")
    assert (named.path, named.data) == (path, b"12345")
    with pytest.raises(UsageError, match=r"E5002 .* more than 4 bytes"):
        read_limited(path, limit=4)
    path.write_bytes(b"")
    assert read_limited(path, limit=0) == b""


@pytest.mark.parametrize("name", ["absent", "", "a\0b", "x" * 5000])
def test_what_cannot_be_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="E5001"):
        read_limited(tmp_path / name)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="there is no /dev/zero")
def test_a_device_without_end() -> None:
    with pytest.raises(UsageError, match="E5002"):
        read_limited(Path("/dev/zero"), limit=3_000_000)
