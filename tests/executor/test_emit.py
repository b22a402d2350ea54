"""The executor: files, interface, metadata and what the compiled model computes."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from aot.errors import InternalError, UsageError
from aot.executor.emit import LoweredOutput, compile_lowered
from aot.executor.lowered import KernelCall, LoweredModule, check_lowered
from aot.executor.metadata import BuildInfo
from aot.runtime.module import load
from aot.target.target import find_target
from tests.c_tools import INCLUDE, command, compile_all, shared_library
from tests.executor.nets import add, dense, dense_params, odd_outputs, odd_reference, small_net, small_reference, tensor

HOST = find_target("host")
INFO = BuildInfo("small.tflite", "ab" * 32)


def build(lowered: LoweredModule, io: str = "arena") -> LoweredOutput:
    return compile_lowered(lowered, target=HOST, io=io, info=INFO)


def random_inputs(exe: LoweredOutput, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(-128, 128, t["shape"]).astype(t["dtype"]) for t in exe.artifact.metadata["inputs"]]


@pytest.mark.parametrize("io", ["arena", "user"])
def test_result_in_c_and_in_the_interpreter(io: str, tmp_path: Path) -> None:
    exe = build(small_net(), io)
    module = load(exe.artifact, cache=tmp_path)
    for seed in range(3):
        (x,) = random_inputs(exe, seed)
        want = small_reference(x)
        np.testing.assert_array_equal(module.run([x])[0], want)
        np.testing.assert_array_equal(exe.interpret([x])[0], want)


@pytest.mark.parametrize("io", ["arena", "user"])
def test_outputs_that_are_inputs_constants_or_the_same(io: str, tmp_path: Path) -> None:
    exe = build(odd_outputs(), io)
    x, w = random_inputs(exe)
    for got in (load(exe.artifact, cache=tmp_path).run([x, w]), exe.interpret([x, w])):
        for a, b in zip(got, odd_reference(x), strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype


@pytest.mark.parametrize("io", ["arena", "user"])
def test_model_without_layers(io: str, tmp_path: Path) -> None:
    x, y = tensor("x", 5), tensor("y", 5, 1)
    exe = build(LoweredModule({}, "nothing", inputs=(x,), outputs=(y, x), views={y: x}), io)
    values = np.arange(5, dtype=np.int8)
    for got in (load(exe.artifact, cache=tmp_path).run([values]), exe.interpret([values])):
        np.testing.assert_array_equal(got[0].reshape(-1), values)
        np.testing.assert_array_equal(got[1], values)
    assert exe.artifact.metadata["workspace"]["size"] == (5 if io == "arena" else 0)


@pytest.mark.parametrize("compiler", ["gcc", "clang", "arm-m4", "arm-m0"])
@pytest.mark.parametrize("io", ["arena", "user"])
def test_files_compile_without_warnings(compiler: str, io: str, tmp_path: Path) -> None:
    for lowered in (small_net(), odd_outputs()):
        files = build(lowered, io).artifact.export(tmp_path)
        compile_all(compiler, [f for f in files if f.suffix == ".c"])
        compile_all(compiler, [tmp_path / f"{lowered.name}.c"], "-DAOT_HOOKS=1")


@pytest.mark.parametrize("io", ["arena", "user"])
def test_header_is_cplusplus_and_stands_alone(io: str, tmp_path: Path) -> None:
    build(odd_outputs(), io).artifact.export(tmp_path)
    source = tmp_path / "use.cpp"
    source.write_text('#include "odd.h"\nint32_t f(odd_inputs *in, odd_outputs *out) { return odd_run(in, out); }\n')
    command("gcc")
    flags = ["-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-c", "-o", str(tmp_path / "o.o")]
    done = subprocess.run(["g++", *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_several_models_link_together(tmp_path: Path) -> None:
    files = [*build(small_net()).artifact.export(tmp_path), *build(odd_outputs()).artifact.export(tmp_path)]
    library = shared_library([f for f in files if f.suffix == ".c"], tmp_path / "both.so")
    assert ctypes.CDLL(str(library)).small_run
    symbols = subprocess.run(["nm", "-g", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {line.split()[-1] for line in symbols.splitlines()} - {"_init", "_fini"}
    assert all(n.startswith(("small_", "odd_", "_")) for n in names), names


def test_equal_functions_and_constants_appear_once() -> None:
    lowered = small_net()
    exe = build(lowered)
    assert [f.name for f in exe.kernels] == ["small_dense_0", "small_add_2"]
    assert [a.name for a in exe.arrays] == ["small_params_0", "small_params_1"]
    exe = build(replace(lowered, constants={name: lowered.constants["dense_1"] for name in ("dense_1", "dense_2")}))
    assert [a.name for a in exe.arrays] == ["small_params_0"]
    assert exe.artifact.metadata["constants"]["size"] == 16 * 20
    assert exe.artifact.files["small.c"].count("small_params_0") == 2


def test_metadata_follows_the_contract() -> None:
    exe = build(small_net())
    meta = json.loads(json.dumps(exe.artifact.metadata))
    assert meta == exe.artifact.metadata
    assert meta["schema"] == "aot-metadata/1"
    assert meta["model"] == {"sha256": "ab" * 32, "file": "small.tflite"}
    assert meta["inputs"] == [
        {
            "index": 0, "name": "input/x", "c_name": "input_x", "shape": [1, 16], "dtype": "int8", "ctype": "int8_t", "size": 16,
            "align": 1, "scale": 0.1, "zero_point": -3,
        }
    ]  # fmt: skip
    assert meta["outputs"][0]["c_name"] == "statefulcall_0"
    assert meta["macs"] == 512
    layer = {k: v for k, v in meta["layers"][1].items() if k != "candidates"}
    assert layer == {
        "index": 1, "function": "small_dense_0", "op": "FULLY_CONNECTED", "does": "FULLY_CONNECTED", "ops": [2],
        "name": "second/*", "kernel": "generic.dense(outputs=16)", "macs": 256, "constants": 320, "scratch": 32,
        "arrays": ["small_params_1"], "output": {"shape": [16], "dtype": "int8", "tensor": -1},
    }  # fmt: skip
    workspace = meta["workspace"]
    assert workspace["size"] == 64
    assert workspace["liveness_bound"] <= 64
    assert {b["kind"] for b in workspace["buffers"]} == {"input", "output", "tensor", "scratch"}
    text = exe.artifact.files["small.h"]
    assert "#define SMALL_WORKSPACE_SIZE 64u\n" in text
    assert "#define SMALL_INPUT_0_SCALE 0.1" in text
    assert "#define SMALL_INPUT_0_SHAPE {1, 16}\n" in text


def test_scale_macro_is_exact() -> None:
    for scale in np.float32([0.1, 1 / 3, 1e-12, 3e38, 2.0]):
        x = tensor("x", 1)
        object.__setattr__(x.type, "quant", replace(x.type.quant, scale=(float(scale),)))
        text = build(LoweredModule({}, "s", inputs=(x,), outputs=(x,))).artifact.files["s.h"]
        literal = text.partition("S_INPUT_0_SCALE ")[2].partition("f\n")[0]
        assert np.float32(literal) == scale


def test_layer_probe_sees_every_layer(tmp_path: Path) -> None:
    exe = build(small_net())
    seen: list[tuple[int, bytes]] = []
    (x,) = random_inputs(exe)
    module = load(exe.artifact, cache=tmp_path)
    (y,) = module.run([x], on_layer=lambda i, data: seen.append((i, data)))
    module.run([x])
    told: list[tuple[int, bytes]] = []
    exe.interpret([x], on_call=lambda i, _name, outputs: told.append((i, bytes(outputs[0]))))
    assert seen == told
    assert [i for i, _ in seen] == [0, 1, 2]
    assert seen[-1][1] == y.tobytes()


def test_interface_of_the_arena(tmp_path: Path) -> None:
    """NULL fields mean the slots, and so does a missing struct; the result is also in the slot."""
    exe = build(small_net())
    module = load(exe.artifact, cache=tmp_path)
    lib = ctypes.CDLL(str(module.library))
    lib.small_input_0.restype = lib.small_output_0.restype = ctypes.c_void_p
    (x,) = random_inputs(exe)
    ctypes.memmove(lib.small_input_0(), x.tobytes(), 16)
    null = (ctypes.c_void_p * 1)(None)
    assert lib.small_run(null, null) == 0
    assert ctypes.string_at(lib.small_output_0(), 16) == small_reference(x).tobytes()
    assert lib.small_run(None, null) == lib.small_run(null, None) == lib.small_run(None, None) == 0


def test_interface_of_user_tensors_checks_pointers(tmp_path: Path) -> None:
    x, y = tensor("x", 4, dtype="int32"), tensor("y", 4, dtype="int32")
    exe = build(LoweredModule({}, "copy", inputs=(x,), outputs=(y,), views={y: x}), "user")
    lib = ctypes.CDLL(str(load(exe.artifact, cache=tmp_path).library))
    memory = np.zeros(16, np.int32)
    good, bad = (ctypes.c_void_p * 1)(memory.ctypes.data), (ctypes.c_void_p * 1)(memory.ctypes.data + 2)
    null = (ctypes.c_void_p * 1)(None)
    calls = [(good, good), (bad, good), (good, bad), (null, good), (good, null)]
    assert [lib.copy_run(*pair) for pair in calls] == [0, -2, -2, -1, -1]


def test_wrong_inputs_are_refused(tmp_path: Path) -> None:
    module = load(build(small_net()).artifact, cache=tmp_path)
    for bad in ([], [np.zeros((1, 16), np.uint8)], [np.zeros((16,), np.int8)]):
        with pytest.raises(UsageError, match="E5022"):
            module.run(bad)


def test_library_is_built_once(tmp_path: Path) -> None:
    artifact = build(small_net()).artifact
    first = load(artifact, cache=tmp_path).library
    stamp = first.stat().st_mtime_ns
    assert load(artifact, cache=tmp_path).library == first
    assert first.stat().st_mtime_ns == stamp
    assert load(build(small_net(), "user").artifact, cache=tmp_path).library != first
    assert len(list(tmp_path.iterdir())) == 2


def test_modules_that_contradict_themselves() -> None:
    x, a, y = tensor("x", 16), tensor("a", 16), tensor("y", 16)
    first, second = KernelCall("dense", (x,), (a,)), KernelCall("add", (a, a), (y,))
    functions, constants = {"dense": dense(16, 16), "add": add(16)}, {"dense": {"params": dense_params(16, 16, 0)}}
    good = LoweredModule(functions, "s", constants, inputs=(x,), outputs=(y,), calls=(first, second))
    check_lowered(good)
    for bad, words in (
        (replace(good, calls=(second, first)), "before it is written"),
        (replace(good, calls=(first,)), "never written"),
        (replace(good, calls=(first, first), outputs=(a,)), "again"),
        (replace(good, constants={}), "constant params needs 320 bytes, none given"),
        (replace(good, calls=(replace(first, inputs=(x, x)), second)), "number of operands"),
        (replace(good, functions={**functions, "dense": dense(8, 16)}), "has 16 bytes, buffer x 8"),
        (replace(good, functions={"add": add(16)}), "has no function dense"),
    ):
        with pytest.raises(InternalError, match=words):
            check_lowered(bad)


def test_hostile_names(tmp_path: Path) -> None:
    names = ["*/ int main(void) {", "??/\n#error", "int", "", "ü\u202e", "x", "x"]
    tensors = [tensor(n, 4) for n in names]
    exe = build(LoweredModule({}, "class_", inputs=tuple(tensors), outputs=(tensors[0],)))
    files = exe.artifact.export(tmp_path)
    compile_all("gcc", [f for f in files if f.suffix == ".c"])
    fields = [t["c_name"] for t in exe.artifact.metadata["inputs"]]
    assert len(set(fields)) == len(fields)


@pytest.mark.slow
def test_byte_identical_under_another_hash_seed() -> None:
    code = (
        "import hashlib, json\nfrom tests.executor.test_emit import *\n"
        "a, b = build(small_net()).artifact, build(odd_outputs(), 'user').artifact\n"
        "print(hashlib.sha256(json.dumps([a.files,a.metadata,b.files,b.metadata]).encode()).hexdigest())"
    )
    digests = set()
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        root = Path(__file__).parents[2]
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, cwd=root)
        digests.add(done.stdout)
    assert len(digests) == 1


def test_sanitizers_find_nothing(tmp_path: Path) -> None:
    exe = build(odd_outputs())
    files = exe.artifact.export(tmp_path)
    main = tmp_path / "main.c"
    main.write_text(
        '#include <stddef.h>\n#include "odd.h"\nint main(void) {\n  struct odd_inputs in = {NULL, NULL};\n'
        "  struct odd_outputs out = {NULL, NULL, NULL, NULL, NULL, NULL};\n  return (int)odd_run(&in, &out);\n}\n"
    )
    sources = [str(f) for f in [*files, main] if f.suffix == ".c"]
    flags = ["-std=c99", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", INCLUDE, f"-I{tmp_path}"]
    subprocess.run([*command("gcc"), *flags, *sources, "-o", str(tmp_path / "main")], check=True)
    done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
