"""The bill of materials: every file with its hash and licence, models, compiler; valid CycloneDX, the same bytes each time."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import aot
from aot.report.figures.sbom import FILE, sbom
from aot.system.files import data_folder
from aot.version import __version__
from tests.cli.helper import Cli

ROOT = Path(__file__).resolve().parent.parent.parent.parent
MODELS = ROOT / "tests" / "models"
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def parts(components: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for c in components:
        yield c
        yield from parts(c.get("components", []))


def hashes(document: Mapping[str, Any]) -> dict[str, str]:
    """Path -> SHA-256 of what is listed as a file."""
    return {c["name"]: c["hashes"][0]["content"] for c in parts(document["components"]) if c["type"] == "file"}


def check(folder: Path) -> dict[str, Any]:
    """The document of a folder; it must list every other file with its hash, and none twice."""
    text = (folder / FILE).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    files = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    wanted = {n: hashlib.sha256(p.read_bytes()).hexdigest() for n, p in files.items() if n not in (FILE, "aot-output.json")}
    assert hashes(document) == wanted
    refs = [c["bom-ref"] for c in parts(document["components"])]
    assert len(refs) == len(set(refs))
    (root,) = document["dependencies"]
    assert set(root["dependsOn"]) == {c["bom-ref"] for c in document["components"]}
    assert root["ref"] == document["metadata"]["component"]["bom-ref"]
    validate(text)
    return document


def validate(text: str) -> None:
    """By the schema of CycloneDX, where its library is installed; its main facts in any case."""
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", document["serialNumber"])
    if importlib.util.find_spec("cyclonedx") is not None:
        from cyclonedx.schema import SchemaVersion
        from cyclonedx.validation.json import JsonStrictValidator

        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None


def licence(document: Mapping[str, Any], name: str) -> Any:
    (found,) = (c for c in parts(document["components"]) if c["name"] == name)
    return found.get("licenses")


def test_of_a_model(cli: Cli, tmp_path: Path) -> None:
    assert cli("compile", DIGITS, "-o", tmp_path / "o", "--sbom", "--opt", "ram").code == 0
    document = check(tmp_path / "o")
    (model,) = (c for c in document["components"] if c["type"] == "machine-learning-model")
    assert model["hashes"][0]["content"] == hashlib.sha256(DIGITS.read_bytes()).hexdigest()
    assert licence(document, "digits.c") == [{"license": {"id": "0BSD"}}]
    assert licence(document, "digits_params.c") == [{"license": {"name": "LicenseRef-model"}}]
    assert licence(document, "metadata.json") is None
    (runtime,) = (c for c in document["components"] if c["name"] == "aot-crt")
    assert {c["name"] for c in runtime["components"]} >= {"include/aot/kernel.h", "include/aot/status.h"}
    assert runtime["version"] == document["metadata"]["tools"]["components"][0]["version"] == __version__
    options = {p["name"]: p["value"] for p in document["metadata"]["component"]["properties"]}
    assert options["aot:target"] == "cortex-m4"
    assert options["aot:option:digits:opt"] == "ram"


def test_is_the_same_each_time_and_another_for_another_build() -> None:
    artifact = aot.build(DIGITS)
    first, again = (sbom("x", [artifact.metadata], artifact.files) for _ in range(2))
    other = sbom("x", [artifact.metadata], {**artifact.files, "more.c": "/* SPDX-License-Identifier: MIT OR 0BSD */\n"})
    assert first == again
    assert json.loads(first)["serialNumber"] != json.loads(other)["serialNumber"]
    assert licence(json.loads(other), "more.c") == [{"expression": "MIT OR 0BSD"}]
    validate(other)


def test_a_changed_file_of_the_runtime_is_not_the_runtimes() -> None:
    """It is listed by itself: who reads the bill must not take it for the file that aot brings along."""
    data = (data_folder("crt") / "include" / "aot" / "status.h").read_bytes()
    artifact = aot.build(DIGITS)
    document = json.loads(sbom("x", [artifact.metadata], {"a.h": data, "b.h": data + b"\n"}))
    (runtime,) = (c for c in document["components"] if c["type"] == "library")
    assert [c["name"] for c in runtime["components"]] == ["a.h"]
    assert "b.h" in [c["name"] for c in document["components"]]


def test_of_several_models(cli: Cli, tmp_path: Path) -> None:
    models = [MODELS / "graph_two_inputs_two_outputs.tflite", DIGITS]
    assert cli("compile", *models, "-o", tmp_path / "o", "--sbom", "--share-workspace").code == 0
    document = check(tmp_path / "o")
    found = [c["name"] for c in document["components"] if c["type"] == "machine-learning-model"]
    assert found == [p.name for p in models]


def test_an_archive_has_none(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", DIGITS, "-o", tmp_path / "o.tar", "--format", "mlf", "--sbom")
    assert (done.code, "E5017" in done.err) == (2, True)


@pytest.mark.qemu
def test_of_firmware(cli: Cli, tmp_path: Path) -> None:
    assert cli("build", DIGITS, "-o", tmp_path / "o", "--sbom").code == 0
    document = check(tmp_path / "o")
    assert document["metadata"]["component"]["type"] == "firmware"
    assert [t["name"] for t in document["metadata"]["tools"]["components"]] == ["aot-micro", "arm-none-eabi-gcc"]
    assert "digits.elf" in hashes(document)
