#!/usr/bin/env python3
"""The picture of a report in docs/report.png, taken in headless Chromium (extra `browser`, and chromium).

python scripts/screenshot.py
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"


def main() -> None:
    """Report, open, take the first screens."""
    sys.path.insert(0, str(ROOT))
    from playwright.sync_api import sync_playwright

    import aot

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file = aot.report(MODEL, name="net_kws_dscnn").save(Path(folder) / "report.html")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1640})
        page.goto(file.as_uri())
        page.screenshot(path=ROOT / "docs" / "report.png")


if __name__ == "__main__":
    main()
