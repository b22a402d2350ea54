"""Chains of models as one: the C against each stage's reference on whole windows, and what is refused."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import aot
from aot.driver.model_pipeline import chained
from aot.driver.options import Options
from aot.driver.plugins import load_installed
from aot.errors import AotError
from aot.executor.artifact import Artifact
from aot.frontend.chain import Chain, Stage, pack
from aot.frontend.formats import Choice
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run
from aot.relay.expr import Call, Function, post_order
from aot.report.figures.size import slide_lines
from aot.report.measure.reference import find_reference, run_chain
from aot.runtime.module import load
from aot.testing.reference import reference_sets
from aot.testing.text_model import text_model
from tests.driver.chain_nets import QUANT, chain_net
from tests.scale import cases

Array = np.ndarray[Any, Any]
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
needs_qemu = pytest.mark.skipif(shutil.which("qemu-system-arm") is None, reason="qemu-system-arm is not installed")


def compiled(chain: Chain, *, target: str = "host", **options: Any) -> Artifact:
    found = aot.build(pack(chain), target=target, name="chain", options=Options(**options))
    assert isinstance(found, Artifact)
    return found


def pushed(artifact: Artifact, count: int, *, seed: int) -> list[list[Array]]:
    """New rows for each push."""
    (info,) = artifact.metadata["inputs"]
    rng = np.random.default_rng(seed)
    return [[rng.integers(-128, 128, info["shape"]).astype(np.int8)] for _ in range(count)]


def by_hand(chain: Chain, sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
    """The reference kernels of each stage on whole windows."""
    engines = [lambda inputs, s=stage: reference_sets(s.model, [list(i) for i in inputs]) for stage in chain.stages]
    return run_chain(chain, engines, sets)


def check(chain: Chain, board: str, *, runs: int, seed: int) -> None:
    """Every output byte of every push on a board; "host" is a native program with sanitizers."""
    place = load_board(board)
    artifact = compiled(chain, target=place.cpu, opt=("balanced", "speed", "size", "ram")[seed % 4])
    sets = pushed(artifact, runs, seed=seed)
    result = run(prepare(artifact, place), sets)
    for k, (got, want) in enumerate(zip(result.outputs, by_hand(chain, sets), strict=True)):
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.reshape(b.shape), b, err_msg=f"seed {seed}, push {k}")


def test_all_that_is_made_says_which_operator_it_is_for() -> None:
    load_installed()
    for seed in range(20):
        main = chained(chain_net(seed), Options(), opt_level=3, name="chain").module["main"]
        assert isinstance(main, Function)
        calls = [e for e in post_order(main.body) if isinstance(e, Call)]
        assert [c for c in calls if c.span.op_index < 0] == [], f"seed {seed}"


@needs_gcc
def test_a_chain_under_sanitizers() -> None:
    check(chain_net(3), "host", runs=60, seed=3)


@needs_gcc
@pytest.mark.slow
def test_random_chains_under_sanitizers() -> None:
    for seed in range(7000, 7000 + cases(200)):
        check(chain_net(seed), "host", runs=200, seed=seed)


@needs_qemu
@pytest.mark.qemu
def test_chains_on_a_board() -> None:
    for seed in (5, 11):
        check(chain_net(seed), "mps2-an386", runs=200, seed=seed)


ROWS = Stage("rows", text_model(f"in x int8[1,4] {QUANT}\nout y int8[1,4] {QUANT}\nMAXIMUM x x -> y version=2"))
MEAN = text_model(f"""
    in x int8[1,6,2] {QUANT}
    const over int32[1] data=1
    out y int8[1,2] {QUANT}
    MEAN x over -> y version=2 keep_dims=0
