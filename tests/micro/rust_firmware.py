"""A firmware crate around a generated crate: built by Cargo for a Cortex-M and run by `cargo run` in QEMU.

Debian has no library of rustc's for Cortex-M, but its source (package rust-src), and `core` can be compiled from that.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from aot.micro.board import Board, data_folder, load_board
from aot.micro.build.project import Places, linker_script
from aot.micro.new.bare import SERIAL, qemu_arguments
from aot.micro.new.library import rust_target
from tests.micro.projects import need, sh

_BUILTINS = """\
#![no_std]
#![feature(compiler_builtins)]
#![compiler_builtins]
extern "C" {
    fn memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8;
    fn memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8;
}
"""
_AEABI = """\
#[no_mangle]
pub unsafe extern "C" fn __aeabi_memcpySIZE(to: *mut u8, from: *const u8, bytes: usize) { memcpy(to, from, bytes); }
#[no_mangle]
pub unsafe extern "C" fn __aeabi_memmoveSIZE(to: *mut u8, from: *const u8, bytes: usize) { memmove(to, from, bytes); }
#[no_mangle]
pub unsafe extern "C" fn __aeabi_memsetSIZE(to: *mut u8, bytes: usize, value: i32) { memset(to, value, bytes); }
#[no_mangle]
pub unsafe extern "C" fn __aeabi_memclrSIZE(to: *mut u8, bytes: usize) { memset(to, 0, bytes); }
"""
"""Arm's names for what our memory.c has, which rustc calls; the rest of its `compiler_builtins` is in GCC's library."""

_RUNTIME = ("startup", "semihosting", "memory", "systick")

_MAIN = """\
#![no_std]
#![no_main]
use models::models;

extern "C" {
    fn aot_puts(text: *const u8);
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe { aot_puts(b"FAIL by a panic\\n\\0".as_ptr()) };
    loop {}
}

fn report(model: &[u8], result: Result<u32, models::Error>) {
    let right = result == Ok(0);
    let verdict: &[u8] = if right { b"PASS \\0" } else { b"FAIL \\0" };
    for text in [verdict, model, b": 0 outputs differ\\n\\0"] {
        unsafe { aot_puts(text.as_ptr()) };
    }
}

#[no_mangle]
pub extern "C" fn main() -> i32 {
    // SAFETY: one of each, and nothing else runs
CALLS
    0
}
"""
_CARGO = """\
[package]
name = "firmware"
version = "0.1.0"
edition = "2021"

[dependencies]
models = {{ path = "../{project}", package = "{package}" }}

[profile.dev]
panic = "abort"
[profile.release]
panic = "abort"
"""


@dataclass(frozen=True, slots=True)
class Rust:
    """A Cargo and a rustc that can compile for a target; `sysroot` has its library where the compiler's own has none."""

    cargo: str
    rustc: str
    sysroot: Path | None


def rust_for(target: str, folder: Path) -> Rust:
    """The first Cargo in PATH whose rustc has the library of a target, or the library's source; the test is skipped without."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    sources = []
    for place in os.get_exec_path():
        cargo, rustc = (shutil.which(name, path=place) for name in ("cargo", "rustc"))
        if cargo and rustc and (root := _root(rustc)):
            if list((root / "lib" / "rustlib" / target / "lib").glob("libcore*.rlib")):
                return Rust(cargo, rustc, None)
            source = root / "lib" / "rustlib" / "src" / "rust" / "library" / "core" / "src" / "lib.rs"
            sources += [(cargo, rustc, source)] if source.is_file() else []
    if not sources:
        pytest.skip("rustc has neither a library for Cortex-M nor its source (Debian: cargo and rust-src)")
    cargo, rustc, source = sources[0]
    return Rust(cargo, rustc, _library(rustc, source, target, folder))


@cache
def _root(rustc: str) -> Path | None:
    done = subprocess.run([rustc, "--print", "sysroot"], capture_output=True, text=True, check=False, timeout=600)
    return Path(done.stdout.strip()) if done.returncode == 0 else None


def _library(rustc: str, source: Path, target: str, folder: Path) -> Path:
    """`core` and a small `compiler_builtins` for a target; the sysroot that holds them. Some 17 seconds."""
    place = folder / "lib" / "rustlib" / target / "lib"
    place.mkdir(parents=True)
    (folder / "builtins.rs").write_text(_BUILTINS + "".join(_AEABI.replace("SIZE", n) for n in ("", "4", "8")))
    flags = f"--edition=2021 --crate-type rlib --target {target} -Cpanic=abort -Cdebuginfo=0 --cap-lints allow -L {place}"
    for name, path in (("core", source), ("compiler_builtins", folder / "builtins.rs")):
        sh(f"RUSTC_BOOTSTRAP=1 {rustc} {flags} --crate-name {name} {path} -o {place}/lib{name}.rlib", cwd=folder)
    return folder


def run_in_qemu(project: Path, modules: dict[str, str], board: str, tools: Rust, *, options: str = "--release") -> str:
    """Build a firmware crate around the crate in `project` and run it: what it printed.

    modules: the module of each model -> its name.
    """
    place, target = load_board(board), rust_target(load_board(board).flags)
    folder = project.parent / "firmware"
    (folder / "src").mkdir(parents=True)
    (folder / ".cargo").mkdir()
    calls = (f'    report(b"{n}\\0", unsafe {{ models::{m}::Model::new() }}.test());' for m, n in modules.items())
    package = next(line for line in (project / "Cargo.toml").read_text().splitlines() if line.startswith("name"))
    (folder / "src" / "main.rs").write_text(_MAIN.replace("CALLS", "\n".join(calls)))
    (folder / "Cargo.toml").write_text(_CARGO.format(project=project.name, package=package.split('"')[1]))
    (folder / ".cargo" / "config.toml").write_text(_configuration(place, folder, target, tools.sysroot))
    return sh(f"RUSTC={tools.rustc} {tools.cargo} run --offline -q --target {target} {options} 2>&1", cwd=folder)


def _configuration(board: Board, folder: Path, target: str, sysroot: Path | None) -> str:
    """Cargo's settings for a board: GCC links, our start-up code comes along, and `cargo run` is QEMU."""
    (folder / "board.ld").write_text(linker_script(board, Places(board.code, board.code, board.data, board.data), []))
    crt = data_folder("crt")
    flags = f"{shlex.join(board.flags)} -I{crt}/include -DAOT_TICK_NUM=40u -DAOT_TICK_DEN=1u -Os"
    flags += " -fno-tree-loop-distribute-patterns"
    sh(f"arm-none-eabi-gcc {flags} -c {' '.join(f'{crt}/src/{n}.c' for n in _RUNTIME)}", cwd=folder)
    objects = [str(folder / f"{n}.o") for n in _RUNTIME]
    arguments = [*board.flags, "-nostdlib", "-nostartfiles", "-Wl,--gc-sections", f"-T{folder / 'board.ld'}", *objects, "-lgcc"]
    rust = [f"-Clink-arg={a}" for a in arguments] + ([f"--sysroot={sysroot}"] if sysroot else [])
    runner = ["qemu-system-arm", *qemu_arguments(board, SERIAL)]
    rows = {"linker": "arm-none-eabi-gcc", "rustflags": rust, "runner": runner}
    return f"[target.{target}]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in rows.items())
