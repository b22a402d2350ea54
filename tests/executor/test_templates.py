"""The templates as Python are current, and print what Jinja makes of the templates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2
import pytest

from aot.driver.build import build
from aot.driver.options import Options
from aot.executor import c_files
from aot.executor.c_files import shared_files
from aot.executor.templates import aot_workspace_c, aot_workspace_h, model_c, model_h

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
JINJA = jinja2.Environment(
    loader=jinja2.FileSystemLoader(ROOT / "aot" / "template"), undefined=jinja2.StrictUndefined, keep_trailing_newline=True,
    trim_blocks=True, lstrip_blocks=True, autoescape=False,
)  # fmt: skip


class Twice:
    """Stands for a template's function: renders with it and with Jinja, and compares."""

    def __init__(self, name: str, function: Callable[[Mapping[str, Any]], Iterator[str]]) -> None:
        self.name, self.function, self.calls = name, function, 0

    def __call__(self, values: Mapping[str, Any]) -> Iterator[str]:
        text = "".join(self.function(values))
        assert text == JINJA.get_template(self.name).render(values)
        self.calls += 1
        return iter([text])


@pytest.mark.slow
def test_is_current() -> None:
    done = subprocess.run([sys.executable, "scripts/c_templates.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("graph_two_inputs_two_outputs", Options()),
        ("graph_two_inputs_two_outputs", Options(io="user", in_steps=True)),
        ("graph_pad_then_conv", Options(feed_rows=True)),
        ("graph_pad_then_conv", Options(feed_rows=True, in_steps=True)),
        ("net_sww", Options()),
        ("net_sww", Options(io="user")),
        ("net_sww", Options(in_steps=True)),
    ],
)
def test_as_jinja_prints_them(model: str, options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    header, source = Twice("model.h.j2", model_h), Twice("model.c.j2", model_c)
    monkeypatch.setattr(c_files, "model_h", header)
    monkeypatch.setattr(c_files, "model_c", source)
    build(MODELS / f"{model}.tflite", name="m", options=options)
    assert header.calls > 0
    assert source.calls > 0


def test_the_shared_workspace(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [Twice("aot_workspace.h.j2", aot_workspace_h), Twice("aot_workspace.c.j2", aot_workspace_c)]
    monkeypatch.setattr(c_files, "aot_workspace_h", files[0])
    monkeypatch.setattr(c_files, "aot_workspace_c", files[1])
    shared_files([build(MODELS / "quantize.tflite", name="m", options=Options(share_workspace=True))])
    assert [f.calls for f in files] == [1, 1]
