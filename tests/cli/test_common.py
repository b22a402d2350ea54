"""What every verb says of the model that it was given."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

import pytest

from aot.cli.options import CompileOptions
from aot.driver.options import FLOAT16, KERNELS, OPTS, RINGS
from tests.cli.helper import Cli
from tests.op.state.test_signatures import two_signatures

MODELS = Path(__file__).resolve().parents[1] / "models"


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def first_line(text: str) -> str:
    return text.strip().splitlines()[0]


def test_which_of_several_graphs_is_compiled(cli: Cli, tmp_path: Path) -> None:
    """Converters sort signatures by name, so the first may be `reset`."""
    path = tmp_path / "accumulator.tflite"
    path.write_bytes(two_signatures())
    assert first_line(cli("check", path).out).endswith("signature push (--signature pull for the other)")
    assert first_line(cli("check", path, "--signature", "pull").out).endswith("signature pull (--signature push for the other)")


def test_one_signature_is_not_a_choice(cli: Cli) -> None:
    assert ", signature" not in first_line(cli("check", MODELS / "graph_signature.tflite").out)


@pytest.mark.parametrize(("name", "values"), [("opt", OPTS), ("kernels", KERNELS), ("rings", RINGS), ("float16", FLOAT16)])
def test_choices_are_those_of_the_compiler(name: str, values: tuple[str, ...]) -> None:
    """In words of their own, as the help loads nothing of the compiler."""
    (option,) = get_type_hints(CompileOptions, include_extras=True)[name].__metadata__
    assert sorted(option.metavar.split("|")) == sorted(values)
