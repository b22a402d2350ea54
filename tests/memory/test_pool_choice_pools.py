"""Several memories: choice, plan, refusals, and the C that comes out."""

from __future__ import annotations

import random
import re
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from aot.cli.common import build_options
from aot.cli.options import CompileOptions
from aot.driver.build import compile_model
from aot.driver.options import Options
from aot.errors import AotError, TargetError, UsageError
from aot.memory import pool_choice
from aot.memory.liveness import liveness, program_conflicts
from aot.memory.memory_pools import Pooling
from aot.memory.plan import BufferInfo, conflicts
from aot.memory.pool_choice import fill_pools, plan_pools, verify_pools
from aot.memory.verify import verify_plan
from aot.micro.board import data_folder, load_board, parse_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.runtime.module import load
from aot.support.memory_pool import Pool
from aot.support.milp import Solution
from tests.memory.programs import random_program

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite"


def test_busy_buffers_get_the_fast_pool() -> None:
    buffers = [BufferInfo("cold", 100, 4, 0, 0), BufferInfo("hot", 100, 4, 0, 0), BufferInfo("later", 100, 4, 1, 1)]
    pooling = Pooling((Pool("slow", 1000), Pool("fast", 100, speed=4)))
    plan, used, _ = plan_pools(buffers, conflicts(tuple(buffers)), pooling, accesses={"hot": 900, "cold": 100, "later": 50})
    assert {u.pool.name: u.buffers for u in used} == {"slow": ("cold",), "fast": ("hot", "later")}
    assert plan.offset == {"cold": 0, "hot": 100, "later": 100}  # nothing is lost between the pools
    pinned = Pooling(pooling.pools, (("cold", "fast"),))
    _, used, _ = plan_pools(buffers, conflicts(tuple(buffers)), pinned, accesses={"hot": 900})
    assert {u.pool.name: u.buffers for u in used} == {"slow": ("hot",), "fast": ("cold", "later")}


def test_what_does_not_fit_is_told_with_numbers() -> None:
    buffers = [BufferInfo("a", 100, 4, 0, 1), BufferInfo("b", 60, 4, 1, 1)]
    with pytest.raises(
        TargetError,
        match=r"b of 60 bytes fits into no pool \(x 120, 100 used\); the peak is at layer 1 with 160 bytes: a 100, b 60",
    ):
        plan_pools(buffers, conflicts(tuple(buffers)), Pooling((Pool("x", 120),)), accesses={"a": 1000})
    with pytest.raises(TargetError, match=r"E2013 b of .* pinned to y, does not fit there .*; --pin b=x has room"):
        plan_pools(buffers, (), Pooling((Pool("x", 500), Pool("y", 50)), (("b", "y"),)), accesses={})
    with pytest.raises(UsageError, match="no such tensor"):
        plan_pools(buffers, (), Pooling((Pool("x", 500),), (("c", "x"),)), accesses={})


def test_exact_choice_where_the_busiest_buffer_is_in_the_way() -> None:
    """One after the other, a takes the fast pool, and neither b nor c finds room; together they have more accesses than a."""
    buffers = [BufferInfo("a", 60, 1, 0, 0), BufferInfo("b", 50, 1, 0, 0), BufferInfo("c", 50, 1, 0, 0)]
    pooling = Pooling((Pool("fast", 100, speed=2), Pool("slow", 500)))
    accesses = {"a": 660, "b": 500, "c": 500}
    plan, used, _ = plan_pools(buffers, conflicts(tuple(buffers)), pooling, accesses=accesses)
    assert {u.pool.name: u.buffers for u in used} == {"fast": ("b", "c"), "slow": ("a",)}
    verify_pools(buffers, plan, used)


def test_exact_choice_where_the_busiest_buffer_leaves_no_room() -> None:
    """The hot buffer must go to the slow pool, as the large one fits into the fast one only."""
    buffers = [BufferInfo("hot", 60, 1, 0, 0), BufferInfo("large", 100, 1, 0, 0)]
    pooling = Pooling((Pool("fast", 100, speed=2), Pool("slow", 60)))
    _, used, _ = plan_pools(buffers, conflicts(tuple(buffers)), pooling, accesses={"hot": 900, "large": 1})
    assert {u.pool.name: u.buffers for u in used} == {"fast": ("large",), "slow": ("hot",)}
    chosen = fill_pools({"hot": 60, "large": 100}, pooling.pools, reads={"hot": 900, "large": 1})
    assert chosen.pool == {"hot": "slow", "large": "fast"}
    assert chosen.optimal
    with pytest.raises(
        TargetError, match=r"need 210 bytes, 50 more than the pools have \(fast 100, slow 60\); .* large 150, hot 60; "
    ):
        fill_pools({"hot": 60, "large": 150}, pooling.pools, reads={})


