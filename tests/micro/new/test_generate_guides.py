"""The commands of the guides work."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.micro.projects import DIGITS, ROOT, need, sh

GUIDES = sorted((ROOT / "docs").glob("from-*.md"))


def test_guides() -> None:
    assert [g.stem for g in GUIDES] == ["from-microtvm", "from-tflm", "from-x-cube-ai"]


@pytest.mark.slow
@pytest.mark.parametrize("guide", GUIDES, ids=lambda g: g.stem)
def test_commands(tmp_path: Path, guide: Path) -> None:
    need("gcc")
    if guide.stem == "from-tflm":
        pytest.importorskip("tflite_micro", reason="tflite-micro is not installed")
    block = re.search(r"```sh\n(.*?)```", guide.read_text(), re.DOTALL)
    assert block is not None
    assert block.group(1).count("aot ") == 4
    shutil.copy(DIGITS, tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "aot").write_text(f'#!/bin/sh\nexec env PYTHONPATH={ROOT} {sys.executable} -m aot "$@"\n')
    (tmp_path / "bin" / "aot").chmod(0o755)
    sh(f'PATH="{tmp_path}/bin:$PATH"\n{block.group(1)}', cwd=tmp_path)
    assert (tmp_path / "firmware" / "README.md").is_file()


def test_names_of_our_python_interface_exist() -> None:
    import importlib

    names = {n for g in GUIDES for n in re.findall(r"`(aot(?:\.\w+)+)", g.read_text())}
    assert len(names) >= 3
    for name in names:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute), name


def test_macros_of_the_guides_are_those_of_a_header() -> None:
    from aot.driver.build import build

    header = build(DIGITS).files["digits.h"]
    for guide in GUIDES:
        column = "\n".join(line.split("|")[2] for line in guide.read_text().splitlines() if line.count("|") == 3)
        for name in re.findall(r"\bKWS_\w+|\bkws_(?:run|input_0|output_0)\b", column):
            ours = name.replace("KWS", "DIGITS").replace("kws", "digits")
            assert re.search(rf"\b{ours}\b", header), f"{guide.name}: {name}"
