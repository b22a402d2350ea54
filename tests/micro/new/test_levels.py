"""Kinds of projects x networks x the five levels of optimisation: built as each tool builds them, bytes compared where they run.

A quarter of them, all with AOT_FULL=1.  All but `rust`, which is for this machine here (test_rust.py has it in QEMU), run in
QEMU.  A pass is of every output byte.  Zephyr sets its own level.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.micro import builders
from tests.micro.new.test_generate_matrix import framework
from tests.micro.projects import DIGITS, ROOT, need, need_arm_cxx, new

LEVELS = ("-O0", "-Og", "-Os", "-O2", "-O3")
KWS = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
NETWORKS = ("kws", "digits", "two models", "streaming with state")

Builder = Callable[..., set[str]]

KINDS: dict[str, tuple[Builder, str]] = {
    "make": (builders.make, "mps2-an386"),
    "cmake": (builders.cmake, "mps2-an386"),
    "pico": (builders.pico, "mps2-an385-v6m"),
    "cmsis": (builders.cmsis, "mps2-an386"),
    "rust": (builders.rust, "mps2-an386"),
    "arduino": (framework, "mps2-an386"),
    "platformio": (framework, "mps2-an386"),
}


def models_of(network: str, folder: Path) -> dict[str, Path]:
    """The models of a network by name; the streaming one keeps a window of what it heard."""
    if network == "streaming with state":
        with zipfile.ZipFile(ROOT / "tests" / "converter" / "over_time.zip") as archive:
            (folder / "delay.tflite").write_bytes(archive.read("delay.int8.tflite"))
        return {"delay": folder / "delay.tflite"}
    every = {"kws": KWS, "digits": DIGITS}
    return every if network == "two models" else {network: every[network]}


def check(folder: Path, kind: str, network: str, level: str) -> None:
    """Make the project, build it at a level and run it: all of its models must pass."""
    need("make", "cmake", "arm-none-eabi-gcc", "qemu-system-arm")
    if kind == "rust":
        need("cargo", "cc", "ar")
    if kind in ("arduino", "platformio"):
        need_arm_cxx()
    if kind == "cmsis":
        pytest.importorskip("yaml", reason="PyYAML is not installed")
    build, board = KINDS[kind]
    models = models_of(network, folder)
    names = [word for name in models for word in ("--name", name)]
    new(folder / "p", *models.values(), *names, "--kind", kind, "--board", board)
    assert build(folder / "p", list(models), board, level=level) == set(models)


def combinations() -> list[tuple[str, str, str]]:
    """All with AOT_FULL=1, else each kind with each network and with each level at least once."""
    every = list(product(KINDS, NETWORKS, LEVELS))
    if os.environ.get("AOT_FULL") == "1":
        return every
    chosen = ((k, i) for k, _ in enumerate(KINDS) for i, _ in enumerate(LEVELS))
    return [(list(KINDS)[k], NETWORKS[(i + k) % len(NETWORKS)], LEVELS[i]) for k, i in chosen]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "network", "level"), combinations())
def test_kind(tmp_path: Path, kind: str, network: str, level: str) -> None:
    check(tmp_path, kind, network, level)


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("kind", "network", "level"),
    [("make", "streaming with state", "-O3"), ("cmake", "digits", "-O0"), ("pico", "digits", "-Og"), ("cmsis", "digits", "-O0")],
)
def test_sample(tmp_path: Path, kind: str, network: str, level: str) -> None:
    check(tmp_path, kind, network, level)
