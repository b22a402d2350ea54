"""The wake word example: its models are exact and accurate, alone and chained in one firmware, and gradients are right."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from aot.driver.build import compile_model
from aot.driver.model_file import read_chain
from aot.driver.options import Options
from aot.frontend.chain import Chain, Stage, pack
from aot.micro.board import load_board
from aot.micro.build.project import prepare
from aot.micro.run.runner import run as run_on_board
from aot.report.measure.reference import run_chain
from aot.testing import tflm_sets
from examples.wakeword import firmware, make, training
from examples.wakeword.frontend import frontend
from examples.wakeword.networks import smooth_model
from examples.wakeword.sounds import STEP, WORDS, unheard

FOLDER = Path(firmware.__file__).parent
NETWORKS = ["spotter", "recurrent"]
SPEECH = Path(__file__).parents[3] / "shared" / "samples" / "micro_speech_wav.npz"


def model(name: str) -> bytes:
    return (FOLDER / f"{name}.tflite").read_bytes()


def features() -> tuple[np.ndarray, np.ndarray]:
    with np.load(FOLDER / "features.npz") as archive:
        return archive["x"], archive["y"]


def test_the_front_end_is_what_its_script_makes() -> None:
    assert frontend() == model("frontend")
    assert (FOLDER / "labels.txt").read_text().split() == list(WORDS)


def test_the_front_end_hears_what_the_features_say() -> None:
    """Sines may round otherwise on another machine; the answers, and nearly all features, are those of the file."""
    audio, answers = unheard()
    x, y = features()
    np.testing.assert_array_equal(answers, y)
    found = make.features_of(audio, make.host(model("frontend")))
    assert (found == x).mean() > 0.99


@pytest.mark.parametrize("name", ["frontend", *NETWORKS])
def test_over_time_as_tflm(name: str) -> None:
    steps = unheard()[0].reshape(-1, 1, STEP)[:80] if name == "frontend" else features()[0][:80, None]
    found = make.run(make.host(model(name)), steps[:, 0])
    wanted = np.concatenate([outputs[0] for outputs in tflm_sets(model(name), [[s] for s in steps])])
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize("name", NETWORKS)
def test_accurate(name: str) -> None:
    x, y = features()
    assert (make.run(make.host(model(name)), x).argmax(axis=1) == y).mean() > 0.97


@pytest.mark.slow
@pytest.mark.skipif(not SPEECH.is_file(), reason="the shared samples are not here")
def test_the_front_end_on_real_speech_as_tflm() -> None:
    with np.load(SPEECH) as archive:
        for name in archive:
            steps = archive[name][: 40 * STEP].reshape(-1, 1, STEP)
            wanted = np.concatenate([o[0] for o in tflm_sets(model("frontend"), [[s] for s in steps])])
            found = make.run(make.host(model("frontend")), steps[:, 0])
            np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.slow
@pytest.mark.skipif(not SPEECH.is_file(), reason="the shared samples are not here")
def test_real_speech_through_a_public_front_end_and_network() -> None:
    """Frames of 30 ms of recordings through TFLM's own audio model, 49 of them through its network: what was said."""
    nets = SPEECH.parents[1] / "models" / "nets"
    ears, network = (
        make.host((nets / f"{n}.tflite").read_bytes()) for n in ("audio_preprocessor_int8", "micro_speech_quantized")
    )
    shape = tuple(network.metadata["inputs"][0]["shape"])
    with np.load(SPEECH) as archive:
        for number, word in ((0, "silence"), (0, "noise"), (2, "yes"), (3, "no")):  # noise counts as silence, in TFLM's test too
            ears.reset()
            frames = np.stack([archive[word][i * STEP : i * STEP + 480] for i in range(49)])
            heard = np.concatenate([ears.run([f[None]])[0].reshape(1, -1) for f in frames])
            answer = int(network.run([heard.reshape(shape)])[0].argmax())
            assert answer == number, word


