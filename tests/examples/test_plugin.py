"""The example plug-in, installed as a user would install it, and plug-ins of one file; in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from aot.testing.builder import ModelBuilder

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "examples" / "plugin"


def model_with_mine(count: int = 3) -> bytes:
    """`count` operators Mine one after the other."""
    b = ModelBuilder()
    last = b.tensor("x", (1, 8), scale=0.5, zero_point=0)
    inputs = [last]
    for i in range(count):
        new = b.tensor(f"y{i}", (1, 8), scale=0.5, zero_point=0)
        b.custom_op("Mine", [last], [new])
        last = new
    return b.build(inputs, [last])


def run(*words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """`aot WORDS`, with another folder of packages in front."""
    folders = [str(ROOT), *([str(path)] if path else [])]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    return subprocess.run([sys.executable, "-m", "aot", *words], env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the example package is installed."""
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--target",
        str(folder),
    ]
    copy = tmp_path_factory.mktemp("source")
    for source in PLUGIN.rglob("*"):
        if source.is_file() and source.suffix in (".py", ".toml"):
            target = copy / source.relative_to(PLUGIN)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    done = subprocess.run([*command, str(copy)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip cannot install here: {done.stderr[-300:]}")
    return folder


@pytest.mark.slow
def test_installed_package(installed: Path, tmp_path: Path) -> None:
    model = tmp_path / "mirrors.tflite"
    model.write_bytes(model_with_mine())
    refused = run("check", str(model))
    assert (refused.returncode, "E1210" in refused.stderr) == (3, True)

    compiled = run("compile", str(model), "-o", str(tmp_path / "out"), "--target", "mine-m4", "--json", path=installed)
    assert compiled.returncode == 0, compiled.stderr
    layers = json.loads(compiled.stdout)["metadata"]["layers"]
    assert [layer["kernel"] for layer in layers] == ["mine.words"], "two of three mirrors are dropped by the pass"

    verified = run("verify", str(model), "--board", "host", "--oracle", "mine", "--random", "3", "--json", path=installed)
    assert verified.returncode == 0, verified.stderr
    result = json.loads(verified.stdout)
    assert (result["exact"], result["oracle"]) == (True, "mine")

    assert "mine-m4" in run("boards", path=installed).stdout
    assert "mine-m4" in run("targets", path=installed).stdout
    assert "CUSTOM:Mine" in run("ops", path=installed).stdout
    assert "CUSTOM:Mine" not in run("ops").stdout


@pytest.mark.slow
def test_its_code_generator(installed: Path, tmp_path: Path) -> None:
    """A layer becomes a call of the library, which is built with the rest; bytes as the reference's."""
    model = ROOT / "tests" / "models" / "logistic.tflite"
    words = ("--byoc", "mine", "--byoc-path", str(PLUGIN / "library"), "--json")
    compiled = run("compile", str(model), "-o", str(tmp_path / "out"), *words, path=installed)
    assert compiled.returncode == 0, compiled.stderr
    assert [layer["kernel"] for layer in json.loads(compiled.stdout)["metadata"]["layers"]] == ["mine.look_up"]
    assert "mine_look_up(" in (tmp_path / "out" / "logistic_kernels.c").read_text()
    verified = run("verify", str(model), "--board", "host", "--random", "3", *words, path=installed)
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["exact"]
    assert run("compile", str(model), "-o", str(tmp_path / "no"), "--byoc", "mine").returncode == 2, "without the plug-in"


@pytest.mark.slow
def test_a_pass_of_one_file_runs_in_compile(tmp_path: Path) -> None:
    model = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
    done = run("compile", str(model), "-o", str(tmp_path / "out"), "--plugin", str(PLUGIN / "local_plugin.py"))
    assert done.returncode == 0, done.stderr
    assert " calls\n" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (None, "E5111", "name a Python file"),
        ("1 / 0\n", "E5110", "fails at mine.py:1: ZeroDivisionError"),
        ("import no_such_module\n", "E5110", "ModuleNotFoundError"),
        ("def f(:\n", "E5110", "SyntaxError"),
        ("from aot.ir.op import register_op\nregister_op('nn.conv2d', 1)\n", "E5110", "TypeError"),
        ("from aot.ir.op import reset_op\nreset_op('no.such')\n", "E5101", "mine.py:2"),
        ("from aot.frontend.tflite.convert import from_tflite\nfrom_tflite('CONV_2D', 'int9', '')\n", "E5112", "mine.py:2"),
        ("from aot.frontend.tflite.convert import from_tflite as f, load_all\nload_all()\nf('CONV_2D', 'int8', '')(1)\n",
         "E5102", "mine.py:3"),
        ("from aot.target.cpu import register_core\nregister_core('m4')\n", "E5112", "mine.py:2"),
        ("from aot.driver.oracles import register_oracle\nregister_oracle('litert', len)\n", "E5102", "mine.py:2"),
        ("from aot.driver.oracles import register_oracle\nregister_oracle('a b', 3)\n", "E5112", "mine.py:2"),
    ],
)  # fmt: skip
def test_plug_ins_that_fail(text: str | None, code: str, message: str, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    if text is not None:
        plugin.write_text(text)
    done = run("check", str(ROOT / "tests" / "models" / "net_kws_dscnn.tflite"), "--plugin", str(plugin))
    assert done.returncode == 2, done.stderr
    assert code in done.stderr
    assert message in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_models_are_what_they_should_be() -> None:
    assert np.frombuffer(model_with_mine()[4:8], np.uint8).tobytes() == b"TFL3"
