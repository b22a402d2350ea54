"""Whether a plug-in may be installed: found without importlib.metadata, whose import takes longer than the search."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from aot.driver import plugins

ENTRY = f"[{plugins.GROUP}]\nmine = aot_mine\n"


@pytest.mark.parametrize(
    "place",
    ["mine-1.0.dist-info/entry_points.txt", "Mine.egg-info/entry_points.txt", "mine-1.0-py3.11.egg/EGG-INFO/entry_points.txt"],
)
def test_found_wherever_packages_say_it(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [PathFinder])  # other tests' libraries bring finders of their own
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "missing"), str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    path = tmp_path / place
    path.parent.mkdir(parents=True)
    path.write_text("[console_scripts]\nother = a:b\n")
    assert not plugins._may_be_installed()
    path.write_text(ENTRY)
    assert plugins._may_be_installed()


def test_archives_and_finders_of_others_are_left_to_importlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    monkeypatch.setattr(sys, "path", [])
    assert not plugins._may_be_installed()
    with zipfile.ZipFile(tmp_path / "some.zip", "w") as archive:
        archive.writestr("mine-1.0.dist-info/entry_points.txt", ENTRY)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "some.zip")])
    assert plugins._may_be_installed()
    monkeypatch.setattr(sys, "path", [])

    class Finder:
        @staticmethod
        def find_distributions() -> None: ...

    monkeypatch.setattr(sys, "meta_path", [Finder, PathFinder])
    assert plugins._may_be_installed()


def test_an_installed_plugin_is_loaded_in_a_fresh_process(tmp_path: Path) -> None:
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY)
    (tmp_path / "aot_mine.py").write_text("print('loaded')\n")
    script = (
        f"import sys; sys.path.append({str(tmp_path)!r}); from aot.driver.plugins import load_installed; print(load_installed())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("('mine',)\n", "loaded\n")
