"""The page in a browser: nothing wider than the window, no console error, no fault of accessibility, and its script works."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import aot
from aot.memory.memory_pools import Pooling, parse_pool
from aot.report.measure.gate import diff_reports
from aot.report.measure.report import key_of
from aot.report.render.blocks import page
from aot.report.render.drawings import middle
from aot.report.render.pages import compare_html, memory_section, report_html, usual_per_mac
from aot.testing.text_model import text_model
from tests.executor.copy_elision.test_state_windows import stream
from tests.report.render.test_formats import Page, hostile
from tests.report.sample_report import FAILURE, host_sample, layer, sample

MODELS = Path(__file__).parents[2] / "models"
WIDTHS = (360, 768, 1280, 1920)


def deep(layers: int) -> bytes:
    """A chain of convolutions and maxima over windows that stay layers of their own, with names like those of converters."""
    shape = "int8[1,6,6,8]"
    lines = [f"in x {shape} scale=0.05 zero_point=3"]
    name = "x"
    for i in range(layers):
        kind = "out" if i == layers - 1 else "tensor"
        result = f"block{i}/residual/layer_{i}/with/quite/a/long/name"
        if i % 10:
            lines.append(f"{kind} {result} {shape} scale=0.05 zero_point=3")
            window = f"filter_height={1 + i % 3} filter_width={1 + i % 2 + (i % 3 == 0)}"
            lines.append(f"MAX_POOL_2D {name} -> {result} padding=SAME stride_h=1 stride_w=1 {window}")
        else:
            weights = ",".join(str((7 * i + 13 * k) % 31 - 15) for k in range(64))
            lines.append(f"{kind} {result} {shape} scale=0.05 zero_point=3")
            lines += [f"const w{i} int8[8,1,1,8] data={weights} scale=0.01", f"const b{i} int32[8] data={i} scale=0.0005"]
            lines.append(f"CONV_2D {name} w{i} b{i} -> {result} padding=SAME stride_h=1 stride_w=1")
        name = result
    return text_model("\n".join(lines))


def pooled() -> dict[str, Any]:
    """The report of a network with state whose tensors are spread over three memories, on this machine."""
    pools = tuple(map(parse_pool, ("DTCM=64@0x20000000:1", "SRAM=256@0x20010000:2", "EXT=64K@0x60000000:3")))
    pins = (("x", "DTCM"), ("old_max", "SRAM"), ("state", "EXT"))
    report = aot.report(stream(6, 1, twice=True), board="host", name="stream", pooling=Pooling(pools, pins))
    return dict(report.data)


NAMES = ("net_kws_dscnn", "net_ic_resnet", "dense", "deep", "pooled", "hostile", "several", "compared")
"""Six models (one of 150 layers, one with three memories and state), and pages of several."""


@cache
def page_of(name: str) -> str:
    """Reports are for a board where its compiler and emulator are."""
    board = "mps2-an386" if shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm") else "host"
    changed = hostile()
    changed["totals"]["instructions"] += 1
    changes = diff_reports({key_of(sample()): sample()}, {key_of(changed): changed})
    if name == "deep":
        report = aot.report(deep(150), board=board, name="deep")
        assert len(report.layers) == 150
        return report.to_html()
    if name == "pooled":
        return report_html([pooled()], [], [])
    if name == "hostile":
        return report_html([changed], [], [], changes)
    if name == "several":
        return report_html([changed, host_sample()], [FAILURE], [], changes)
    if name == "compared":
        return compare_html(changes, {key_of(sample()): sample()}, {key_of(changed): changed})
    return aot.report(MODELS / f"{name}.tflite", board=board).to_html()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, driven by playwright."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("chromium is not installed")
    with sync_api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


def faults_of_access(page: Any) -> list[str]:
    """What axe-core finds; nothing where it is not installed."""
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        return []
    return [f"{v['id']}: {v['nodes'][0]['html'][:200]}" for v in Axe().run(page).response["violations"]]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_page_fits_every_window(browser: Any, name: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page_of(name), encoding="utf-8")
    for scheme in ("light", "dark"):
        page = browser.new_page(viewport={"width": WIDTHS[0], "height": 900}, color_scheme=scheme)
        said: list[str] = []
        page.on("console", lambda m, said=said: said.append(m.text))
        page.on("pageerror", lambda e, said=said: said.append(str(e)))
        page.goto(file.as_uri())
        for button in page.query_selector_all("button.more")[:2]:
            button.click()
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            over = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
            assert over <= 0, f"{name} at {width} px is {over} px too wide"
        assert faults_of_access(page) == []
        assert said == []
        page.close()


@pytest.mark.slow
def test_headings_sort_rows_open_and_the_flash_zooms(browser: Any, tmp_path: Path) -> None:
    report = sample()
    report["layers"] = [layer(0, instructions=300), layer(1, instructions=100), layer(2, instructions=200)]
    report["extras"] = {
        "functions": {"net_0": {"c": "void net_0(void) {\n}", "blocks": [{"count": 3, "share": 1.0, "lines": ["10  nop"]}]}},
        "operators": ['op 0 CONV_2D "a"'], "candidates": [], "advice": [],
    }  # fmt: skip
    file = tmp_path / "page.html"
    file.write_text(report_html([report], [], []), encoding="utf-8")
    page = browser.new_page()
    page.goto(file.as_uri())

    def order() -> list[str]:
        return [str(b.inner_text()).strip() for b in page.query_selector_all("button.more")]

    assert order() == ["0", "1", "2"]
    heading = page.get_by_role("button", name="instructions", exact=True)
    heading.focus()
    page.keyboard.press("Enter")
    assert order() == ["0", "2", "1"]
    heading.click()
    assert order() == ["1", "2", "0"]
    page.get_by_role("button", name="details of layer 0").click()
    assert page.get_by_text("void net_0(void)").is_visible()
    assert page.get_by_text("3 times a run, 100.0 %").is_visible()
    assert page.get_by_role("button", name="weights 120 B").get_attribute("aria-pressed") == "false"
    page.get_by_role("button", name="weights 120 B").click()
    assert page.locator("#m0-f0").is_hidden()
    assert page.locator("#m0-f1").is_visible()
    page.close()


def test_names_are_shortened_in_the_middle() -> None:
    assert middle("abcdefghij", 10) == "abcdefghij"
    assert middle("block1/conv/kernel", 9) == "bloc…rnel"
    assert middle("abcdef", 4) == ""


def test_what_is_usual_is_the_median_of_the_operator() -> None:
    report = sample()
    report["layers"] = [layer(i, instructions=n) for i, n in enumerate((50, 100, 500))]
    assert usual_per_mac([report]) == {"cortex-m4 CONV_2D": 2.0}
    text = report_html([report], [], [])
    assert text.count('class="n good"') == 1
    assert text.count('class="n poor"') == 1


def test_pools_and_state_stand_apart() -> None:
    report = pooled()
    text = page("pools", memory_section(report))
    assert len(report["plan"]["pools"]) == 3
    assert all(f"{p['name']}: {p['used']:,} of {p['size']:,} B" in text for p in report["plan"]["pools"])
    assert "<h4>State</h4>" in text


def test_a_comparison_nests_and_shows_what_moved_first() -> None:
    after = sample()
    after["totals"]["flash"] += 7
    changes = diff_reports({key_of(sample()): sample()}, {key_of(after): after})
    text = compare_html(changes, {key_of(sample()): sample()}, {key_of(after): after})
    Page(text)
    assert text.index("<td>flash</td>") < text.index("<td>instructions</td>")
    assert text.count("<svg") == 2