""")


def test_a_push_runs_each_stage_as_often_as_it_has_new_rows() -> None:
    """Four elements are two rows; a window that moves by four of them is asked after two runs."""
    chain = Chain((ROWS, Stage("mean", MEAN, slide=4)), rate=400)
    artifact = compiled(chain)
    told = artifact.metadata["chain"]
    assert [(s["name"], s["runs"], s["rows"], s["hop"]) for s in told["stages"]] == [("rows", 2, None, None), ("mean", 1, 6, 4)]
    assert (told["hop"], told["axis"], told["pushes"]) == (8, 1, 2)
    assert artifact.metadata["inputs"][0]["shape"] == [1, 8]
    assert slide_lines(artifact.metadata) == [
        "a push consumes 8 new rows and runs rows twice, mean once",
        "mean: 4 of 6 rows of x are new per run: 0 of 0 MAC, 4 B of rows are kept",
        "mean: MEAN y works over the axis that slides",
    ]


@needs_gcc
def test_push_and_reset_in_c() -> None:
    chain = Chain((ROWS, Stage("mean", MEAN, slide=2)))
    artifact = compiled(chain)
    library = ctypes.CDLL(str(load(artifact).library))
    library.chain_output_0.restype = ctypes.c_void_p
    sets = pushed(artifact, 5, seed=1)
    for _ in range(2):
        for (rows,), (want,) in zip(sets, by_hand(chain, sets), strict=True):
            assert library.chain_push(ctypes.c_void_p(rows.ctypes.data)) == 0
            got = np.ctypeslib.as_array(ctypes.cast(library.chain_output_0(), ctypes.POINTER(ctypes.c_int8)), want.shape)
            np.testing.assert_array_equal(got, want)
        library.chain_reset()
    assert "CHAIN_SLIDE_HOP 4 " in artifact.files["chain.h"]


def test_the_reference_names_its_engines() -> None:
    found = find_reference(pack(Chain((ROWS, Stage("mean", MEAN, slide=2)))), "litert", outputs=1)
    assert found.name.endswith("stage by stage on whole windows") or not found.independent


MEL = "lower_frequency_limit=100 upper_frequency_limit=3500 filterbank_channel_count=10 dct_coefficient_count=6"
SOUND = text_model(f"""
    in audio float32[400,1]
    const rate int32[1] data=8000
    tensor power float32[1,12,33]
    CUSTOM:AudioSpectrogram audio -> power window_size=48 stride=32 magnitude_squared=1
    tensor mel float32[1,12,6]
    CUSTOM:Mfcc power rate -> mel {MEL}
    out codes int8[1,12,6] scale=0.2 zero_point=3
    QUANTIZE mel -> codes version=1
""")
NETWORK = text_model("""
    in x int8[1,12,6,1] scale=0.2 zero_point=3
    const w int8[4,3,6,1] data=5 scale=0.01
    const b int32[4] data=7,90,-40,3 scale=0.002
    tensor c int8[1,10,1,4] scale=0.1 zero_point=0
    CONV_2D x w b -> c version=3 stride_w=1 stride_h=1 padding=VALID
    const over int32[2] data=1,2
    out y int8[1,4] scale=0.1 zero_point=0
    MEAN c over -> y version=2 keep_dims=0
""")


@needs_gcc
def test_samples_slide_through_a_spectrogram_and_the_network_behind_it() -> None:
    """64 new samples are two frames of twelve, and two rows of everything that follows."""
    chain = Chain((Stage("sound", SOUND, slide=64, axis=0), Stage("network", NETWORK)))
    artifact = compiled(chain)
    layers = artifact.metadata["chain"]["stages"][0]["slide"]["layers"]
    assert [(row["op"], row["rows"], row["computed"]) for row in layers] == [("CONV_2D", 10, 2)]
    rng = np.random.default_rng(3)
    sets = [[rng.standard_normal((64, 1)).astype(np.float32)] for _ in range(12)]
    model = load(artifact)
    for (got,), (want,) in zip([model.run(s) for s in sets], by_hand(chain, sets), strict=True):
        np.testing.assert_array_equal(got, want)


def refused(code: str, *stages: Stage, **options: Any) -> str:
    with pytest.raises(AotError, match=code) as error:
        compiled(Chain(stages), **options)
    return str(error.value)


def test_what_does_not_join_is_refused_with_its_stage() -> None:
    other = text_model(
        "in x int8[1,4] scale=0.1 zero_point=3\nout y int8[1,4] scale=0.1 zero_point=3\nMAXIMUM x x -> y version=2"
    )
    two = text_model(f"in a int8[1,4] {QUANT}\nin b int8[1,4] {QUANT}\nout y int8[1,4] {QUANT}\nMAXIMUM a b -> y version=2")
    assert "stage scale: it takes" in refused("E1301", ROWS, Stage("scale", other))
    assert "again gives int8[1, 4] scale 0.05" in refused(
        "E1301", ROWS, replace(ROWS, name="again", slide=4), Stage("scale", other, slide=4)
    )
    assert "slide = N" in refused("E1302", ROWS, Stage("mean", MEAN))
    assert "choose a multiple of 2" in refused("E1302", ROWS, Stage("mean", MEAN, slide=3))
    many = text_model(f"in x int8[1,260] {QUANT}\nout y int8[1,260] {QUANT}\nMAXIMUM x x -> y version=2")
    assert "65 times in a push, 64 is the most" in refused("E1302", ROWS, Stage("many", many, slide=260))
    assert "axis = 5" in refused("E1302", ROWS, Stage("mean", MEAN, slide=2, axis=5))
    assert "did you mean y" in refused("E1303", replace(ROWS, output="Y"), ROWS)
    assert "2: a, b" in refused("E1304", Stage("two", two), ROWS)
    refused("E1305", ROWS, ROWS, slide=(("x", 1),))
    refused("E1305", ROWS, ROWS, feed_rows=True)
    refused("E1305", ROWS, ROWS, choice=Choice(subgraph=0))
    refused("E5331", Stage("mean", MEAN, slide=9))
