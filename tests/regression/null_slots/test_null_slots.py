"""`kws_run(NULL, NULL)`: all slots of the workspace; and the call that the README shows, in C and in C++."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import aot
from aot.driver.options import Options
from aot.executor.artifact import Artifact
from aot.micro.build.project import WARNINGS
from aot.system.files import data_folder
from aot.testing.text_model import text_model

ROOT = Path(__file__).parents[3]
KWS = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
GOLDEN = ROOT / "tests" / "models" / "net_kws_dscnn.golden.npz"
INCLUDE = f"-I{data_folder('crt') / 'include'}"
MAIN = """\
#include <stdio.h>
#include <string.h>
#include "kws.h"
#include "aot/status.h"

{before}
static const signed char features[KWS_INPUT_0_SIZE] = {{{features}}};

int main(void) {{
  {fill}
  if ({call} != AOT_OK) return 1;
  for (unsigned i = 0; i < KWS_OUTPUT_0_SIZE; ++i) printf("%d ", kws_output_0()[i]);
  return 0;
}}
"""
FILL = "memcpy(kws_input_0(), features, sizeof features);"
FEED = (
    "(void)kws_feed_begin();\n"
    "  for (unsigned y = 0; y < KWS_FEED_ROWS; ++y) (void)kws_feed_row(&features[y * KWS_FEED_ROW_SIZE]);"
)
STEPS = """\
static int32_t stepped(void) {
  int32_t status = kws_run_begin(NULL, NULL);
  do status = status < 0 ? status : kws_run_step();
  while (status == AOT_MORE);
  return status;
}
"""

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")


def write(artifact: Artifact, folder: Path) -> list[str]:
    """The artifact's files; the names of its sources."""
    for name, text in artifact.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return sorted(name for name in artifact.files if name.endswith(".c"))


def printed(artifact: Artifact, main: str, folder: Path) -> list[int]:
    sources = write(artifact, folder)
    (folder / "main.c").write_text(main, encoding="utf-8")
    command = ["gcc", "-std=c99", "-pedantic", *WARNINGS, "-I.", INCLUDE, "main.c", *sources, "-lm", "-o", "program"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([folder / "program"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    return list(map(int, done.stdout.split()))


@pytest.mark.slow
@needs_gcc
@pytest.mark.parametrize(
    ("options", "fill", "call", "before"),
    [
        ({}, FILL, "kws_run(NULL, NULL)", ""),
        ({}, FILL, "kws_run(&(struct kws_inputs){0}, NULL)", ""),
        ({}, "", "kws_run(&(struct kws_inputs){(const void *)features}, NULL)", ""),
        ({"in_steps": True}, FILL, "kws_run(NULL, NULL)", ""),
        ({"in_steps": True}, FILL, "stepped()", STEPS),
        ({"feed_rows": True}, FEED, "kws_feed_end(NULL)", ""),
        ({"feed_rows": True, "in_steps": True}, FEED, "stepped()", STEPS),
    ],
)
def test_null_stands_for_all_slots(options: dict[str, bool], fill: str, call: str, before: str, tmp_path: Path) -> None:
    artifact = aot.build(KWS, target="host", name="kws", options=Options(**options))
    with np.load(GOLDEN) as golden:
        data, wanted = golden["in0_0"].ravel().tolist(), golden["out0_0"].ravel().tolist()
    main = MAIN.format(features=", ".join(map(str, data)), fill=fill, call=call, before=before)
    assert printed(artifact, main, tmp_path) == wanted


@needs_gcc
def test_a_model_without_inputs(tmp_path: Path) -> None:
    """Nothing reads the first argument then, which is no warning."""
    model = "const a int8[1,2] data=3,4 scale=0.1\nout y int8[1,2] scale=0.1\nMAXIMUM a a -> y version=2"
    artifact = aot.build(text_model(model), target="host", name="kws")
    main = '#include <stdio.h>\n#include "kws.h"\nint main(void) { return kws_run(0, 0) || !printf("%d", kws_output_0()[1]); }'
    assert printed(artifact, main, tmp_path) == [4]


def test_tensors_of_the_user_must_be_given() -> None:
    text = aot.build(KWS, target="host", name="kws", options=Options(io="user")).files["kws.c"]
    assert "if (in == NULL || out == NULL) {\n    return AOT_ERROR_NULL;" in text


@pytest.mark.parametrize("compiler", [("gcc", "-std=c99", "-xc"), ("g++", "-std=c++11", "-xc++")], ids=["C", "C++"])
def test_the_readme_call_compiles(compiler: tuple[str, ...], tmp_path: Path) -> None:
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"needs {compiler[0]}")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(r"<!-- snippet: call -->\n```c\n(.*?)```", readme, re.DOTALL)
    assert found is not None
    includes, _, body = found[1].partition("\n\nmemcpy")
    write(aot.build(KWS, target="host", name="kws"), tmp_path)
    body = body.replace(
        "  const int8_t *scores = kws_output_0();\n", "  const int8_t *scores = kws_output_0();\n  (void)scores;\n"
    )
    text = f"{includes}\nvoid call(const void *features);\nvoid call(const void *features) {{\nmemcpy{body}}}\n"
    (tmp_path / "call.txt").write_text(text, encoding="utf-8")
    command = [*compiler, "-pedantic", "-Wall", "-Wextra", "-Werror", "-I.", INCLUDE, "-c", "call.txt", "-o", "call.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
