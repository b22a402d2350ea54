#!/usr/bin/env python3
"""The picture of a report in docs/report.png, taken in headless Chromium (extra `browser`, and chromium).

python scripts/screenshot.py             take it
python scripts/screenshot.py --check     exit code 1 if the page now looks different; needs no browser

The picture contains the hash of its page, without the folded details, and the tools of the figures on it.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "tests" / "models" / "net_kws_dscnn.tflite"
PICTURE = ROOT / "docs" / "report.png"


def shown() -> tuple[str, str]:
    """The page, and the tools behind its figures."""
    sys.path.insert(0, str(ROOT))
    from aot.report.calls import report

    model_report = report(MODEL, name="net_kws_dscnn")
    fingerprint = model_report.data["fingerprint"]
    return (
        model_report.to_html(),
        f"{fingerprint['compiler']}, {fingerprint['emulator']}, {model_report.data['verdict']['reference']}",
    )


def digest(page: str) -> str:
    """The hash of the page's text, style and script, without what opens only at a click (C, instructions, kernels, symbols)."""
    folded = re.sub(r'<tr class="detail".*?</div></td></tr>|<details>.*?</details>', "", page, flags=re.DOTALL)
    return hashlib.sha256(folded.encode()).hexdigest()


def recorded() -> dict[str, str]:
    """The picture's metadata: `page`, the hash, and `tools`."""
    from PIL import Image

    with Image.open(PICTURE) as picture:
        return {key: str(picture.info.get(key, "")) for key in ("page", "tools")}


def take(page: str, tools: str) -> None:
    """Open the page and save its first screens."""
    from PIL import Image, PngImagePlugin
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        file, raw = Path(folder) / "report.html", Path(folder) / "report.png"
        file.write_text(page, encoding="utf-8")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        window = browser.new_page(viewport={"width": 1280, "height": 1640})
        window.goto(file.as_uri())
        window.screenshot(path=raw)
        info = PngImagePlugin.PngInfo()
        info.add_text("page", digest(page))
        info.add_text("tools", tools)
        with Image.open(raw) as picture:
            picture.save(PICTURE, optimize=True, pnginfo=info)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only tell whether the picture is current")
    arguments = parser.parse_args()
    page, tools = shown()
    if arguments.check:
        return int(recorded() != {"page": digest(page), "tools": tools})
    take(page, tools)
    return 0


if __name__ == "__main__":
    sys.exit(main())