def by_hand(chain: Chain, sets: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    """TFLM's outputs, each model on whole windows."""
    engines = [partial(tflm_sets, stage.model) for stage in chain.stages]
    return run_chain(chain, engines, sets)  # type: ignore[arg-type]


def test_smooth_is_what_its_script_makes() -> None:
    assert smooth_model(len(WORDS)) == model("smooth")


@pytest.mark.slow
def test_the_chain_is_its_models_by_hand() -> None:
    chain = read_chain(FOLDER / "wakeword.toml")
    steps = unheard()[0].reshape(-1, 1, STEP)[:200]
    found = make.run(make.host(pack(chain)), steps[:, 0])
    wanted = np.concatenate([o[0] for o in by_hand(chain, [[s] for s in steps])])
    np.testing.assert_array_equal(found, wanted)


def public_chain() -> Chain:
    """TFLM's audio model, 30 ms every 20 ms, and its network over 49 of them, asked every 40 ms."""
    nets = SPEECH.parents[1] / "models" / "nets"
    ears, network = ((nets / f"{n}.tflite").read_bytes() for n in ("audio_preprocessor_int8", "micro_speech_quantized"))
    return Chain((Stage("ears", ears, slide=STEP), Stage("network", network, slide=80)), rate=16000)


@pytest.mark.slow
@pytest.mark.skipif(not SPEECH.is_file(), reason="the shared samples are not here")
def test_real_speech_through_the_chain_of_public_models() -> None:
    chain = public_chain()
    with np.load(SPEECH) as archive:
        for number, word in ((2, "yes"), (3, "no")):
            pushes = archive[word].reshape(-1, 1, 2 * STEP)
            found = make.run(make.host(pack(chain)), pushes[:, 0])
            wanted = np.concatenate([o[0] for o in by_hand(chain, [[p] for p in pushes])])
            np.testing.assert_array_equal(found, wanted)
            assert found[-1].argmax() == number


@pytest.mark.qemu
@pytest.mark.skipif(not SPEECH.is_file(), reason="the shared samples are not here")
def test_200_pushes_of_real_speech_on_a_board() -> None:
    chain = public_chain()
    with np.load(SPEECH) as archive:
        sound = np.concatenate([archive[name] for name in archive.files] * 2)
    sets = [[p[None]] for p in sound.reshape(-1, 2 * STEP)[:200]]
    artifact = compile_model(pack(chain), target="cortex-m4", name="speech", options=Options(oracle="tflm")).artifact
    result = run_on_board(prepare(artifact, load_board("mps2-an386")), sets)
    for got, want in zip(result.outputs, by_hand(chain, sets), strict=True):
        np.testing.assert_array_equal(got[0], want[0])


def _loss(p: training.Params, x: np.ndarray, y: np.ndarray) -> float:
    h = c = np.zeros((x.shape[1], training.CELLS))
    total = 0.0
    for step, answers in zip(x, y, strict=True):
        h, c, _ = training.lstm_step(p, step, h, c)
        chances = training.softmax(h @ p["w2"].T + p["b2"])
        total -= float(np.log(chances[np.arange(len(answers)), answers]).sum())
    return total / y.size


@pytest.mark.parametrize("name", ["w", "r", "b", "w2", "b2"])
def test_the_gradient_of_the_lstm_is_that_of_its_loss(name: str) -> None:
    rng = np.random.default_rng(4)
    p = training.lstm_start(5, rng)
    x, y = rng.standard_normal((6, 3, 5)), rng.integers(0, 4, (6, 3))
    zeros = np.zeros((3, training.CELLS))
    gradient = training.lstm_gradient(p, x, y, zeros, zeros)[0][name]
    direction, small = rng.standard_normal(gradient.shape), 1e-6
    ahead, behind = (_loss({**p, name: p[name] + sign * small * direction}, x, y) for sign in (1, -1))
    assert (ahead - behind) / (2 * small) == pytest.approx(float((gradient * direction).sum()), rel=1e-4, abs=1e-8)


@pytest.mark.qemu
@pytest.mark.parametrize("name", NETWORKS)
def test_firmware(name: str, tmp_path: Path) -> None:
    """Both models on a board, one after the other: the same number of right answers as on this machine, and all words."""
    for tool in ("make", "arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    folder = tmp_path / "project"
    firmware.write_project(folder, name)
    done = subprocess.run(["make", "-s", "-C", str(folder), "WERROR=-Werror", "run"], capture_output=True, text=True, check=True)
    audio, answers = unheard()
    heard = make.features_of(audio, make.host(model("frontend")))
    right = int((make.run(make.host(model(name)), heard).argmax(axis=1) == answers).sum())
    *said, summary = done.stdout.strip().splitlines()
    assert summary == f"{right} of {len(answers)} steps right"
    spoken = [WORDS[a] for a, before in zip(answers[1:], answers[:-1], strict=True) if a and a != before]
    assert [line.split(": ")[1] for line in said] == spoken


@pytest.mark.qemu
def test_run_over_time(capsys: pytest.CaptureFixture[str]) -> None:
    """`aot run` feeds the steps one after the other into one state."""
    from aot.cli.__main__ import run

    paths = [str(FOLDER / n) for n in ("recurrent.tflite", "features.npz", "labels.txt")]
    assert not run(["run", paths[0], "--oracle", "tflm", "--board", "mps2-an386", "--inputs", paths[1], "--labels", paths[2]])
    assert "accuracy  594/601 = 98.8 %" in capsys.readouterr().out


@pytest.mark.slow
def test_training_again_gives_accurate_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make, "FOLDER", tmp_path)
    assert make.main() == 0
    made = {p.name for p in tmp_path.iterdir()}
    assert made == {"features.npz", "labels.txt", *(f"{name}.tflite" for name in ("frontend", "smooth", *NETWORKS))}
