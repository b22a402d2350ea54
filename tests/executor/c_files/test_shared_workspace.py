"""Models that share one workspace: alternating runs in one program, and the check that it is not claimed twice."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import UsageError
from aot.executor.artifact import Artifact, check_names
from aot.executor.c_files import shared_files
from aot.micro.board import load_board
from aot.micro.build.project import Places, linker_script
from tests.c_tools import INCLUDE
from tests.cli.helper import Cli
from tests.micro.projects import need

ROOT = Path(__file__).parents[3]
FIRST, SECOND = ROOT / "examples" / "digits" / "digits.tflite", ROOT / "tests" / "models" / "graph_two_inputs_two_outputs.tflite"

PROGRAM = """\
#include <stdio.h>
#include "a.h"
#include "b.h"
#include "aot/status.h"
#include "aot_workspace.h"
#define CHECK(x) do { if (!(x)) { printf("line %d\\n", __LINE__); return 1; } } while (0)
static unsigned long hash(const void *p, unsigned n) {
  unsigned long h = 5381u;
  for (unsigned i = 0; i < n; i++) h = (h * 33u + ((const unsigned char *)p)[i]) & 0xffffffffu;
  return h;
}
static void fill(void *p, unsigned n, unsigned seed) {
  for (unsigned i = 0; i < n; i++) ((unsigned char *)p)[i] = (unsigned char)(seed + i * 37u + (i >> 3));
}
int main(void) {
  const struct a_inputs ai = {0};
  const struct a_outputs ao = {0};
  const struct b_inputs bi = {0};
  const struct b_outputs bo = {0};
  for (unsigned k = 0; k < 4u; k++) {
    fill(a_input_0(), A_INPUT_0_SIZE, k);
    CHECK(a_run(&ai, &ao) == AOT_OK);
    printf("a %lu\\n", hash(a_output_0(), A_OUTPUT_0_SIZE));
    fill(b_input_0(), B_INPUT_0_SIZE, k);
    fill(b_input_1(), B_INPUT_1_SIZE, k + 1u);
    CHECK(b_run(&bi, &bo) == AOT_OK);
    printf("b %lu %lu\\n", hash(b_output_0(), B_OUTPUT_0_SIZE), hash(b_output_1(), B_OUTPUT_1_SIZE));
  }
  CHECK(aot_workspace_claim());
  CHECK(!aot_workspace_claim());
  CHECK(a_run(&ai, &ao) == AOT_ERROR_BUSY && b_run(&bi, &bo) == AOT_ERROR_BUSY);
  aot_workspace_release();
  CHECK(a_run(NULL, &ao) == AOT_OK && a_run(&ai, NULL) == AOT_OK && a_run(&ai, &ao) == AOT_OK);
  return 0;
}
"""


def shared(io: str = "arena") -> list[Artifact]:
    options = Options(share_workspace=True, io="user" if io == "user" else "arena")
    return [compile_model(p, name=n, options=options).artifact for n, p in (("a", FIRST), ("b", SECOND))]


def run(artifacts: list[Artifact], folder: Path) -> str:
    """The program's output."""
    folder.mkdir()
    for name, text in (shared_files(artifacts) | {"main.c": PROGRAM}).items():
        (folder / name).write_text(text)
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-g", INCLUDE]
    sources = sorted(p.name for p in folder.glob("*.c"))
    subprocess.run(["gcc", *flags, *sources, "-o", "program"], cwd=folder, check=True)
    done = subprocess.run([folder / "program"], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fill(size: int, seed: int) -> np.ndarray:
    return np.array([(seed + i * 37 + (i >> 3)) & 255 for i in range(size)], np.uint8)


def digest(array: np.ndarray) -> int:
    h = 5381
    for byte in np.ascontiguousarray(array).tobytes():
        h = (h * 33 + byte) & 0xFFFFFFFF
    return h


@pytest.mark.slow
def test_alternating_runs_give_what_each_model_gives_alone(tmp_path: Path) -> None:
    lines = run(shared(), tmp_path / "c").splitlines()
    exe = {n: compile_model(p, name=n) for n, p in (("a", FIRST), ("b", SECOND))}
    want = []
    for k in range(4):
        for name in "ab":
            arrays = []
            for i, t in enumerate(exe[name].artifact.metadata["inputs"]):
                arrays.append(fill(t["size"], k + i).view(t["dtype"]).reshape(t["shape"]))
            want.append(" ".join([name, *(str(digest(o)) for o in exe[name].interpret(arrays))]))
    assert lines == want


def test_one_workspace_of_the_largest_size() -> None:
    artifacts = shared("user")
    files = shared_files(artifacts)
    sizes = [a.metadata["workspace"]["size"] for a in artifacts]
    assert f"#define AOT_WORKSPACE_SIZE {max(1, *sizes)}u" in files["aot_workspace.h"]
    assert "a_workspace[" not in files["a.c"]
    text = files["a.c"]
    assert text.index("AOT_ERROR_NULL") < text.index("aot_workspace_claim") < text.index("AOT_LAYER")
    assert text.index("AOT_LAYER") < text.index("aot_workspace_release")
    alone = shared_files([compile_model(FIRST, name="a").artifact])
    assert "aot_workspace.h" not in alone
    assert "AOT_ERROR_BUSY" not in alone["a.c"]


def test_two_models_of_one_name_are_refused() -> None:
    artifact = shared()[0]
    with pytest.raises(UsageError, match="different names"):
        shared_files([artifact, artifact])


@pytest.mark.parametrize("name", ["kws_kernels", "kws_params", "kws_internal", "kws_test"])
def test_a_model_called_like_a_file_of_another_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is also the name of files of model kws"):
        check_names(["kws", name])
    check_names([name, f"{name}_x", "kw"])


def test_the_verb_writes_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli = Cli(capsys)
    result = cli("compile", FIRST, SECOND, "--share-workspace", "-o", tmp_path / "o", "--json").json
    names = result["metadata"]["models"]
    assert names == [FIRST.stem, SECOND.stem]
    assert {"aot_workspace.c", f"{names[0]}.c", f"{names[0]}.metadata.json", "include/aot/status.h"} <= set(result["files"])
    sizes = [json.loads((tmp_path / "o" / f"{n}.metadata.json").read_text())["workspace"]["size"] for n in names]
    assert result["metadata"]["workspace"] == {"size": max(sizes), "shared": True}
    separate = cli("compile", FIRST, SECOND, "-o", tmp_path / "s", "--json").json
    assert "aot_workspace.c" not in separate["files"]
    assert cli("compile", FIRST, SECOND, "--name", "x", "-o", tmp_path / "n").code == 2


THREADS = Path(__file__).parent / "threads"
THREADED = {"a": FIRST, "b": ROOT / "tests" / "models" / "graph_pad_then_conv.tflite"}
WAYS = {"locked": 0, "retried": 1, "separate": 2, "in steps": 3}
QEMU = ("-display", "none", "-monitor", "none", "-serial", "none", "-semihosting-config", "enable=on,target=native")


def threads_program(way: str, folder: Path) -> Path:
    """The two models, a scheduler and our start-up code, linked for mps2-an386."""
    board = load_board("mps2-an386")
    options = Options(share_workspace=way != "separate", io="user", in_steps=way == "in steps")
    artifacts = [compile_model(p, name=n, options=options).artifact for n, p in THREADED.items()]
    for name, text in shared_files(artifacts).items():
        (folder / name).write_text(text)
    for file in sorted(THREADS.iterdir()):
        (folder / file.name).write_text(file.read_text())
    (folder / "board.ld").write_text(linker_script(board, Places("SSRAM1", "SSRAM1", "SSRAM23", "SSRAM23"), []))
    crt = ROOT / "crt" / "src"
    sources = [*sorted(folder.glob("*.c")), *(crt / f for f in ("startup.c", "semihosting.c", "memory.c"))]
    flags = [*board.flags, "-O2", "-std=c99", "-Wall", "-Wextra", "-Werror", "-ffreestanding"]
    flags.append("-fno-tree-loop-distribute-patterns")  # or memcpy is made of calls of memcpy
    link = ["-nostdlib", "-Wl,--gc-sections", f"-T{folder / 'board.ld'}", "-lgcc", "-o", str(folder / "p.elf")]
    command = ["arm-none-eabi-gcc", *flags, f"-DWAY={WAYS[way]}", INCLUDE, f"-I{folder}", *map(str, sources), *link]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:3000]
    return folder / "p.elf"


@pytest.mark.qemu
@pytest.mark.parametrize("way", WAYS)
def test_two_threads(way: str, tmp_path: Path) -> None:
    """Two models from two threads that take each other's place every 800 instructions: each gives what it gives alone."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    elf = threads_program(way, tmp_path)
    command = ["qemu-system-arm", "-M", "mps2-an386", "-icount", "shift=0,sleep=off", *QEMU, "-kernel", str(elf)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in (done.stdout + done.stderr).splitlines()]
    said = {name: [int(v, 16) for n, v in rows if n == name] for name in ("a", "b", "switches", "busy")}
    for name, path in THREADED.items():
        exe = compile_model(path, name=name)
        for k, found in enumerate(said[name]):
            infos = exe.artifact.metadata["inputs"]
            given = [fill(t["size"], k + i).view(t["dtype"]).reshape(t["shape"]) for i, t in enumerate(infos)]
            (wanted,) = exe.interpret(given)
            assert found == digest(wanted), (name, k)
    assert len(said["a"]) == len(said["b"]) == 6
    assert said["switches"][0] > 100, "hardly anything was preempted"
    assert (said["busy"][0] > 0) == (way == "retried"), "only without a lock does a run come in between another"
