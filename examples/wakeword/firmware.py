"""Writes a firmware project in which the front end and a network run one after the other on sounds that neither has learned from.

python -m examples.wakeword.firmware DIR [spotter|recurrent] && make -C DIR run
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from examples.wakeword.sounds import STEP, unheard

FOLDER = Path(__file__).parent


def audio_header() -> str:
    """The samples and the right answers as C."""
    samples, answers = unheard()
    audio = samples.reshape(-1, STEP)
    rows = ",\n".join("  {" + ",".join(map(str, row)) + "}" for row in audio.tolist())
    return (
        "/* Written by firmware.py. */\n#ifndef AUDIO_H\n#define AUDIO_H\n\n#include <stdint.h>\n\n"
        f"#define AUDIO_STEPS {len(audio)}u\n\n"
        f"static const int16_t audio[AUDIO_STEPS][{audio.shape[1]}] = {{\n{rows}}};\n\n"
        f"static const int8_t answers[AUDIO_STEPS] = {{{','.join(map(str, answers.tolist()))}}};\n\n#endif\n"
    )


def write_project(folder: Path, network: str = "spotter", *, board: str = "mps2-an386") -> None:
    """The project of `aot new` with both models, our main.c and the audio; CalledProcessError where aot refuses."""
    with tempfile.TemporaryDirectory() as temporary:
        models = [Path(temporary) / f"{name}.tflite" for name in ("frontend", "network")]
        for source, target in zip(("frontend", network), models, strict=True):
            shutil.copy(FOLDER / f"{source}.tflite", target)
        command = [sys.executable, "-m", "aot", "new", str(folder), *map(str, models), "--board", board, "--oracle", "tflm"]
        subprocess.run([*command, "--kind", "make", "--title", "wakeword"], check=True)
    shutil.copy(FOLDER / "main.c", folder / "src" / "main.c")
    (folder / "src" / "audio.h").write_text(audio_header(), encoding="utf-8")


if __name__ == "__main__":
    write_project(Path(sys.argv[1]), *sys.argv[2:3])
