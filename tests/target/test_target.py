"""Targets as text: what is printed parses again, and what makes no sense is refused."""

from __future__ import annotations

import pytest

from aot.errors import UsageError
from aot.target import Target, target_kinds
from aot.target.cpu import CORES
from aot.target.target import find_target


@pytest.mark.parametrize("core", [*CORES, "cortex-m4+nofpu", "cortex-m33+nodsp+nofpu", "cortex-m55+nomve"])
def test_text_parses_again(core: str) -> None:
    target = Target(core)
    assert Target(str(target)) == target == Target(target) == Target({"kind": "c", "mcpu": core})
    assert hash(Target(str(target))) == hash(target)
    assert target.name == core
    assert target == find_target(core)


@pytest.mark.parametrize(
    ("text", "core"),
    [
        ("c -mcpu=cortex-m4 -mfloat-abi=hard", "cortex-m4"),
        ("c -mcpu=cortex-m4 -mfloat-abi=soft", "cortex-m4+nofpu"),
        ("c -mcpu=cortex-m4 -mfpu=none", "cortex-m4+nofpu"),
        ("c -keys=arm_cpu,cpu -mcpu=cortex-m7 -march=armv7e-m", "cortex-m7"),
        ("c -keys=arm_cpu,cpu -mcpu=host", "host"),
        ("c -keys=cpu -model=host", "host"),
        ("c", "host"),
    ],
)
def test_forms(text: str, core: str) -> None:
    assert Target(text).name == core


def test_printed_form() -> None:
    assert str(Target("c -mcpu=cortex-m4 -mfloat-abi=hard")) == "c -keys=arm_cpu,cpu -mcpu=cortex-m4"
    assert str(Target("host")) == "c -keys=cpu -mcpu=host"
    assert [k.name for k in target_kinds()] == ["c"]
    assert target_kinds()[0].codegen == "target.build.c"


@pytest.mark.parametrize(
    "spec",
    [
        "", " ", "m4", "c cortex-m4", "c -mcpu", "c -mcpu=", "c -mcpu=m4", "c -mcpu=cortex-m4 -mcpu=cortex-m4",
        "llvm -mcpu=cortex-m4",
        "c -mcpu=cortex-m0 -mfloat-abi=hard", "c -mcpu=cortex-m4 -mfloat-abi=firm", "c -mcpu=cortex-m4 -mfpu=fpv5-d16",
        "c -mcpu=cortex-m4 -march=armv6-m", "c -keys=gpu -mcpu=cortex-m4", "c -nonsense=1", "c -mcpu=cortex-m4 -model=host",
        None, 3, {"kind": "x"}, {"mcpu": "z"}, b"c",
    ],
)  # fmt: skip
def test_nonsense(spec: object) -> None:
    with pytest.raises(UsageError, match="E5010"):
        Target(spec)  # type: ignore[arg-type]
