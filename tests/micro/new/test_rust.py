"""Crates around models: built and run by Cargo on this machine, and their C with the flags of a Cortex-M."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.micro.board import load_board
from aot.micro.new.library import crate_name, rust_target
from tests.micro.builders import passed, rust
from tests.micro.new.test_levels import models_of
from tests.micro.projects import DIGITS, ROOT, TWO_IO, need, new, sh
from tests.micro.rust_firmware import Rust, run_in_qemu, rust_for

FED = ROOT / "tests" / "models" / "depthwise_multiplier8.tflite"


def test_targets() -> None:
    boards = {b: rust_target(load_board(b).flags) for b in ("mps2-an385", "mps2-an386", "mps2-an505", "rpi-pico", "host")}
    assert boards == {
        "mps2-an385": "thumbv7m-none-eabi", "mps2-an386": "thumbv7em-none-eabihf", "mps2-an505": "thumbv8m.main-none-eabihf",
        "rpi-pico": "thumbv6m-none-eabi", "host": "",
    }  # fmt: skip


def test_names_that_cargo_or_rust_refuse(tmp_path: Path) -> None:
    assert [crate_name(t) for t in ("My-App", "match", "core")] == ["my_app", "match_models", "core_models"]
    new(tmp_path / "p", DIGITS, DIGITS, "--name", "type", "--name", "self", "--kind", "rust")
    text = (tmp_path / "p" / "aot" / "models.rs").read_text()
    assert "pub mod r#type {" in text
    assert "pub mod self_ {" in text
    assert "fn self_run(" in text


@pytest.mark.slow
def test_cargo(tmp_path: Path) -> None:
    """Three models, one of which has a name that only r#name can spell; warnings are errors."""
    need("cargo", "cc", "ar")
    names = {"type": DIGITS, "pair": TWO_IO, "real": ROOT / "tests" / "models" / "graph_float_io.tflite"}
    new(tmp_path / "p", *names.values(), *(w for n in names for w in ("--name", n)), "--kind", "rust")
    assert rust(tmp_path / "p", list(names)) == set(names)
    text = sh("RUSTFLAGS=-Dwarnings cargo test --offline 2>&1", cwd=tmp_path / "p")
    assert "test r#type ... ok" in text


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--share-workspace"], ["--feed-rows"]], ids=["shared", "fed"])
def test_cargo_with_other_interfaces(tmp_path: Path, options: list[str]) -> None:
    need("cargo", "cc", "ar")
    models = [FED, "--name", "fed"] if "--feed-rows" in options else [DIGITS, TWO_IO]
    new(tmp_path / "p", *models, *options, "--kind", "rust", "--board", "mps2-an385")
    assert len(rust(tmp_path / "p", [])) == (1 if "--feed-rows" in options else 2)
    sh("RUSTFLAGS=-Dwarnings cargo test --offline 2>&1", cwd=tmp_path / "p")


@pytest.mark.slow
def test_the_build_script_for_a_core(tmp_path: Path) -> None:
    """The build script alone, run as Cargo would for a Cortex-M: the archive has that target's calling convention."""
    need("rustc", "arm-none-eabi-gcc", "arm-none-eabi-ar")
    new(tmp_path / "p", DIGITS, "--kind", "rust")
    out = tmp_path / "out"
    out.mkdir()
    environment = f"CARGO_MANIFEST_DIR={tmp_path}/p OUT_DIR={out} TARGET=thumbv7em-none-eabihf"
    text = sh(f"rustc --edition=2021 aot/build.rs -o {out}/build && {environment} {out}/build", cwd=tmp_path / "p")
    assert "cargo:rustc-link-lib=static=p_models" in text
    attributes = sh(f"arm-none-eabi-nm {out}/libp_models.a && arm-none-eabi-readelf -A {out}/libp_models.a", cwd=out)
    assert " T digits_run" in attributes
    assert "Tag_ABI_VFP_args: VFP registers" in attributes


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Rust:
    return rust_for("thumbv7em-none-eabihf", tmp_path_factory.mktemp("sysroot"))


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("network", "options"), [("two models", "--release"), ("streaming with state", ""), ("digits", ""), ("fed", "--release")]
)
def test_firmware_in_qemu(tmp_path: Path, tools: Rust, network: str, options: str) -> None:
    """A firmware crate that depends on the generated one: cargo run starts QEMU, and every byte is the reference's."""
    models = {"fed": FED} if network == "fed" else models_of(network, tmp_path)
    more = ["--feed-rows"] if network == "fed" else []
    names = [word for name in models for word in ("--name", name)]
    new(tmp_path / "p", *models.values(), *names, *more, "--kind", "rust", "--board", "mps2-an386")
    assert passed(run_in_qemu(tmp_path / "p", {n: n for n in models}, "mps2-an386", tools, options=options)) == set(models)


@pytest.mark.slow
@pytest.mark.parametrize("board", ["mps2-an385-v6m", "mps2-an385", "mps2-an505"])
def test_firmware_of_other_cores(tmp_path: Path, board: str) -> None:
    need("arm-none-eabi-gcc", "qemu-system-arm")
    tools = rust_for(rust_target(load_board(board).flags), tmp_path / "sysroot")
    new(tmp_path / "p", DIGITS, "--kind", "rust", "--board", board)
    assert passed(run_in_qemu(tmp_path / "p", {"digits": "digits"}, board, tools)) == {"digits"}
