"""Model Library Format: layout, reproducibility, round trip, and microTVM's names."""

from __future__ import annotations

import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest

from aot.cli.__main__ import run
from aot.driver.build import build
from aot.driver.options import Options
from aot.errors import UsageError
from aot.executor.artifact import Artifact
from aot.micro.new.mlf import artifact_of, pack, unpack
from tests.micro.projects import DIGITS, ROOT, need, sh


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return build(DIGITS)


@pytest.fixture(scope="module")
def data(artifact: Artifact) -> bytes:
    return pack(artifact, relay="def @main() {}\n", epoch=86400)


def test_layout_is_that_of_version_7(data: bytes) -> None:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
    names = [m.name for m in members]
    assert names == sorted(names)
    for path in (
        "metadata.json", "codegen/host/src/digits_lib0.c", "codegen/host/src/digits_lib1.c", "codegen/host/src/digits_lib2.c",
        "codegen/host/include/tvmgen_digits.h", "codegen/host/include/digits.h", "parameters/digits.params", "src/digits.relay",
        "runtime/include/aot/kernel.h", "runtime/src/memory.c",
    ):  # fmt: skip
        assert f"./{path}" in names
    assert {(m.uname, m.uid, m.mtime, m.mode) for m in members} == {("root", 0, 86400, 0o644)}


def test_metadata(data: bytes, artifact: Artifact) -> None:
    metadata = unpack(data).metadata
    assert metadata["version"] == 7
    module = metadata["modules"]["digits"]
    assert module["model_name"] == "digits"
    assert module["export_datetime"] == "1970-01-02 00:00:00Z"
    assert module["executors"] == ["aot"]
    assert module["style"] == "full-model"
    main = module["memory"]["functions"]["main"][0]
    assert main["workspace_size_bytes"] == artifact.metadata["workspace"]["size"]
    assert main["io_size_bytes"] == 74
    assert main["inputs"]["input"] == {"size": 64, "dtype": "int8", "shape": [1, 8, 8, 1], "scale": 1.0, "zero_point": -128}
    operators = module["memory"]["functions"]["operator_functions"]
    assert {o["function_name"] for o in operators} == {layer["function"] for layer in artifact.metadata["layers"]}


def test_round_trip(data: bytes, artifact: Artifact) -> None:
    back = artifact_of(unpack(data))
    assert back.name == artifact.name
    assert dict(back.files) == dict(artifact.files)
    assert back.metadata == json.loads(json.dumps(artifact.metadata))
    assert pack(back, relay="def @main() {}\n", epoch=86400) == data


def test_layers_given_to_a_library(tmp_path: Path) -> None:
    """Its sources and headers are in the archive, and all of it compiles with the two include folders."""
    need("gcc")
    options = Options(byoc=("cmsis-nn",), byoc_path=ROOT / "tests" / "byoc" / "stub")
    artifact = build(ROOT / "tests" / "models" / "net_sww.tflite", options=options)
    archive = pack(artifact, relay="", epoch=0)
    assert dict(artifact_of(unpack(archive)).files) == dict(artifact.files)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(tmp_path, filter="data")
    sources = "codegen/host/src/*.c $(find codegen/host/src/byoc -name '*.c')"
    sh(f"gcc -std=c99 -Icodegen/host/include -Iruntime/include -c {sources}", cwd=tmp_path)


def test_time_comes_from_the_environment_only(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert pack(artifact, relay="") == pack(artifact, relay="", epoch=0)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert pack(artifact, relay="") == pack(artifact, relay="", epoch=1700000000)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(UsageError, match="E5044"):
        pack(artifact, relay="")


@pytest.mark.parametrize("spoil", ["empty", "cut", "version", "text"])
def test_other_files_are_refused(data: bytes, spoil: str) -> None:
    other = {
        "empty": b"",
        "cut": data[:700],
        "version": data.replace(b'"version": 7', b'"version": 6'),
        "text": b"no tar at all" * 100,
    }[spoil]
    assert other != data
    with pytest.raises(UsageError, match="E5045"):
        unpack(other)


def test_an_archive_of_another_tool_is_not_ours(data: bytes) -> None:
    library = unpack(data)
    files = {n: c for n, c in library.files.items() if not n.endswith("_lib1.c")}
    with pytest.raises(UsageError, match="E5045"):
        artifact_of(replace(library, files=files))


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "digits.tar"
    assert run(["compile", str(DIGITS), "--format", "mlf", "-o", str(path), "-q"]) == 0
    first = path.read_bytes()
    assert b"nn.conv2d" in unpack(first).files["src/digits.relay"]
    assert run(["compile", str(DIGITS), "--format", "mlf", "-o", str(path), "-q"]) == 2
    assert run(["compile", str(DIGITS), "--format", "mlf", "-o", str(path), "--force", "-q"]) == 0
    assert path.read_bytes() == first
    path.write_text("mine")
    assert run(["compile", str(DIGITS), "--format", "mlf", "-o", str(path), "--force", "-q"]) == 2
    assert path.read_text() == "mine"
    assert run(["compile", str(DIGITS), "--format", "zip", "-q"]) == 2


MAIN = """\
#include "tvmgen_digits.h"
#include <stdio.h>
#include <string.h>
int main(void) {
  static int8_t input[TVMGEN_DIGITS_INPUT_SIZE], output[TVMGEN_DIGITS_SOFTMAX_7_SIZE];
  struct tvmgen_digits_inputs in = {.input = input};
  struct tvmgen_digits_outputs out = {.softmax_7 = output};
  memset(input, -128, sizeof input);
  const int32_t status = tvmgen_digits_run(&in, &out);
  int sum = 0;
  for (unsigned i = 0; i < sizeof output; i++) sum += output[i] + 128;
  printf("%d %d\\n", (int)status, sum > 200 && sum < 300); /* probabilities: 256 in all, but for rounding */
  return 0;
}
"""


def test_firmware_written_for_microtvm_builds_from_the_archive(data: bytes, tmp_path: Path) -> None:
    need("gcc")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "main.c").write_text(MAIN)
    command = "gcc -std=c99 -Wall -Wextra -Werror -Icodegen/host/include -Iruntime/include codegen/host/src/*.c main.c -o demo"
    assert sh(f"{command} && ./demo", cwd=tmp_path) == "0 1\n"
