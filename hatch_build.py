"""The manual pages in a wheel: made of the program by `aot man`'s own functions, installed as share/man/man1."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualPages(BuildHookInterface):
    """Needs typer while a wheel is built (pyproject.toml, build-system)."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the pages and have them put into the wheel; an editable installation has none."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        import typer.main

        from aot.cli.app import make_app
        from aot.cli.verbs.about import pages

        self.folder = Path(tempfile.mkdtemp())
        for name, text in pages(typer.main.get_command(make_app())).items():
            (self.folder / name).write_text(text, encoding="utf-8", newline="\n")
        build_data["shared_data"][str(self.folder)] = "share/man/man1"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Clean up."""
        if version != "editable":
            shutil.rmtree(self.folder)
