"""The verbs that compile, on the digits example and small models; the host stands in for a board."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aot.ir import parse
from tests.cli.boards import small_board
from tests.cli.helper import Cli
from tests.work import calls

ROOT = Path(__file__).resolve().parent.parent.parent
DIGITS = ROOT / "examples" / "digits"
MODEL = DIGITS / "digits.tflite"
MODELS = ROOT / "tests" / "models"
SMALL = MODELS / "graph_pad_then_conv.tflite"
SLIDING = MODELS / "net_kws_dscnn.tflite"
TOO_LARGE = MODELS / "net_ad_autoencoder.tflite"  # 270 KB of constants: more than the flash of the microbit

needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_qemu = pytest.mark.skipif(
    shutil.which("qemu-system-arm") is None or shutil.which("arm-none-eabi-gcc") is None,
    reason="arm-none-eabi-gcc or qemu-system-arm is not installed",
)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_check_tells_memory_and_boards(cli: Cli) -> None:
    done = cli("check", MODEL, "--json")
    assert done.code == 0
    found = done.json
    assert found["ok"]
    assert found["inputs"][0]["shape"] == [1, 8, 8, 1]
    assert found["liveness_bound"] >= found["streaming_bound"] > 0
    assert {b["board"] for b in found["boards"] if b["fits"] == "likely"} >= {"host", "microbit", "mps2-an386"}
    assert "microbit" in cli("check", MODEL).out
    found = cli("check", MODEL, "--board", "host", "--json").json
    assert found["workspace_bytes"] > 0
    assert {b["board"] for b in found["boards"] if b["fits"]} >= {"host", "microbit", "mps2-an386"}


@pytest.mark.slow
def test_check_of_a_model_that_does_not_fit_exits_4(cli: Cli) -> None:
    done = cli("check", TOO_LARGE, "--board", "microbit")
    assert done.code == 4
    assert done.err.startswith("E2011 ")
    assert cli("check", TOO_LARGE, "--target", "cortex-m0").code == 0


REJECTED = sorted(
    m["name"] for m in json.loads((MODELS / "MANIFEST.json").read_text())["models"] if m["expected"].startswith("rejected")
)


@pytest.mark.parametrize("name", REJECTED)
def test_malformed_and_unsupported_models_exit_3(cli: Cli, name: str) -> None:
    (path,) = MODELS.rglob(f"{name}.tflite")
    for verb in ("check", "compile"):
        done = cli(verb, path)
        assert done.code == 3, done.err
        assert done.err.startswith("E1")
        assert "Traceback" not in done.err
    assert not Path("out").exists()
    found = cli("check", path, "--json").json
    assert found["exit_code"] == 3
    assert found["problems"]


def test_compile_writes_sources_metadata_and_report(cli: Cli) -> None:
    done = cli("compile", MODEL, "--json")
    assert done.code == 0, done.err
    folder = Path("out/digits")
    written = files_of(folder)
    assert set(written) == set(done.json["files"])
    assert {"digits.h", "digits.c", "digits_kernels.c", "digits_params.c", "metadata.json", "report.json"} <= set(written)
    metadata = json.loads(written["metadata.json"])
    assert metadata == done.json["metadata"]
    report = json.loads(written["report.json"])
    assert report["workspace_bytes"] == metadata["workspace"]["size"]
    assert len(report["layers"]) == len(metadata["layers"])
    assert str(Path.cwd()).encode() not in b"".join(written.values())


@needs_gcc
def test_compiled_sources_need_nothing_but_the_folder(cli: Cli) -> None:
    assert cli("compile", MODEL, "-n", "net", "-o", "c", "--target", "host").code == 0
    flags = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-Iinclude"]
    subprocess.run(["gcc", *flags, "-c", "net.c", "net_kernels.c", "net_params.c"], cwd="c", check=True)


@pytest.mark.slow
def test_compile_is_the_same_anywhere_and_with_any_hash_seed(cli: Cli, tmp_path: Path) -> None:
    """This process has a random seed of its own; the other one stands in another folder."""
    assert cli("compile", MODEL, "-o", "out", "-q").code == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    command = [sys.executable, "-m", "aot", "compile", str(MODEL), "-o", "again", "-q"]
    subprocess.run(command, check=True, cwd=elsewhere, env={**os.environ, "PYTHONHASHSEED": "4711"})
    assert files_of(Path("out")) == files_of(elsewhere / "again")


def test_compile_does_not_overwrite(cli: Cli) -> None:
    assert cli("compile", MODEL, "-o", "c", "-n", "one").code == 0
    Path("c/mine.txt").write_text("mine", encoding="utf-8")
    again = cli("compile", MODEL, "-o", "c", "-n", "two")
    assert again.code == 2
    assert again.err.startswith("E5004 ")
    assert Path("c/one.h").exists()
    assert cli("compile", MODEL, "-o", "c", "-n", "two", "--force").code == 0
    assert not Path("c/one.h").exists()
    assert Path("c/two.h").exists()


def test_compile_that_does_not_fit_writes_nothing(cli: Cli, tmp_path: Path) -> None:
    done = cli("compile", MODELS / "max_pool.tflite", "--board", small_board(tmp_path, 50), "-o", "c")
    assert done.code == 4
    assert not Path("c").exists()


def test_compile_takes_limited_work(cli: Cli) -> None:
    """As calls of functions."""
    calls(lambda: cli("compile", MODEL, "-q", "-n", "never_compiled_before", "-o", "c"), most=1_500_000)
    assert Path("c/never_compiled_before.h").is_file()


@pytest.mark.slow
def test_dump_in_every_form(cli: Cli) -> None:
    relay = cli("dump", MODEL, "--format", "relay").out
    assert "@main(" in relay
    assert "nn.conv2d" in relay
    whole = cli("dump", MODEL, "--format", "tir").out
    assert "prim_func @digits_run(" in whole
    assert "call @digits_" in whole
    tir = cli("dump", MODEL, "--format", "tir", "--after", "simplify").out
    layers = {"conv2d", "depthwise_conv2d", "max_pool2d", "dense", "softmax"}
    assert all(f"prim_func @{layer}" in tir for layer in layers)
    c = cli("dump", MODEL, "--format", "c").out
    assert "int32_t digits_run(" in c


@pytest.mark.slow
def test_dump_stops(cli: Cli) -> None:
    text = cli("dump", SMALL, "--stop-after", "unroll_loop", "--format", "tir").out
    assert "prim_func" in text
    assert text == cli("dump", SMALL, "--stop-after", "UnrollLoop").out
    assert text != cli("dump", SMALL, "--format", "tir").out
    assert "E5030" in cli("dump", SMALL, "--stop-after", "nothing").err
    assert "E5009" in cli("dump", SMALL, "--stop-after", "fuse_ops", "--format", "c").err


def test_dump_is_read_back(cli: Cli) -> None:
    for after in ("fuse_ops", "select_kernels", "aot_lower_main"):
        text = cli("dump", SMALL, "--after", after, "--metadata").out
        assert parse(text).astext(show_meta_data=True) == text


@pytest.mark.slow
def test_dump_all(cli: Cli) -> None:
    made = cli("dump", SMALL, "--all", "steps", "--json").json["files"]
    assert sorted(made) == sorted(str(p) for p in Path("steps").iterdir())
    assert made[0].endswith("00_input.relay")
    assert made[-1].endswith("_aot_lower_main.tir")
    assert "E5004" in cli("dump", SMALL, "--all", "steps").err


def test_compile_verifies_passes(cli: Cli) -> None:
    assert "give the same result after a pass as before it" in cli("compile", SMALL, "--verify-passes").out


@pytest.mark.slow
def test_compile_verifies_the_passes_of_a_window_and_of_a_chain(cli: Cli) -> None:
    Path("rows.toml").write_text(f'[[stage]]\nmodel = "{SLIDING}"\nslide = 2\n')
    for asked in ((SLIDING, "--slide", "input=2"), ("rows.toml",)):
        made = cli("compile", *asked, "--verify-passes", "--force")
        assert "give the same result after a pass as before it" in made.out, made.err


@pytest.mark.slow
def test_dump_after_each_pass(cli: Cli) -> None:
    passes = cli("dump", SMALL, "--list").out.split()
    assert passes.index("infer_type") < passes.index("fuse_ops") < passes.index("flatten_buffer")
    before = cli("dump", SMALL, "--after", "infer_type", "--json").json
    after = cli("dump", SMALL, "--after", "fuse_ops", "--json").json
    assert before["after"] == "infer_type"
    assert "fn conv2d" not in before["text"]
    assert "fn conv2d" in after["text"]
    assert cli("dump", SMALL, "--after", "nonsense").code == 2
    assert cli("dump", SMALL, "--after", "fuse_ops", "--format", "tir").code == 2


def test_ops_lists_the_operators_of_the_registry(cli: Cli) -> None:
    names = [o["operator"] for o in cli("ops", "--json").json["operators"]]
    expected = (
        "ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEQUANTIZE FULLY_CONNECTED LOGISTIC MAX_POOL_2D MEAN PAD"
    )
    assert set(expected.split()) <= set(names)
    assert names == sorted(names)
    assert "CONV_2D" in cli("ops").out


@needs_gcc
def test_run_classifies_labelled_samples(cli: Cli) -> None:
    arguments = ("run", MODEL, "--board", "host", "--inputs", DIGITS / "test_images.npz", "--labels", DIGITS / "labels.txt")
    found = cli(*arguments, "--json").json
    assert found["samples"] == 100
    assert found["accuracy"] >= 0.95
    text = cli(*arguments).out
    assert f"accuracy  {round(100 * found['accuracy'])}/100" in text
    assert len(found["outputs"][0][0]["values"]) == 10


@needs_gcc
def test_run_takes_images_arrays_and_raw_bytes_alike(cli: Cli) -> None:
    from PIL import Image

    png = DIGITS / "digit_7.png"
    pixels = np.asarray(Image.open(png).convert("L"))
    np.save("pixels.npy", pixels)
    Path("raw.bin").write_bytes((pixels.astype(np.int16) - 128).astype(np.int8).tobytes())
    np.savez("x.npz", x=pixels[None])
    results = [
        cli("run", MODEL, "--board", "host", "--inputs", f, "--json").json["outputs"][0][0]["values"]
        for f in (png, "pixels.npy", "raw.bin", "x.npz")
    ]
    assert all(r == results[0] for r in results)
    assert int(np.argmax(results[0])) == 7
    real = cli("run", MODEL, "--board", "host", "--inputs", "pixels.npy", "--quantize", "always", "--json").json
    assert real["outputs"][0][0]["values"] == results[0]


@needs_gcc
def test_run_refuses_data_of_another_shape(cli: Cli) -> None:
    np.save("x.npy", np.zeros((3, 3), np.uint8))
    done = cli("run", MODEL, "--board", "host", "--inputs", "x.npy")
    assert done.code == 2
    assert done.err.startswith("E5012 ")


@needs_gcc
def test_verify_a_golden_file_on_the_host(cli: Cli) -> None:
    done = cli("verify", MODELS / "add.tflite", "--board", "host", "--inputs", MODELS / "add.golden.npz", "--json")
    assert done.code == 0, done.err
    keys = {
        *("model", "board", "oracle", "opt", "sets", "exact", "max_abs_diff", "first_divergence", "instructions", "macs"),
        *("code_bytes", "constant_bytes", "workspace_bytes", "stack_bytes", "heap_bytes", "layers"),
    }
    assert keys <= set(done.json)
    assert (done.json["sets"], done.json["exact"], done.json["max_abs_diff"]) == (4, True, 0)
    assert done.json["first_divergence"] is None
    assert done.json["workspace_touched"] <= done.json["workspace_bytes"]


@needs_gcc
def test_verify_against_an_engine_or_the_interpreter(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    found = cli("verify", MODEL, "--board", "host", "--random", 2, "--json").json
    assert (found["exact"], found["sets"]) == (True, 2)
    monkeypatch.setattr("aot.report.measure.reference.installed", lambda package: None)
    own = cli("verify", MODEL, "--board", "host", "--random", 2, "--json").json
    assert own["reference"] == "the graph interpreter, as ai-edge-litert is not installed"
    assert own["exact"]


@needs_gcc
def test_verify_exits_5_where_an_output_differs(cli: Cli) -> None:
    golden = dict(np.load(MODELS / "add.golden.npz"))
    golden["out0_1"] = golden["out0_1"].copy()
    golden["out0_1"].flat[3] ^= 1
    np.savez("wrong.npz", **golden)
    done = cli("verify", MODELS / "add.tflite", "--board", "host", "--inputs", "wrong.npz")
    assert done.code == 5
    assert done.err.startswith("E4001 add: 1 of 4 sets differ")
    assert "3/4 sets" in done.out
    found = cli("verify", MODELS / "add.tflite", "--board", "host", "--inputs", "wrong.npz", "--json")
    assert found.code == 5
    assert found.json["first_divergence"]["set"] == 1
    assert found.json["first_divergence"]["element"] == 3
    assert found.json["max_abs_diff"] == 1


def test_verify_without_the_emulator_exits_6(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOT_ARM_NONE_EABI_GCC", "nowhere/gcc")
    done = cli("verify", MODEL, "--board", "mps2-an386")
    assert done.code == 6
    assert done.err.startswith("E3001 ")
    assert "apt-get install" in done.err


@pytest.mark.qemu
@needs_qemu
def test_verify_on_a_board_tells_everything(cli: Cli) -> None:
    found = cli("verify", MODEL, "--board", "mps2-an386", "--json").json
    assert found["exact"]
    assert found["heap_bytes"] == 0
    assert 0 < found["stack_bytes"] <= found["stack_bound"]
    assert found["workspace_extent"] <= found["workspace_bytes"]
    timed = [layer["instructions"] for layer in found["layers"]]
    assert all(n > 0 for n in timed)
    assert sum(timed) <= found["instructions"] <= sum(timed) + 500
    text = cli("verify", MODEL, "--board", "mps2-an386").out
    assert "4/4 sets bit-exact" in text
    assert f"{found['instructions']:,} instructions" in text


@pytest.mark.qemu
@needs_qemu
def test_build_makes_firmware(cli: Cli) -> None:
    done = cli("build", MODEL, "--board", "microbit", "-o", "fw", "--json")
    assert done.code == 0, done.err
    assert Path("fw/digits.elf").read_bytes()[:4] == b"\x7fELF"
    assert {"digits.c", "main.c", "board.ld", "metadata.json"} <= {p.name for p in Path("fw").iterdir()}
    assert done.json["code_bytes"] > 0
    Path("fw/notes.txt").write_text("mine", encoding="utf-8")
    assert cli("build", MODEL, "--board", "microbit", "-o", "fw").code == 2
    assert cli("build", MODEL, "--board", "microbit", "-o", "fw", "--force").code == 0


@pytest.mark.qemu
@needs_qemu
def test_run_with_a_profile(cli: Cli) -> None:
    found = cli("run", MODEL, "--inputs", DIGITS / "digit_3.png", "--profile", "--json").json
    assert int(np.argmax(found["outputs"][0][0]["values"])) == 3
    assert all(layer["instructions"] > 0 for layer in found["layers"])


GRAPH = MODELS / "graph_signature.tflite"


@pytest.mark.slow
@needs_gcc
def test_shapes_and_graphs_are_chosen_alike_everywhere(cli: Cli) -> None:
    """`--batch` in check, verify and compile; a choice that the model does not have ends in a usage error."""
    assert cli("check", GRAPH, "--batch", "2", "--json").json["inputs"][0]["shape"][0] == 2
    done = cli("verify", GRAPH, "--board", "host", "--batch", "2", "--random", "1", "--json")
    assert (done.code, done.json["exact"]) == (0, True)
    for option in (("--shape", "nothing=1"), ("--shape", "1,2"), ("--signature", "none"), ("--subgraph", "7")):
        done = cli("check", GRAPH, *option)
        assert (done.code, done.err[:6]) == (2, "E5018 " if option[1] == "1,2" else "E5027 "), option
