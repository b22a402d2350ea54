"""Constants that the start-up code copies to a faster memory, and the caches that it switches on."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from aot.cli.common import built_totals
from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import UsageError
from aot.memory.memory_pools import Pooling, parse_pool
from aot.micro.board import data_folder, load_board, parse_board
from aot.micro.build.image import inspect_image
from aot.micro.build.project import copied_to, prepare
from aot.micro.run.runner import run
from aot.report.figures.schema import load_schema
from aot.report.measure.fitting import mode_fit
from aot.report.measure.inputs import rule_sets
from aot.report.measure.report import bundle, make_report, to_text
from tests.executor.copy_elision.test_state_windows import stream
from tests.micro.projects import ROOT, need, sh

KWS = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
CONV = ROOT / "tests" / "models" / "conv2d_valid_relu.tflite"


@pytest.mark.qemu
def test_constants_are_copied_from_flash_to_a_fast_memory(tmp_path: Path) -> None:
    """As on a Cortex-M7 with TCM: the hottest constants are read from RAM, and lie in flash while the power is off."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    board = replace(load_board("mps2-an500"), caches=("instruction", "data"))
    pools = Pooling(constants=(parse_pool("FAST=16K@0x20010000:4"), parse_pool("FLASH=2M")))
    exe = compile_model(KWS, target="cortex-m7", name="m", options=Options(pooling=pools))
    project = prepare(exe.artifact, board, folder=tmp_path)
    assert "-DAOT_CACHES=3" in project.flags("crt/src/startup.c")
    headers = sh(f"arm-none-eabi-readelf -lW {project.image()}", cwd=tmp_path)
    rows = [line.split() for line in headers.splitlines() if line.split()[:1] == ["LOAD"]]
    (fast,) = [row for row in rows if int(row[2], 16) == 0x20010000]
    assert int(fast[3], 16) < board.region("SSRAM1").size  # where it is loaded
    assert int(fast[4], 16) > 8192
    (inputs,) = rule_sets(exe.artifact.metadata["inputs"], 1).inputs
    (wanted,) = exe.interpret(inputs)
    assert (run(project, [inputs]).outputs[0][0] == wanted).all()


@pytest.mark.qemu
def test_copied_constants_are_ram_of_the_product(tmp_path: Path) -> None:
    """In the report's totals, in those of budgets and in what `aot check` says; flash stays as it is."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    board, model = load_board("mps2-an500"), CONV.read_bytes()
    found = {}
    for where, pools in {"flash": ("FLASH=2M",), "ram": ("FAST=16K@0x20010000:4", "FLASH=2M")}.items():
        options = Options(pooling=Pooling(constants=tuple(map(parse_pool, pools))))
        artifact = compile_model(CONV, target="cortex-m7", name="m", options=options).artifact
        project = prepare(artifact, board, folder=tmp_path / where)
        report = make_report(model, artifact, project, rule_sets(artifact.metadata["inputs"], 1))
        found[where] = inspect_image(project), report, built_totals(project), mode_fit(artifact, board, fault="")
    image, report, totals, fit = found["ram"]
    (copied,) = image.copied.values()
    assert (list(image.copied), report["ram"]["copied"]) == (["SSRAM23"], copied)
    assert copied >= artifact.metadata["constants"]["size"] > 0
    assert report["totals"]["ram"] == totals["ram"] == fit.ram
    other, plain, before, roomy = found["flash"]
    assert (other.copied, "copied" in plain["ram"]) == ({}, False)
    assert image.ram - other.ram == report["totals"]["ram"] - plain["totals"]["ram"] == totals["ram"] - before["ram"] == copied
    assert (fit.ram - roomy.ram, fit.image_ram - roomy.image_ram) == (copied, copied)
    schema = load_schema()
    jsonschema.Draft202012Validator(schema).validate(json.loads(to_text(bundle([report, plain | {"name": "other"}]))))


@pytest.mark.qemu
def test_a_state_in_a_pool_is_ram_of_the_product(tmp_path: Path) -> None:
    """As much as beside the workspace, in the report's totals, in those of budgets and in what `aot check` says."""
    need("arm-none-eabi-gcc", "qemu-system-arm")
    board, model = load_board("mps2-an386"), stream(20, 1)
    pools = tuple(map(parse_pool, ("NEAR=16K@0x20040000:2", "FAR=16K@0x20080000:1")))
    for name, pooling in (("plain", Pooling()), ("pooled", Pooling(pools, (("state", "FAR"),)))):
        artifact = compile_model(model, target=board.cpu, name="m", options=Options(pooling=pooling)).artifact
        project = prepare(artifact, board, folder=tmp_path / name)
        ram = make_report(model, artifact, project, rule_sets(artifact.metadata["inputs"], 1))["ram"]
        state, workspace = artifact.metadata["state"]["size"], artifact.metadata["workspace"]["size"]
        assert state <= ram["state"] <= state + 4  # and whether it was reset
        assert 0 <= ram["runtime"] < 64
        assert ram["bytes"] == workspace + ram["state"] + ram["runtime"] + ram["stack"]["bound"]
        assert ram["bytes"] == built_totals(project)["ram"] == mode_fit(artifact, board, fault="").ram


def test_what_is_copied() -> None:
    disco, evk = load_board("stm32f746g-disco"), load_board("mimxrt1060-evk")
    assert [copied_to(disco, name) for name in ("FLASH", "ITCM", "DTCM", "SRAM")] == [False, False, True, True]
    assert not any(copied_to(evk, m.name) for m in evk.memory)  # the debugger writes all of it


def test_caches_of_a_board_file() -> None:
    text = (data_folder("boards") / "stm32f746g-disco" / "board.toml").read_text()

    def with_line(line: str) -> str:
        return re.sub(r"^kind = ", f"{line}\nkind = ", text, count=1, flags=re.MULTILINE)

    assert parse_board(with_line('caches = ["instruction", "data"]'), "b").cache_bits == 3
    for line in ('caches = ["l2"]', 'caches = ["data", "data"]'):
        with pytest.raises(UsageError, match="E5021"):
            parse_board(with_line(line), "b")
    with pytest.raises(UsageError, match="cortex-m4 has none"):
        parse_board(with_line('caches = ["data"]').replace('cpu = "cortex-m7"', 'cpu = "cortex-m4"'), "b")
    with pytest.raises(UsageError, match="wait_states"):
        parse_board(re.sub(r"^wait_states = 0", "wait_states = -3", text, flags=re.MULTILINE), "b")
