"""What pip installs: the source archive, the wheel made of it, and a compiler that works without the checkout."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer.main

import aot
from aot.cli.app import make_app
from aot.cli.verbs.about import pages
from aot.version import DISTRIBUTION, __version__

ROOT = Path(__file__).resolve().parent.parent
PROGRAM: Any = typer.main.get_command(make_app())
_SEMANTIC = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?")

_INSTALL = """
    python3 -m venv tools
    tools/bin/python -m pip install -qq build
    tools/bin/python -m build --outdir dist clone >build.log
    cp clone/examples/digits/digits.tflite clone/examples/digits/digit_3.png .
    rm -rf clone
    python3 -m venv venv
    venv/bin/python -m pip install -qq dist/*.whl
"""
_USE = """
    aot --version
    aot check digits.tflite
    aot compile digits.tflite -o c
    aot new project digits.tflite
    aot explain E1203
    aot boards nrf52840dk
    aot compile nothing.tflite || test $? = 2
    aot build digits.tflite --board mps2-an386 -o firmware
    aot verify digits.tflite --board host --random 1
    aot report digits.tflite --board host --no-require-reference -o report
    test -s report/report.html
"""


def sh(script: str, *, cwd: Path, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "AOT_"))} | variables
    done = subprocess.run(["sh", "-euc", script], cwd=cwd, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


def committed(*folders: str) -> set[str]:
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in listed.split("\0") if name}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with dist/ and venv/, and without the checkout that they were made of."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    folder = tmp_path_factory.mktemp("distribution")
    sh(f"git -c safe.directory='*' clone -q '{ROOT}' clone", cwd=folder)
    sh(_INSTALL, cwd=folder)
    return folder


def test_the_version_is_semantic() -> None:
    assert _SEMANTIC.fullmatch(__version__)
    released = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert released[0] == "Unreleased"
    assert all(_SEMANTIC.fullmatch(v) for v in released[1:])


def test_the_distribution_has_one_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == DISTRIBUTION
    assert list(project["scripts"]) == ["aot"]


@pytest.mark.slow
def test_the_source_archive_holds_what_a_build_needs(installed: Path) -> None:
    (archive,) = (installed / "dist").glob("*.tar.gz")
    assert archive.name == f"aot_micro-{__version__}.tar.gz"
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert committed("aot", "boards", "crt", "pyproject.toml", "LICENSE", "README.md") - names == set()


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(installed: Path) -> None:
    """Templates, error pages, pages of the report, boards, and the runtime."""
    (archive,) = (installed / "dist").glob("*.whl")
    assert archive.name == f"aot_micro-{__version__}-py3-none-any.whl"
    with zipfile.ZipFile(archive) as wheel:
        every = [name for name in wheel.namelist() if ".dist-info/" not in name]
        names, manual = ({n for n in every if (".data/" in n) is own} for own in (False, True))
        metadata = wheel.read(f"aot_micro-{__version__}.dist-info/METADATA").decode()
    data = {f"aot/_data/{name}" for name in committed("boards", "crt")}
    assert names == committed("aot") | data
    assert manual == {f"aot_micro-{__version__}.data/data/share/man/man1/{page}" for page in pages(PROGRAM)}
    assert "\nLicense-Expression: Apache-2.0\n" in metadata


@pytest.mark.slow
def test_the_installed_compiler_works_alone(installed: Path) -> None:
    said = sh(_USE, cwd=installed, PATH=f"{installed / 'venv' / 'bin'}:{os.environ['PATH']}", HOME=str(installed))
    assert said.startswith(f"aot {__version__}\n")
    assert (installed / "firmware" / "digits.elf").is_file()


@pytest.mark.slow
def test_the_manual_pages_are_installed_with_it(installed: Path) -> None:
    """Where man(1) looks for the programs of an environment whose bin is on the PATH; those that `aot man` prints."""
    folder = installed / "venv" / "share" / "man" / "man1"
    assert {p.name: p.read_text(encoding="utf-8") for p in folder.iterdir()} == pages(PROGRAM)


@pytest.mark.slow
def test_the_installed_compiler_writes_the_same_bytes(installed: Path) -> None:
    text = "import aot, hashlib, json; a = aot.build('digits.tflite')\n"
    text += "print(json.dumps({n: hashlib.sha256(t.encode()).hexdigest() for n, t in a.files.items()}))"
    there = json.loads(sh(f'venv/bin/python -c "{text}"', cwd=installed))
    here = aot.build(installed / "digits.tflite").files
    assert there == {name: hashlib.sha256(content.encode()).hexdigest() for name, content in here.items()}


@pytest.mark.slow
def test_the_doctor_knows_what_the_distribution_needs(installed: Path) -> None:
    found = json.loads(sh("venv/bin/aot doctor --json || test $? = 6", cwd=installed))
    text = json.dumps(found)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for line in project["dependencies"]:
        assert f'"{re.split("[>=]", line)[0]}"' in text
