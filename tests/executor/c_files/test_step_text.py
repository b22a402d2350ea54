"""A run in steps gives the bytes of one run, however it is split: both builds of a model in one program, under the sanitizers."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aot.cli.__main__ import run
from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import AotError
from aot.executor.artifact import Artifact
from aot.executor.c_files import shared_files
from tests.c_tools import INCLUDE, compile_all
from tests.executor.control_nets import control_net
from tests.executor.test_control_flow import doubling
from tests.scale import cases
from tests.stateful import draw_network

ROOT = Path(__file__).resolve().parents[3]
OWN = sorted((ROOT / "tests" / "models").glob("*.tflite"))
OWN = OWN[:: len(OWN) // cases(len(OWN))]
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"
TWO = ROOT / "tests" / "models" / "graph_two_inputs_two_outputs.tflite"
CONV = ROOT / "tests" / "models" / "graph_pad_then_conv.tflite"
SANITIZED = ["-std=c99", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-ffp-contract=off", INCLUDE]
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")

PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include "aot/status.h"
#include "a.h"
#include "b.h"
#define CHECK(x) do { if (!(x)) { printf("line %d in turn %u\n", __LINE__, turn); return 1; } } while (0)
#define ALIGNED __attribute__((aligned(16)))
static unsigned turn, seed = @SEED@u;
static unsigned drawn(void) { return (seed = seed * 1664525u + 1013904223u) >> 8; }
@BUFFERS@
static void fill(void) {
@FILL@
}
static int same(void) { return @SAME@; }
static struct b_inputs in;
static struct b_outputs out;
static int32_t begin(int fed) {
  int32_t status;
  in = (struct b_inputs){@INPUTS@};
  out = (struct b_outputs){@OUTPUTS_B@};
  (void)fed;
@FEED@
  status = b_run_begin(&in, &out);
  memset(&in, 0x5a, sizeof in); /* the run has copies of both */
  memset(&out, 0x5a, sizeof out);
  return status;
}
int main(void) {
@RESET@
  for (turn = 0; turn < @TURNS@u; ++turn) {
    const struct a_inputs a_in = {@INPUTS@};
    const struct a_outputs a_out = {@OUTPUTS_A@};
    int32_t wanted, status;
    unsigned steps = 0, give_up = turn % 4u == 3u ? drawn() % (2u * B_STEPS) : 0xffffffffu;
    fill();
    CHECK(b_run_step() == AOT_ERROR_STATE && b_run_until(9u) == AOT_ERROR_STATE);
    status = begin(turn % 2u == 1u);
    CHECK(status == AOT_OK);
    status = AOT_MORE;
    while (status == AOT_MORE && steps < give_up) {
      CHECK(b_run(&(struct b_inputs){@INPUTS@}, &(struct b_outputs){@OUTPUTS_B@}) == AOT_ERROR_BUSY);
      status = turn % 5u == 0u || drawn() % 2u == 0u ? b_run_step() : b_run_until(drawn() % (4u * B_STEP_MOST));
      ++steps;
    }
    if (status == AOT_MORE) {
      b_run_abort();
      CHECK(b_run_step() == AOT_ERROR_STATE);
@ABORTED@
      continue;
    }
    b_run_abort(); /* nothing to give up */
    wanted = a_run(&a_in, &a_out);
    CHECK(status == wanted);
    CHECK(status != AOT_OK || same());
    if (turn % 3u == 0u) {
      wanted = a_run(&a_in, &a_out);
      status = b_run(&(struct b_inputs){@INPUTS@}, &(struct b_outputs){@OUTPUTS_B@});
      CHECK(status == wanted && (status != AOT_OK || same()));
    }
    if (turn % 7u == 6u) {
      CHECK(begin(0) == AOT_OK);
      (void)b_run_until(drawn() % (2u * B_STEP_MOST));
@ANEW@
    }
  }
  return 0;
}
"""


