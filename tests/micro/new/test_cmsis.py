"""Solutions and packs for CMSIS-Toolbox and Keil.

cbuild is in no registry that CI reaches: with it on the PATH it builds the solution.  What it would compile is compiled with its
flags and run in QEMU; the files are checked with the published schemas where AOT_CMSIS_SCHEMAS names a folder with them
(common, csolution, cproject and clayer.schema.json, PACK.xsd: `etc` of CMSIS-Toolbox), and by what those schemas say here.
"""

from __future__ import annotations

import json
import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from aot.micro.board import load_board
from aot.micro.new.library import processor, short
from tests.micro.builders import cmsis
from tests.micro.projects import DIGITS, TWO_IO, need, new, sh

TITLE = {"csolution": "p.csolution.yml", "cproject": "p.cproject.yml", "clayer": "aot/aot.clayer.yml"}


def text_of(path: Path) -> Any:
    """YAML with all scalars as text, as CMSIS-Toolbox reads it: `on` and `off` are words."""
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    return yaml.load(path.read_text(), yaml.BaseLoader)


def test_processors() -> None:
    found = {
        b: processor(load_board(b).flags) for b in ("mps2-an385", "mps2-an386", "mps2-an505", "stm32f746g-disco", "rpi-pico")
    }
    assert found == {
        "mps2-an385": {}, "mps2-an386": {"fpu": "sp"}, "mps2-an505": {"fpu": "sp", "trustzone": "off"},
        "stm32f746g-disco": {"fpu": "sp"}, "rpi-pico": {},
    }  # fmt: skip


def test_names_fit_the_pack() -> None:
    assert (short("kws"), short("k"), short("_k")) == ("kws", "model_k", "model__k")
    assert len(short("a" * 40) + " test") <= 32
    assert short("a" * 40) != short("a" * 41)


def test_every_file_is_named_and_every_name_is_a_file(tmp_path: Path) -> None:
    new(tmp_path / "p", DIGITS, TWO_IO, "--kind", "cmsis", "--share-workspace")
    project = tmp_path / "p"
    root = ET.parse(project / "aot.p.pdsc").getroot()
    order = [c.tag for c in root]
    assert order == ["vendor", "name", "description", "url", "releases", "conditions", "components"]
    assert f"{root.findtext('vendor')}.{root.findtext('name')}.pdsc" == "aot.p.pdsc"
    named = [f.attrib["name"] for f in root.iter("file")]
    assert all((project / n).exists() for n in named)
    conditions = {c.attrib["id"] for c in root.iter("condition")}
    assert {c.attrib["condition"] for c in root.iter("component")} <= conditions
    assert all(len(c.attrib["Csub"]) <= 32 for c in root.iter("component"))
    layer = text_of(project / TITLE["clayer"])["layer"]
    sources = [project / "aot" / f["file"] for g in layer["groups"] if g.get("for-context") != ".Release" for f in g["files"]]
    every = sorted(project.glob("aot/models/*.c"))
    assert sorted(sources) == every
    assert {project / n for n in named if n.endswith(".c")} == set(every)
    assert all((project / "aot" / i).is_dir() for i in layer["add-path"])
    solution = text_of(project / TITLE["csolution"])["solution"]
    assert [p["project"] for p in solution["projects"]] == ["p.cproject.yml"]
    assert {b["optimize"] for b in solution["build-types"]} <= {"size", "speed", "balanced", "none", "debug"}


@pytest.mark.qemu
@pytest.mark.parametrize("board", ["mps2-an386", "mps2-an385-v6m"])
def test_glue(tmp_path: Path, board: str) -> None:
    pytest.importorskip("yaml", reason="PyYAML is not installed")
    need("arm-none-eabi-gcc", "qemu-system-arm")
    new(tmp_path / "p", DIGITS, TWO_IO, "--name", "digits", "--name", "pair", "--kind", "cmsis", "--board", board)
    assert cmsis(tmp_path / "p", ["digits", "pair"], board) == {"digits", "pair"}


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an386", "mps3-an547", "rpi-pico"])
def test_published_schemas(tmp_path: Path, board: str) -> None:
    if "AOT_CMSIS_SCHEMAS" not in os.environ:
        pytest.skip("AOT_CMSIS_SCHEMAS does not name a folder with the schemas of CMSIS-Toolbox")
    jsonschema, xmlschema = pytest.importorskip("jsonschema"), pytest.importorskip("xmlschema")
    referencing = pytest.importorskip("referencing")
    schemas = Path(os.environ["AOT_CMSIS_SCHEMAS"])
    new(tmp_path / "p", DIGITS, TWO_IO, "--kind", "cmsis", "--board", board)
    common = referencing.Resource.from_contents(json.loads((schemas / "common.schema.json").read_text()))
    for kind, name in TITLE.items():
        schema = json.loads((schemas / f"{kind}.schema.json").read_text())
        near = f"{schema.get('$id', '').rpartition('/')[0]}/common.schema.json"
        registry = referencing.Registry().with_resources(
            [(u, common) for u in ("common.schema.json", "./common.schema.json", near)]
        )
        checker = jsonschema.validators.validator_for(schema)(schema, registry=registry)
        assert not [e.message for e in checker.iter_errors(text_of(tmp_path / "p" / name))]
    assert not [e.reason for e in xmlschema.XMLSchema(schemas / "PACK.xsd").iter_errors(tmp_path / "p" / "aot.p.pdsc")]


@pytest.mark.slow
def test_cbuild_itself(tmp_path: Path) -> None:
    if shutil.which("cbuild") is None:
        pytest.skip("cbuild (CMSIS-Toolbox) is not installed")
    new(tmp_path / "p", DIGITS, "--kind", "cmsis")
    sh("cbuild p.csolution.yml --packs --context .Release", cwd=tmp_path / "p")
    assert list((tmp_path / "p" / "out").rglob("*.hex"))