def test_a_search_that_stops_without_a_choice_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hot": 60, "large": 100}
    with monkeypatch.context() as patched:
        patched.setattr(pool_choice, "minimise", lambda *_, **__: Solution(None, 0.0, proven=False))
        _constants_that_find_no_room(sizes)
    monkeypatch.setattr(pool_choice, "ROUNDS", 0)
    buffers = [BufferInfo("hot", 60, 1, 0, 0), BufferInfo("large", 100, 1, 0, 0)]
    pooling = Pooling((Pool("fast", 100, speed=2), Pool("slow", 60)))
    with pytest.raises(TargetError, match=r"fits into no pool .* stopped at its limit, so there may be one \("):
        plan_pools(buffers, conflicts(tuple(buffers)), pooling, accesses={"hot": 900, "large": 1})


def _constants_that_find_no_room(sizes: dict[str, int]) -> None:
    with pytest.raises(TargetError, match=r"would help; the search for a choice stopped at its limit, so there may be one \("):
        fill_pools(sizes, (Pool("fast", 100), Pool("slow", 60)), reads={})
    with pytest.raises(TargetError, match=r"10 more than the pools have .* would help \("):
        fill_pools(sizes, (Pool("fast", 100), Pool("slow", 50)), reads={})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_random_programs_in_three_pools(seed: int) -> None:
    program = random_program(seed, steps=12)
    buffers = liveness(program)
    rng = random.Random(seed)
    pooling = Pooling((Pool("a", 80, speed=3), Pool("b", 150, speed=2), Pool("c", 2000)))
    accesses = {b.name: rng.randrange(500) for b in buffers}
    plan, used, _ = plan_pools(buffers, program_conflicts(program, buffers), pooling, accesses=accesses)
    verify_plan(program, plan)
    verify_pools(buffers, plan, used)
    assert sorted(n for u in used for n in u.buffers) == sorted(b.name for b in buffers)
    assert all(u.used <= u.pool.size for u in used)


def pooled(*pools: Pool, pins: tuple[tuple[str, str], ...] = ()) -> Options:
    return Options(pooling=Pooling(pools, pins))


def test_pools_in_c(tmp_path: Path) -> None:
    plain = compile_model(DIGITS, name="digits")
    buffers = plain.artifact.metadata["workspace"]["buffers"]
    total = plain.artifact.metadata["workspace"]["size"]
    tensor = next(b["name"] for b in buffers if b["kind"] == "tensor")
    options = pooled(Pool("FAST", 2 * total, speed=2), Pool("EXT", 1 << 20, 0x21000000), pins=((tensor, "EXT"),))
    exe = compile_model(DIGITS, name="digits", options=options)
    text = exe.artifact.files["digits.c"]
    assert 'AOT_SECTION(".bss.aot_pool_FAST") uint8_t digits_workspace[' in text
    assert 'AOT_SECTION(".bss.aot_pool_EXT") uint8_t digits_pool_EXT[' in text
    assert re.search(r"AT_EXT\(\w+\)", text)
    pools = exe.artifact.metadata["workspace"]["pools"]
    assert [(p["name"], p["address"]) for p in pools] == [("FAST", None), ("EXT", 0x21000000)]
    assert tensor in pools[1]["buffers"]
    (info,) = exe.artifact.metadata["inputs"]
    x = np.random.default_rng(0).integers(-128, 128, info["shape"]).astype(info["dtype"])
    (want,) = plain.interpret([x])
    np.testing.assert_array_equal(exe.interpret([x])[0], want)
    np.testing.assert_array_equal(load(exe.artifact, cache=tmp_path).run([x])[0], want)


