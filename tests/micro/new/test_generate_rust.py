"""The code of docs/rust.md compiles, links with a model and gives the right bytes (on the host)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import build
from aot.report.measure.reference import graph
from tests.micro.projects import DIGITS, ROOT, need, sh

MAIN = """
extern crate digits;
fn main() {
    let mut model = unsafe { digits::Digits::new() };
    let image: [i8; digits::INPUT_BYTES] = [%s];
    println!("{:?}", model.run(&image).unwrap());
}
"""


@pytest.mark.slow
def test_page(tmp_path: Path) -> None:
    need("rustc", "gcc", "ar")
    code = re.search(r"```rust\n(#!\[no_std\]\n.*?)```", (ROOT / "docs" / "rust.md").read_text(), re.DOTALL)
    assert code is not None
    pixels = np.load(ROOT / "examples" / "digits" / "test_images.npz")["x"][0].astype(np.int16)
    image = (pixels - 128).astype(np.int8).reshape(1, 8, 8, 1)
    wanted = graph(DIGITS.read_bytes(), "litert").outputs([[image]])[0][0]
    build(DIGITS, target="host").export(tmp_path)
    (tmp_path / "digits.rs").write_text(code.group(1))
    (tmp_path / "main.rs").write_text(MAIN % ", ".join(map(str, image.reshape(-1).tolist())))
    sh(f"gcc -O2 -I. -I{ROOT / 'crt' / 'include'} -c digits*.c && ar rcs libmodel.a digits*.o", cwd=tmp_path)
    sh("rustc --edition 2021 -O --crate-type rlib -D warnings digits.rs", cwd=tmp_path)
    text = sh("rustc --edition 2021 -L . -l static=model main.rs -o demo && ./demo", cwd=tmp_path)
    assert text.strip() == str(wanted.reshape(-1).tolist())
