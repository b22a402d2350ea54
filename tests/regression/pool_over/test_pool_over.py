"""A pool never overlaps the stack, the vectors, code, data, the workspace or another pool."""

from __future__ import annotations

from pathlib import Path

import pytest

from aot.cli.__main__ import run
from aot.driver.build import build
from aot.driver.options import Options
from aot.errors import TargetError
from aot.executor.artifact import Artifact
from aot.memory.memory_pools import Pooling, parse_pool
from aot.micro.board import load_board
from aot.micro.build.project import choose_places, linker_script, pool_regions, prepare
from aot.micro.build.toolchain import have_tool

MODEL = Path(__file__).parents[2] / "models" / "add.tflite"
BOARD = "mps2-an386"


def compiled(*pools: str, constants: tuple[str, ...] = ()) -> Artifact:
    pooling = Pooling(tuple(map(parse_pool, pools)), (), tuple(map(parse_pool, constants)))
    return build(MODEL, target="cortex-m4", name="add", options=Options(pooling=pooling))


def test_a_pool_over_the_stack_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for address in ("0x20000000", "0x20007ff0"):
        arguments = ["compile", str(MODEL), "--board", BOARD, "--pool", f"P=64K@{address}", "-o", str(tmp_path / "o")]
        assert run(arguments) == 4
        assert "E2015 pool P" in (text := capsys.readouterr().err)
        assert "overlaps the stack" in text
        assert not (tmp_path / "o").exists()


def test_a_pool_over_the_vectors_is_refused() -> None:
    fake = {"size": 64, "pools": [{"name": "C", "address": 0x30, "used": 64, "size": 64}]}
    metadata = {"workspace": {"size": 0, "pools": []}, "constants": fake}
    with pytest.raises(TargetError, match=r"E2015 pool C.* the vector table"):
        pool_regions(load_board(BOARD), metadata)


def test_every_problem_at_once() -> None:
    artifact = compiled("P=1K@0x20000000", "Q=1K@0x60000000")
    used = artifact.metadata["workspace"]["pools"]
    metadata = {
        **artifact.metadata,
        "workspace": {"size": 0, "pools": [used[0], {**used[0], "name": "Q", "address": 1 << 29 | 1 << 30}]},
    }
    with pytest.raises(TargetError) as caught:
        choose_places(load_board(BOARD), metadata)
    assert [p.code for p in caught.value.problems] == ["E2015", "E2014"]


def test_the_linker_script_asserts_it() -> None:
    board, artifact = load_board(BOARD), compiled("P=1K@0x20100000")
    places = choose_places(board, artifact.metadata)
    text = linker_script(board, places, pool_regions(board, artifact.metadata))
    for what in ("the code", "the constants", "the stack", "the data", "the workspace", "the initial values of the data"):
        assert f'"aot: pool P overlaps {what}"' in text
    plain = compiled()
    assert "ASSERT" not in linker_script(board, places, pool_regions(board, plain.metadata))


needs_gcc = pytest.mark.skipif(not have_tool("arm-none-eabi-gcc"), reason="the cross compiler is not installed")


@pytest.mark.qemu
@needs_gcc
@pytest.mark.parametrize(
    ("pool", "what"),
    [
        ("0x20008000", "the data"),
        ("0x20010000", ""),
        ("0x203ff800", ""),
        ("0x21000000", ""),
    ],
)
def test_what_only_the_linker_knows(pool: str, what: str, tmp_path: Path) -> None:
    project = prepare(compiled(f"P=1K@{pool}"), load_board(BOARD), folder=tmp_path)
    if not what:
        assert project.image().is_file()
        return
    with pytest.raises(TargetError, match=f"E2015 pool P overlaps {what}"):
        project.image()


@pytest.mark.qemu
@needs_gcc
def test_pools_over_each_other_and_over_the_rest_of_the_workspace(tmp_path: Path) -> None:
    artifact = compiled("P=1K@0x20100000")
    board = load_board(BOARD)
    project = prepare(artifact, board, folder=tmp_path)
    assert project.places is not None
    rows = pool_regions(board, artifact.metadata)
    script = project.folder / "board.ld"
    symbol = f".bss.aot_pool_{rows[0]['name']}"
    over = {**rows[0], "name": "Q", "address": "0x20100010"}
    for text, message in (
        (linker_script(board, project.places, [{**rows[0], "size": 16}]), "pool P holds more than its 16 bytes"),
        (
            linker_script(board, project.places, [*rows, over]).replace(".bss.aot_pool_Q", ".bss.inputs_file"),
            "pool Q overlaps pool P",
        ),
    ):
        assert symbol in text
        script.write_text(text)
        with pytest.raises(TargetError, match=f"E2015 {message}"):
            project.image()
