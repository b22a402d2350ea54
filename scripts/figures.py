#!/usr/bin/env python3
"""Write the measured parts of README.md: the commands' output, the table of figures, the piece of generated C.

python scripts/figures.py            rewrite what can be measured here (the table needs ../shared/models)
python scripts/figures.py --check    change nothing; exit code 1 and the difference if the README is out of date
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
NETS = ROOT.parent / "shared" / "models" / "nets"

DIGITS = "examples/digits"
SAMPLES = f"--inputs {DIGITS}/test_images.npz --labels {DIGITS}/labels.txt"
DEMO = f"run {DIGITS}/digits.tflite --board mps2-an386 {SAMPLES}"
VERIFY = "verify tests/models/net_kws_dscnn.tflite --board mps2-an386"

# TFLM (commit 90b983c2) with CMSIS-NN (4ab83cc3), int8-only registrations, release flags, arm-none-eabi-gcc 12.2.1, Cortex-M4 in
# QEMU: MAC of the model, instructions, code, constants (flatbuffer and others), RAM (smallest working arena, static data, stack).
TFLM = {
    "mlperf_ad01_int8": ("anomaly detection", 264_192, 582_880, 27_056, 277_767, 3_996),
    "mlperf_ic_resnet_int8": ("image classification", 12_501_632, 29_862_840, 49_276, 99_339, 56_556),
    "mlperf_kws_dscnn_int8": ("keyword spotting", 2_656_768, 7_697_200, 51_492, 54_799, 24_380),
    "mlperf_vww_mobilenet_int8": ("visual wake words", 7_489_664, 24_101_520, 51_492, 334_151, 102_268),
    "mlperf_sww_int8": ("streaming wake word", 826_368, 2_227_000, 48_940, 75_375, 17_944),
}

# The same on a Cortex-M55 with CMSIS-NN's Helium kernels: instructions.
TFLM_M55 = {
    "mlperf_ad01_int8": 150_000,
    "mlperf_ic_resnet_int8": 4_910_156,
    "mlperf_kws_dscnn_int8": 1_813_125,
    "mlperf_vww_mobilenet_int8": 6_558_343,
    "mlperf_sww_int8": 407_437,
}

# The same for Armv6-M (Cortex-M0+) with CMSIS-NN's plain C, on the machine of the board mps2-an385-v6m: instructions.
TFLM_M0PLUS = {
    "mlperf_ad01_int8": 1_763_360,
    "mlperf_ic_resnet_int8": 97_551_400,
    "mlperf_kws_dscnn_int8": 28_996_640,
    "mlperf_vww_mobilenet_int8": 86_903_520,
    "mlperf_sww_int8": 9_546_040,
}


def aot(arguments: str) -> str:
    """The output of `aot ARGUMENTS`, run in the root of the checkout."""
    done = subprocess.run(
        [sys.executable, "-m", "aot", *arguments.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"aot {arguments} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def table() -> str:
    """One line per model: ours / TFLM's."""
    lines = [
        "| model | MAC | instructions: aot | TFLM | per MAC | code + constants: aot | TFLM | RAM: aot | TFLM |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, (title, macs, instructions, code, constants, ram) in TFLM.items():
        golden = NETS / f"{name}.golden.npz"
        verification = json.loads(aot(f"verify {NETS / name}.tflite --board mps2-an386 --inputs {golden} --no-profile --json"))
        assert verification["exact"], f"{name} is not exact"
        ours = verification["workspace_bytes"] + verification["stack_bytes"]
        flash = f"{verification['code_bytes']:,} + {verification['constant_bytes']:,} | {code:,} + {constants:,}"
        per_mac = verification["instructions"] / macs
        cells = f"{macs:,} | {verification['instructions']:,} | {instructions:,} | {per_mac:.2f} | {flash} | {ours:,} | {ram:,}"
        lines.append(f"| {title} | {cells} |")
    return "\n".join(lines)


def table_of(board: str, tflm: Mapping[str, int]) -> str:
    """Instructions on a board with `--opt speed`: ours / TFLM's."""
    lines = ["| model | instructions: aot | TFLM | per MAC |", "|---|--:|--:|--:|"]
    for name, instructions in tflm.items():
        options = f"--board {board} --opt speed --inputs {NETS / name}.golden.npz --no-profile --json"
        verification = json.loads(aot(f"verify {NETS / name}.tflite {options}"))
        assert verification["exact"], f"{name} is not exact"
        title, macs = TFLM[name][:2]
        lines.append(
            f"| {title} | {verification['instructions']:,} | {instructions:,} | {verification['instructions'] / macs:.2f} |"
        )
    return "\n".join(lines)


def snippet(lines: int = 10) -> str:
    """The first layers of the generated main function."""
    with tempfile.TemporaryDirectory() as folder:
        aot(f"compile tests/models/net_kws_dscnn.tflite -n kws -o {folder}/kws")
        text = (Path(folder) / "kws" / "kws.c").read_text(encoding="utf-8")
    body = text[text.index("  /* 0: ") :].splitlines()
    return "```c\n" + "\n".join(body[: lines + 1]) + "\n```"


def replace_block(text: str, opening: str, closing: str, content: str) -> str:
    """Put content between two markers, which must exist."""
    pattern = re.compile(f"({re.escape(opening)}\n).*?({re.escape(closing)})", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"README.md has no {opening}")
    return pattern.sub(lambda m: f"{m.group(1)}{content}\n{m.group(2)}", text)


def render(text: str) -> str:
    """README.md with everything measured again."""
    for name, arguments in (("demo", DEMO), ("verify", VERIFY)):
        output = "```text\n" + aot(arguments).rstrip("\n") + "\n```"
        text = replace_block(text, f"<!-- output: {name} -->", "<!-- /output -->", output)
    if NETS.is_dir():
        text = replace_block(text, "<!-- figures -->", "<!-- /figures -->", "\n" + table() + "\n")
        for core, board, tflm in (("m55", "mps3-an547", TFLM_M55), ("m0+", "mps2-an385-v6m", TFLM_M0PLUS)):
            text = replace_block(text, f"<!-- figures: {core} -->", f"<!-- /figures: {core} -->", f"\n{table_of(board, tflm)}\n")
    return replace_block(text, "<!-- snippet -->", "<!-- /snippet -->", snippet())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only tell whether README.md is up to date")
    arguments = parser.parse_args()
    before = README.read_text(encoding="utf-8")
    after = render(before)
    if not arguments.check:
        README.write_text(after, encoding="utf-8")
        return 0
    sys.stdout.writelines(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "README.md", "measured"))
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main())
