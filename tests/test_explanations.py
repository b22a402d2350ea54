"""The pages of the error codes: their form, and their examples, which are run."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from aot.errors.explanations import Example, Explanation, codes, explanation, parse

PAGES = [page for code in codes() if (page := explanation(code)) is not None]


def test_every_page_is_of_its_code() -> None:
    assert [p.code for p in PAGES] == list(codes())
    assert explanation("E0000") is None
    assert explanation("../E1001") is None


@pytest.mark.parametrize("page", ["", "E1001: no mark", "# E1001: title\n", "# E1001: title\n\ntext\n\n## Fails\n\nno block\n"])
def test_a_page_out_of_form_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"a page begins|a section is"):
        parse(page)


def run(example: Example, folder: Path) -> str:
    """What running it prints on standard error; "" where it ends well."""
    code = example.code
    command = [sys.executable, "-c", code] if example.language == "python" else shell(code)
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False)
    return done.stderr if done.returncode else ""


def shell(code: str) -> list[str]:
    """`aot ...` lines, with this Python's aot."""
    return ["bash", "-e", "-c", f'aot() {{ {shlex.quote(sys.executable)} -m aot "$@"; }}\n{code}']


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if p.fails], ids=lambda p: p.code)
def test_examples(page: Explanation, tmp_path: Path) -> None:
    assert page.fails is not None
    assert page.works is not None, "an example that fails shows how it works"
    assert page.code in run(page.fails, tmp_path)
    assert run(page.works, tmp_path) == ""