@pytest.mark.slow
def test_constants_in_two_flashes(tmp_path: Path) -> None:
    plain = compile_model(DIGITS, name="digits")
    total = plain.artifact.metadata["constants"]["size"]
    assert plain.artifact.metadata["constants"]["pools"] == []
    pooling = Pooling(constants=(Pool("IN", total // 2, speed=4), Pool("OUT", total)))
    exe = compile_model(DIGITS, name="digits", options=Options(pooling=pooling))
    text = exe.artifact.files["digits_params.c"]
    pools = exe.artifact.metadata["constants"]["pools"]
    assert [p["name"] for p in pools] == ["IN", "OUT"]
    assert all(p["used"] <= p["size"] for p in pools)
    for p in pools:
        assert text.count(f'AOT_SECTION(".rodata.aot_pool_{p["name"]}")') == len(p["arrays"]) > 0
    (info,) = exe.artifact.metadata["inputs"]
    x = np.random.default_rng(0).integers(-128, 128, info["shape"]).astype(info["dtype"])
    np.testing.assert_array_equal(load(exe.artifact, cache=tmp_path).run([x])[0], plain.interpret([x])[0])
    with pytest.raises(TargetError, match=r"E2013.*all constants need"):
        compile_model(DIGITS, options=Options(pooling=Pooling(constants=(Pool("IN", total // 2),))))


def test_pools_of_a_board() -> None:
    text = (data_folder("boards") / "mps2-an386" / "board.toml").read_text()
    table = '[[pool]]\nname = "FAST"\nsize = 4096\naddress = 0x20100000\nspeed = 2\n[[pool]]\nname = "REST"\nsize = 65536\n'
    board = parse_board(text + table, "board.toml")
    assert board.pools == (Pool("FAST", 4096, 0x20100000, 2.0), Pool("REST", 65536))
    assert build_options(CompileOptions(), pools=board.pools).pooling == Pooling(board.pools)
    chosen = build_options(CompileOptions(pool=["X=1K"], pin=["a=b=X"]), pools=board.pools).pooling
    assert chosen == Pooling((Pool("X", 1024),), (("a=b", "X"),))
    for wrong in ('name = "A"\nsize = 0', 'name = "1"\nsize = 4', 'name = "A"\nsize = 4\naddress = 0', 'name = "A"\nsize = "4"'):
        with pytest.raises(UsageError, match="E5021"):
            parse_board(text + "[[pool]]\n" + wrong + "\n", "board.toml")


def test_a_shared_workspace_has_no_pools() -> None:
    with pytest.raises(AotError, match="cannot be combined"):
        Options(share_workspace=True, pooling=Pooling((Pool("a", 100),)))


def sections(elf: Path) -> dict[str, int]:
    """Address of each section."""
    with elf.open("rb") as file:
        return {s.name: int(s["sh_addr"]) for s in ELFFile(file).iter_sections()}


@pytest.mark.qemu
def test_pools_on_a_board(tmp_path: Path) -> None:
    board = load_board("mps2-an386")
    plain = compile_model(DIGITS, name="digits")
    tensor = next(b["name"] for b in plain.artifact.metadata["workspace"]["buffers"] if b["kind"] == "tensor")
    ram = (Pool("FAST", 65536, 0x20100000, 2), Pool("EXT", 4096, 0x21000000))
    pooling = Pooling(ram, ((tensor, "EXT"),), (Pool("FLASH2", 1 << 16, 0x00200000),))
    exe = compile_model(DIGITS, name="digits", options=Options(pooling=pooling))
    (info,) = exe.artifact.metadata["inputs"]
    x = np.random.default_rng(1).integers(-128, 128, info["shape"]).astype(info["dtype"])
    project = prepare(exe.artifact, board, folder=tmp_path / "p")
    result = run(project, [[x]])
    np.testing.assert_array_equal(result.outputs[0][0].reshape(-1), plain.interpret([x])[0].reshape(-1))
    at = sections(project.image("measure"))
    assert (at[".pool_FAST"], at[".pool_EXT"], at[".constants_FLASH2"]) == (0x20100000, 0x21000000, 0x00200000)
    with pytest.raises(TargetError, match="E2014"):
        prepare(
            compile_model(DIGITS, name="digits", options=pooled(Pool("X", 65536, 0x90000000))).artifact,
            board,
            folder=tmp_path / "q",
        )
