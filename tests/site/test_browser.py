"""The site in headless Chromium: no page wider than the window, no console message, no fault of accessibility, light and dark."""

from __future__ import annotations

import functools
import http.server
import importlib.util
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.report.render.test_page import WIDTHS, browser, faults_of_access
from tests.site.pages import ROOT
from tests.test_site import leaves

EVERY = sorted([*leaves(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]), "404.md"])
"""All pages: those of the navigation, which tests/test_site.py holds complete, and the one for wrong addresses."""

__all__ = ["browser"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """No line for each request."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site as it is built."""
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (extra docs)")
    folder = tmp_path_factory.mktemp("site")
    program = shutil.which("mkdocs", path=str(Path(sys.executable).parent)) or "mkdocs"
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run([program, "build", "-q", "-d", str(folder)], cwd=ROOT, env=environment, check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("name", [page.removesuffix(".md") for page in EVERY])
def test_the_page_fits_every_window(browser: Any, address: str, name: str) -> None:
    for scheme in ("light", "dark"):
        page = browser.new_page(viewport={"width": WIDTHS[0], "height": 900}, color_scheme=scheme)
        said: list[str] = []
        page.on("console", lambda m, said=said: said.append(m.text))
        page.on("pageerror", lambda e, said=said: said.append(str(e)))
        page.goto(f"{address}/{name}.html")
        page.add_style_tag(content="* { transition: none !important }")  # contrast is judged of what stays, not of what fades in
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function("document.documentElement.scrollWidth <= window.innerWidth", timeout=60_000)
        assert faults_of_access(page) == []
        assert said == []
        page.close()


@pytest.mark.slow
def test_every_page_is_looked_at(site: Path) -> None:
    built = {f.relative_to(site).with_suffix(".md").as_posix() for f in site.rglob("*.html")}
    assert built == set(EVERY)
