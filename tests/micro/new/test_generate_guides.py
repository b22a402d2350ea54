"""The names in the guides from other tools are ours; tests/site runs the commands."""

from __future__ import annotations

import re

from tests.micro.projects import DIGITS, ROOT

GUIDES = sorted((ROOT / "docs").glob("from-*.md"))


def test_guides() -> None:
    assert [g.stem for g in GUIDES] == ["from-edge-impulse", "from-microtvm", "from-tflm", "from-x-cube-ai"]


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
