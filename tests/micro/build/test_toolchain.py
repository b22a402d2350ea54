"""The tools that are started."""

from __future__ import annotations

import pytest

from aot.micro.build.toolchain import Tool, short_version


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("arm-none-eabi-gcc (15:12.2.rel1-1) 12.2.1 20221205", "cc 12.2.1"),
        ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0", "cc 12.2.0"),
        ("Debian clang version 14.0.6", "cc 14.0.6"),
    ],
)
def test_short_version(text: str, short: str) -> None:
    assert short_version(Tool("cc", "cc", text)) == short