def buffers(meta: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Declarations of tensors and state, and the statements that draw inputs."""
    lines, fills = [], []
    for t in meta["inputs"]:
        i, kind = t["index"], t["ctype"]
        count = t["size"] // max(1, t["size"] // _elements(t["shape"]))
        lines.append(f"static {kind} x{i}[{max(1, count)}] ALIGNED;")
        value = {
            "float": "(float)(int)(drawn() % 17u) * 0.25f - 2.0f",
            "bool": "drawn() % 2u",
            "int32_t": "(int)(drawn() % 7u) - 2",
        }
        drawn = value.get(kind, f"({kind})drawn()")
        fills.append(f"  for (unsigned i = 0; i < {count}u; ++i) x{i}[i] = ({kind})({drawn});")
    for t in meta["outputs"]:
        lines += [f"static uint8_t {p}{t['index']}[{max(1, t['size'])}] ALIGNED;" for p in ("ya", "yb")]
    if meta.get("stateful") and meta["io"] == "user":
        lines.append("static uint8_t sa[A_STATE_SIZE] ALIGNED, sb[B_STATE_SIZE] ALIGNED;")
    return "\n".join(lines), fills


def _elements(shape: list[int]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def program(meta: Mapping[str, Any], *, turns: int, seed: int) -> str:
    declared, fills = buffers(meta)
    user = bool(meta.get("stateful")) and meta["io"] == "user"
    given = ", ".join(f".{t['c_name']} = x{t['index']}" for t in meta["inputs"]) or "0"

    def results(p: str) -> str:
        fields = [f".{t['c_name']} = (void *)y{p}{t['index']}" for t in meta["outputs"]]
        return ", ".join(fields + ([f".state = s{p}"] if user else [])) or "0"

    feed = ""
    if "feed" in meta:
        size, rows = meta["feed"]["row_size"], meta["feed"]["rows"]
        name = meta["inputs"][0]["c_name"]
        feed = (
            "  if (fed) {\n    if (b_feed_begin() != AOT_OK) return 99;\n"
            "    if (b_run_begin(&(struct b_inputs){0}, &out) != AOT_ERROR_STATE) return 99;\n"
            f"    for (unsigned y = 0; y < {rows}u; ++y) (void)b_feed_row((const void *)((const char *)x0 + y * {size}u));\n"
            f"    in.{name} = 0;\n  }}"
        )  # fmt: skip
    reset = {True: "a_reset(sa); b_reset(sb);", False: "a_reset(); b_reset();"}[user] if meta.get("stateful") else ""
    aborted = reset.partition(" ")[0]  # that of b has been done
    if user:
        aborted += " CHECK(memcmp(sa, sb, sizeof sa) == 0);"
    texts = {
        "SEED": str(seed), "TURNS": str(turns), "BUFFERS": declared, "FILL": "\n".join(fills),
        "SAME": " && ".join(f"memcmp(ya{t['index']}, yb{t['index']}, {t['size']}u) == 0" for t in meta["outputs"]) or "1",
        "INPUTS": given, "OUTPUTS_A": results("a"), "OUTPUTS_B": results("b"), "FEED": feed, "RESET": reset,
        "ABORTED": aborted, "ANEW": reset + (" CHECK(b_run_step() == AOT_ERROR_STATE);" if reset else " b_run_abort();"),
    }  # fmt: skip
    text = PROGRAM
    for name, value in texts.items():
        text = text.replace(f"@{name}@", value)
    return text


def both(model: bytes | Path, options: dict[str, Any]) -> list[Artifact]:
    """The model built plainly and in steps."""
    return [
        compile_model(model, target="host", name=name, options=Options(**options, in_steps=steps)).artifact
        for name, steps in (("a", False), ("b", True))
    ]


def check(
    model: bytes | Path, folder: Path, *, turns: int = 24, seed: int = 1, fault: tuple[str, str] = ("", ""), **options: Any
) -> None:
    folder.mkdir(exist_ok=True)
    """`fault`: a text in the steps, and what stands in its place."""
    artifacts = both(model, options)
    files = shared_files(artifacts) | {"main.c": program(artifacts[0].metadata, turns=turns, seed=seed)}
    for name, text in files.items():
        (folder / name).write_text(text.replace(*fault) if name == "b.c" and fault[0] else text)
    compile_all("gcc", [folder / "b.c"])
    sources = sorted(p.name for p in folder.glob("*.c"))
    done = subprocess.run(
        ["gcc", *SANITIZED, *sources, "-lm", "-o", "p"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[:3000]
    ran = subprocess.run([folder / "p"], capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stdout[-500:] + ran.stderr[:3000]


@pytest.mark.parametrize(
    "options",
    [{}, {"feed_rows": True}, *(pytest.param(o, marks=pytest.mark.slow) for o in ({"io": "user"}, {"share_workspace": True}))],
    ids=["arena", "fed", "user", "shared"],
)
def test_layers(options: dict[str, Any], tmp_path: Path) -> None:
    check(CONV, tmp_path, **options)


@pytest.mark.parametrize("seed", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_branches_and_loops(seed: int, tmp_path: Path) -> None:
    check(control_net(seed), tmp_path, seed=seed, io="user" if seed == 3 else "arena")


@pytest.mark.slow
def test_a_loop_that_is_given_up(tmp_path: Path) -> None:
    check(doubling(), tmp_path, max_iterations=7)


@pytest.mark.parametrize(("seed", "io"), [(3, "user"), pytest.param(2, "arena", marks=pytest.mark.slow)])
def test_state(seed: int, io: str, tmp_path: Path) -> None:
    check(draw_network(seed)[0], tmp_path, seed=seed, io=io)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + cases(100)))
def test_drawn_control_flow(seed: int, tmp_path: Path) -> None:
    opt = ("balanced", "ram", "speed", "size")[seed % 4]
    limit = 3 if seed % 5 == 0 else 1_000_000
    check(control_net(seed), tmp_path, seed=seed, opt=opt, io="user" if seed % 3 == 2 else "arena", max_iterations=limit)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 100 + cases(100)))
def test_drawn_states(seed: int, tmp_path: Path) -> None:
    opt = ("balanced", "ram", "speed", "size")[seed % 4]
    check(
        draw_network(seed)[0],
        tmp_path,
        seed=seed,
        opt=opt,
        io="user" if seed % 3 == 2 else "arena",
        rings=("auto", "slide")[seed % 2],
    )


@pytest.mark.slow
@pytest.mark.parametrize("path", OWN, ids=lambda p: p.stem)
@pytest.mark.parametrize("options", [{}, {"opt": "ram", "io": "user"}, {"feed_rows": True}], ids=["balanced", "ram", "fed"])
def test_own_networks(path: Path, options: dict[str, Any], tmp_path: Path) -> None:
    try:
        check(path, tmp_path, turns=8, **options)
    except AotError as error:
        if "feed_rows" not in options or not all(p.code == "E5054" for p in error.problems):
            raise
        pytest.skip("cannot be fed by rows")


def test_nothing_of_it_without_the_option() -> None:
    plain, steps = both(CONV, {})
    assert "in_steps" not in plain.metadata["options"]
    assert not any("run_step" in text or "AOT_MORE" in text for text in plain.files.values())
    assert "int32_t b_run_step(void);" in steps.files["b.h"]
    assert f"#define B_STEPS {len(steps.metadata['layers'])} " in steps.files["b.h"]


def test_a_wrong_step_is_found(tmp_path: Path) -> None:
    """The comparison itself: a run that leaves a layer out does not pass."""
    with pytest.raises(AssertionError, match="line"):
        check(TWO, tmp_path, turns=2, fault=("at = 2u;", "at = 3u;"))


@pytest.mark.qemu
@pytest.mark.parametrize("options", [[], ["--feed-rows"], ["--io", "user", "--opt", "ram"]], ids=["default", "fed", "ram"])
def test_on_a_board(options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """All steps in a row, as NAME_run calls them: exact, and a step costs next to nothing."""
    spent = {}
    for steps in ([], ["--in-steps"]):
        assert run(["verify", str(DIGITS), "--board", "mps2-an386", "--random", "2", "--json", *options, *steps]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["exact"]
        spent[bool(steps)] = found["instructions"]
    assert 0 < spent[True] - spent[False] < 60 * 16
